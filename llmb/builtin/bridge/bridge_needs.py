# SPDX-License-Identifier: Apache-2.0
"""The needs of Megatron-Bridge: an image or an environment, and files of a model hub."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from llmb.builtin.bridge.bridge_rows import BridgeSize, BridgeTable
from llmb.builtin.nvidia_images import Release, chosen_release, releases
from llmb.contract.launch import Site
from llmb.contract.needs import HubAsset, Image, Need, Needs, Venv
from llmb.core.secrets import SECRETS_FILE
from llmb.core.values import dataclass

RELEASE = "bridge_release"  # the setting that selects an image release
VENV = "bridge"
HF_TOKEN = "HF_TOKEN"
_PYTHON = "3.12"
_BUILD = ("setuptools", "wheel", "ninja", "packaging", "pybind11")
_SOURCES = ("mamba-ssm", "causal-conv1d")  # the package index has no wheels of these


def needs(table: BridgeTable, site: Site) -> Needs:
    """Return the image or the environment, and the gated files that the sizes need."""
    release = releases()[chosen_release(site.settings.get(RELEASE), "", RELEASE)]
    has_image = site.container or site.runs.pulls_images
    runtime: list[Need] = [Image(reference=release.image) if has_image else venv(release)]
    assets = dict.fromkeys(
        HubAsset(
            repository=hub.repository,
            files=hub.files,
            secret=HF_TOKEN if hub.gated else None,
            revision=hub.revision,
        )
        for size in table.sizes.values()
        for hub in size.hub_files()
    )
    return Needs(needs=(*runtime, *assets))


def venv(release: Release) -> Venv:
    """Return the environment of a release. The library's requirements select the other packages."""
    libraries = (f"megatron-bridge=={release.bridge}", f"megatron-core=={release.core}")
    return Venv(
        name=f"{VENV}-{release.bridge}",
        requirements=(*libraries, "transformer-engine[core_cu13,pytorch]", *_BUILD),
        python=_PYTHON,
        from_source=_SOURCES,
    )


def venv_at(site: Site, release: Release) -> Path | None:
    """Return the environment of ``release`` at ``site``, else one that a user named.

    None if only another minor version's is there: its ranks would refuse the library, but only
    after the job has waited for its nodes.
    """
    minor = f"{VENV}-{release.bridge.rpartition('.')[0]}."
    patches = (path for name, path in site.venvs.items() if name.startswith(minor))
    venv = site.venvs.get(f"{VENV}-{release.bridge}") or next(patches, site.venv)
    is_other = venv is not None and venv.name.startswith(f"{VENV}-")
    return venv if venv is None or not is_other or venv.name.startswith(minor) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The hub's files of a model, from their installed folder or else from the hub.

    Other fields are as in the launch.
    """

    #: Folders by repository, for the program.
    hub: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def config_of(size: BridgeSize, site: Site, release: Release) -> ModelConfig:
    """Return the files of ``size``, empty if NVIDIA's recipe builds the model without any.

    Only functions of the library name a revision.
    """
    hubs = size.hub_files()
    if not hubs:
        return ModelConfig()
    if all(hub.repository in site.assets for hub in hubs):
        folders = {
            hub.key if release.has_functions else hub.repository: str(site.assets[hub.repository])
            for hub in hubs
        }
        paths = tuple(f"{site.assets[hub.repository]}/{name}" for hub in hubs for name in hub.files)
        fix = (
            "llmb-install verify --repair --yes fetches it; without it in cluster_config.yaml,"
            " ranks use the hub"
        )
        return ModelConfig(
            hub=folders,
            inputs=paths,
            fixes=dict.fromkeys(paths, fix),
            environment={"HF_HUB_OFFLINE": "1"},
        )
    gated = [hub.repository for hub in hubs if hub.gated]
    if not gated:
        return ModelConfig(environment={"TRANSFORMERS_OFFLINE": "0"})
    fix = (
        f"ask for access at https://huggingface.co/{gated[0]}, then export your token as {HF_TOKEN}"
    )
    return ModelConfig(
        secrets=(HF_TOKEN,),
        fixes={HF_TOKEN: f"{fix} or keep it in {SECRETS_FILE}"},
        environment={"TRANSFORMERS_OFFLINE": "0"},
    )
