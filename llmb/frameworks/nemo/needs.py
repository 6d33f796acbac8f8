# SPDX-License-Identifier: Apache-2.0
"""What a NeMo workload needs installed: an image, or an environment (versions.yaml), and its tokenizer."""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from llmb.frameworks import torch_pretrain
from llmb.runs.job import Job
from llmb.runs.launch import Site
from llmb.system.secrets import SECRETS_FILE
from llmb.text import typed, yamlfile
from llmb.workload.gpus import CPU
from llmb.workload.needs import HubAsset, Image, Need, Needs, Venv
from llmb.workload.nemo_recipe import NemoRecipe
from llmb.workload.spec import Workload

VENV = "nemo"
VERSIONS = Path(__file__).with_name("versions.yaml")
TOKENIZER, HUB = "tokenizer", "hub"  # the setting, and its value for the model's own tokenizer
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
OPTIONAL_FILES = ("special_tokens_map.json", "config.json")  # newer repositories have the first in tokenizer_config
HF_TOKEN = "HF_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package at ``version``: ``requirement`` is pip's line without the version, ``source`` a package to build.

    ``along``: names (with ``*``) of constraints that are only for this version.
    """

    version: str
    requirement: str | None = None
    source: str | None = None
    along: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """versions.yaml: ``packages`` by the setting that selects another version; ``build``: needed to build sources."""

    python: str
    packages: dict[str, Package]
    build: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    constraints_file: str | None = None


@cache
def versions() -> Versions:
    """The packages of the NeMo environment and their versions."""
    return typed.read(Versions, yamlfile.load(VERSIONS))


def needs(workload: Workload, site: Site) -> Needs | None:
    """What ``workload`` needs at ``site``; None if it has no image and containers are used.

    With containers, its image: a file on Slurm, a reference on Run:ai. Without, the NeMo environment, and that of the
    torch program for sizes without a NeMo recipe. On a local cluster and without GPUs, only the torch environment. A
    workload that trains no model needs nothing but its image: its plugin's setup says what else.
    """
    in_image = site.runs.uses_images and (site.container or site.runs.pulls_images)
    if not workload.is_training and not in_image:
        return Needs()
    if site.runs.trains == "torch":
        return torch_pretrain.needs(site)
    if in_image:
        found: list[Need] = [Image(reference=workload.image)] if workload.image else []
    elif site.gpu_type != CPU and any(size.nemo for size in workload.sizes.values()):
        others = () if all(size.nemo for size in workload.sizes.values()) else torch_pretrain.needs(site).needs
        found = [nemo_venv(site.settings), *others]
    else:
        return torch_pretrain.needs(site)
    return Needs(needs=(*found, *_tokenizers(workload, site.settings))) if found else None


def nemo_venv(settings: Mapping[str, str]) -> Venv:
    """The NeMo environment, the same for every workload; ``settings`` can select other versions of its packages."""
    known = versions()
    chosen = {name: settings.get(name) or own.version for name, own in known.packages.items()}
    pins = [f"{own.requirement}=={chosen[name]}" for name, own in known.packages.items() if own.requirement]
    return Venv(
        name=VENV,
        requirements=(*pins, *known.build),
        constraints=(*known.constraints, *_still_fitting(_lines(), known.packages, settings)),
        python=known.python,
        from_source=tuple(f"{own.source}=={chosen[name]}" for name, own in known.packages.items() if own.source),
    )


@cache
def _lines() -> tuple[str, ...]:
    name = versions().constraints_file
    text = VERSIONS.with_name(name).read_text("utf-8") if name else ""
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _still_fitting(
    lines: tuple[str, ...], packages: Mapping[str, Package], settings: Mapping[str, str]
) -> tuple[str, ...]:
    """The constraints without those of packages for which ``settings`` select another version."""
    others = [own for name, own in packages.items() if (settings.get(name) or own.version) != own.version]
    gone = [pattern for own in others for pattern in (_name(own.requirement or ""), *own.along)]
    return tuple(line for line in lines if not any(fnmatch.fnmatch(_name(line), pattern) for pattern in gone))


def _name(requirement: str) -> str:
    """The normalized package name of a requirement such as ``nemo_toolkit[nlp]`` or ``torch==2.7.0 ; ...``."""
    name = re.match(r"[\w.-]*\w", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else requirement


def _tokenizers(workload: Workload, settings: Mapping[str, str]) -> tuple[HubAsset, ...]:
    """The models' own tokenizers if the settings select them; NeMo's null tokenizer needs no file."""
    if settings.get(TOKENIZER) != HUB:
        return ()
    recipes = [size.nemo for size in workload.sizes.values() if size.nemo is not None]
    return tuple(
        dict.fromkeys(
            HubAsset(
                repository=own.hub_tokenizer,
                files=TOKENIZER_FILES,
                optional=OPTIONAL_FILES,
                secret=HF_TOKEN if own.gated else None,
            )
            for own in recipes
            if own.hub_tokenizer is not None
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The tokenizer of a job: ``name`` in the hub or the path of its ``folder``; None: NeMo's null tokenizer.

    ``secrets``, ``inputs`` and ``fixes``: what reading it needs, as in the launch.
    """

    name: str | None = None
    folder: str | None = None
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def from_hub(self) -> bool:
        """Whether each rank fetches it from the model hub."""
        return self.name is not None and self.folder is None


def tokenizer_of(job: Job, nemo: NemoRecipe, site: Site) -> Tokenizer:
    """The tokenizer of ``job``: from the disk if it is installed, because a hub refuses thousands of ranks at once."""
    hub = nemo.hub_tokenizer
    if job.switches.tokenizer != HUB or hub is None:
        return Tokenizer()
    if hub in site.assets:
        folder = str(site.assets[hub])
        inputs = tuple(f"{folder}/{name}" for name in TOKENIZER_FILES)
        fix = "llmb-install verify --repair --yes fetches it; without it in cluster_config.yaml, ranks use the hub"
        return Tokenizer(name=folder, folder=folder, inputs=inputs, fixes=dict.fromkeys(inputs, fix))
    if not nemo.gated:
        return Tokenizer(name=hub)
    fix = f"ask for access at https://huggingface.co/{hub}, then export your token as {HF_TOKEN}"
    fix += f" or keep it in {SECRETS_FILE}; --set tokenizer=null needs none"
    return Tokenizer(name=hub, secrets=(HF_TOKEN,), fixes={HF_TOKEN: fix})
