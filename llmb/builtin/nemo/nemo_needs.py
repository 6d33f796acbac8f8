# SPDX-License-Identifier: Apache-2.0
"""The needs of a NeMo workload: an image or an environment (versions.yaml), and its tokenizer."""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

from llmb.builtin.torch import torch_pretrain
from llmb.contract.gpus import CPU
from llmb.contract.job import Job
from llmb.contract.launch import Site
from llmb.contract.needs import HubAsset, Image, Need, Needs, Venv
from llmb.contract.nemo_recipe import NemoRecipe
from llmb.contract.spec import Workload
from llmb.core import typed, yamlfile
from llmb.core.secrets import SECRETS_FILE
from llmb.core.values import dataclass

VENV = "nemo"
VERSIONS = Path(__file__).with_name("versions.yaml")
TOKENIZER, HUB = "tokenizer", "hub"  # the setting, and its value for the model's own tokenizer
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
# newer repositories have the first in tokenizer_config
OPTIONAL_FILES = ("special_tokens_map.json", "config.json")
HF_TOKEN = "HF_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPackage:
    """A package at ``version``."""

    version: str
    #: Pip's line without the version.
    requirement: str | None = None
    #: A package to build.
    source: str | None = None
    #: Names (with ``*``) of constraints that are only for this version.
    along: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoVersions:
    """The content of versions.yaml."""

    python: str
    #: By the setting that selects another version.
    packages: dict[str, PinnedPackage]
    #: Needed to build sources.
    build: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    constraints_file: str | None = None


@cache
def versions() -> NemoVersions:
    """Return the packages of the NeMo environment and their versions."""
    return typed.read(NemoVersions, yamlfile.load_packaged(VERSIONS))


def needs(workload: Workload, site: Site) -> Needs | None:
    """Return the needs of ``workload``, or None if it has no image and containers are used.

    With containers: its image, a file on Slurm, a reference on Run:ai. Without: the NeMo
    environment, and the torch program's for sizes without a NeMo recipe. On a local cluster and
    without GPUs: only the torch environment. A workload that trains no model needs nothing but its
    image: its plugin's setup adds the rest.
    """
    in_image = site.runs.uses_images and (site.container or site.runs.pulls_images)
    if not workload.is_training and not in_image:
        return Needs()
    if site.runs.trains == "torch":
        return torch_pretrain.needs(site)
    if in_image:
        runtime: list[Need] = [Image(reference=workload.image)] if workload.image else []
    elif site.gpu_type != CPU and any(size.nemo for size in workload.sizes.values()):
        torch_needs = (
            ()
            if all(size.nemo for size in workload.sizes.values())
            else torch_pretrain.needs(site).needs
        )
        runtime = [nemo_venv(site.settings), *torch_needs]
    else:
        return torch_pretrain.needs(site)
    return Needs(needs=(*runtime, *_tokenizers(workload, site.settings))) if runtime else None


def nemo_venv(settings: Mapping[str, str]) -> Venv:
    """Return the NeMo environment of every workload. ``settings`` can select other versions."""
    pinned = versions()
    chosen = {
        name: settings.get(name) or package.version for name, package in pinned.packages.items()
    }
    pins = [
        f"{package.requirement}=={chosen[name]}"
        for name, package in pinned.packages.items()
        if package.requirement
    ]
    return Venv(
        name=VENV,
        requirements=(*pins, *pinned.build),
        constraints=(*pinned.constraints, *_still_fitting(_lines(), pinned.packages, settings)),
        python=pinned.python,
        from_source=tuple(
            f"{package.source}=={chosen[name]}"
            for name, package in pinned.packages.items()
            if package.source
        ),
    )


@cache
def _lines() -> tuple[str, ...]:
    name = versions().constraints_file
    text = VERSIONS.with_name(name).read_text("utf-8") if name else ""
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _still_fitting(
    lines: tuple[str, ...], packages: Mapping[str, PinnedPackage], settings: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the constraints without those for packages whose version ``settings`` change."""
    changed = [
        package
        for name, package in packages.items()
        if (settings.get(name) or package.version) != package.version
    ]
    dropped_patterns = [
        pattern
        for package in changed
        for pattern in (_name(package.requirement or ""), *package.along)
    ]
    return tuple(
        line
        for line in lines
        if not any(fnmatch.fnmatch(_name(line), pattern) for pattern in dropped_patterns)
    )


def _name(requirement: str) -> str:
    """Return the normalized package name of a requirement such as ``torch==2.7.0 ; ...``."""
    name = re.match(r"[\w.-]*\w", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else requirement


def _tokenizers(workload: Workload, settings: Mapping[str, str]) -> tuple[HubAsset, ...]:
    """Return the models' own tokenizers if selected. NeMo's null tokenizer needs no file."""
    if settings.get(TOKENIZER) != HUB:
        return ()
    recipes = [size.nemo for size in workload.sizes.values() if size.nemo is not None]
    return tuple(
        dict.fromkeys(
            HubAsset(
                repository=recipe.hub_tokenizer,
                files=TOKENIZER_FILES,
                optional=OPTIONAL_FILES,
                secret=HF_TOKEN if recipe.gated else None,
            )
            for recipe in recipes
            if recipe.hub_tokenizer is not None
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The tokenizer of a job."""

    #: In the hub, or the path of its ``folder``, or None for NeMo's null tokenizer.
    name: str | None = None
    folder: str | None = None
    #: As in the launch.
    secrets: tuple[str, ...] = ()
    #: As in the launch.
    inputs: tuple[str, ...] = ()
    #: As in the launch.
    fixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def from_hub(self) -> bool:
        """Return True if each rank fetches it from the model hub."""
        return self.name is not None and self.folder is None


def tokenizer_of(job: Job, nemo: NemoRecipe, site: Site) -> Tokenizer:
    """Return the tokenizer of ``job``, an installed one first: hubs refuse thousands of ranks."""
    hub = nemo.hub_tokenizer
    if job.switches.tokenizer != HUB or hub is None:
        return Tokenizer()
    if hub in site.assets:
        folder = str(site.assets[hub])
        inputs = tuple(f"{folder}/{name}" for name in TOKENIZER_FILES)
        fix = (
            "llmb-install verify --repair --yes fetches it; without it in cluster_config.yaml,"
            " ranks use the hub"
        )
        return Tokenizer(
            name=folder, folder=folder, inputs=inputs, fixes=dict.fromkeys(inputs, fix)
        )
    if not nemo.gated:
        return Tokenizer(name=hub)
    fix = f"ask for access at https://huggingface.co/{hub}, then export your token as {HF_TOKEN}"
    fix += f" or keep it in {SECRETS_FILE}; --set tokenizer=null needs none"
    return Tokenizer(name=hub, secrets=(HF_TOKEN,), fixes={HF_TOKEN: fix})
