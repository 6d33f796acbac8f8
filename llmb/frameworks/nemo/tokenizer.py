# SPDX-License-Identifier: Apache-2.0
"""Which tokenizer a NeMo job takes, and where the ranks have it from: the install folder, else the model hub. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmb.frameworks.nemo.needs import HF_TOKEN, HUB, TOKENIZER_FILES
from llmb.runs.job import Job
from llmb.runs.launch import Site
from llmb.system.secrets import SECRETS_FILE
from llmb.workload.spec import NemoRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The tokenizer ``name``, the hub's or the path of ``folder``, where its files are; None: NeMo's null tokenizer.

    ``secrets``, ``inputs`` and ``fixes`` are the launch's: what reading it takes, and what to do without.
    """

    name: str | None = None
    folder: str | None = None
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def from_hub(self) -> bool:
        """Whether each rank asks the model hub for it."""
        return self.name is not None and self.folder is None


def tokenizer_of(job: Job, nemo: NemoRecipe, site: Site) -> Tokenizer:
    """The tokenizer of ``job``: from the disk where ``site`` has it, as a hub refuses thousands of ranks at once."""
    hub = nemo.hub_tokenizer
    if job.switches.tokenizer != HUB or hub is None:
        return Tokenizer()
    if hub in site.assets:
        folder = str(site.assets[hub])
        inputs = tuple(f"{folder}/{name}" for name in TOKENIZER_FILES)
        fix = "llmb-install verify --repair --yes fetches it; taken out of cluster_config.yaml, ranks ask the hub"
        return Tokenizer(name=folder, folder=folder, inputs=inputs, fixes=dict.fromkeys(inputs, fix))
    if not nemo.gated:
        return Tokenizer(name=hub)
    fix = f"ask for access at https://huggingface.co/{hub}, then export your token as {HF_TOKEN}"
    fix += f" or keep it in {SECRETS_FILE}; --set tokenizer=null needs none"
    return Tokenizer(name=hub, secrets=(HF_TOKEN,), fixes={HF_TOKEN: fix})
