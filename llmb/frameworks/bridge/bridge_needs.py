# SPDX-License-Identifier: Apache-2.0
"""What Megatron-Bridge needs installed: an image or an environment, and the config.json of gated models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmb.errors import UsageError
from llmb.runs.launch import Site
from llmb.system.secrets import SECRETS_FILE
from llmb.text.names import suggest
from llmb.workload.bridge import BridgeSize, BridgeTable, Release, releases
from llmb.workload.needs import HubAsset, Image, Need, Needs, Venv

RELEASE = "bridge_release"  # the setting that selects an image release
VENV = "bridge"
CONFIG = "config.json"
HF_TOKEN = "HF_TOKEN"
_PYTHON = "3.12"
_BUILD = ("setuptools", "wheel", "ninja", "packaging", "pybind11")
_SOURCES = ("mamba-ssm", "causal-conv1d")  # the package index has no wheels of these


def chosen_release(settings: Mapping[str, str]) -> str:
    """The image release that the settings of the installation select; the newest by default. Raises UsageError."""
    name = settings.get(RELEASE) or next(iter(releases()))
    if name not in releases():
        hint = suggest(name, list(releases()))
        raise UsageError(
            f"no release '{name}' with Megatron-Bridge", hint=hint, code="release-unknown", key=RELEASE, value=name
        )
    return name


def needs(table: BridgeTable, site: Site) -> Needs:
    """The image, or an environment if there are no containers; and the gated files of the sizes that need them."""
    release = releases()[chosen_release(site.settings)]
    has_image = site.container or site.runs.pulls_images
    found: list[Need] = [Image(reference=release.image) if has_image else venv(release)]
    hubs = [size.hub for size in table.sizes.values() if size.hub is not None]
    assets = (HubAsset(repository=hub, files=(CONFIG,), secret=HF_TOKEN) for hub in dict.fromkeys(hubs))
    return Needs(needs=(*found, *assets))


def venv(release: Release) -> Venv:
    """The environment of a release; its other packages are those that Megatron-Bridge's own requirements select."""
    libraries = (f"megatron-bridge=={release.bridge}", f"megatron-core=={release.core}")
    return Venv(
        name=f"{VENV}-{release.bridge}",
        requirements=(*libraries, "transformer-engine[core_cu13,pytorch]", *_BUILD),
        python=_PYTHON,
        from_source=_SOURCES,
    )


def venv_at(site: Site, release: Release) -> Path | None:
    """The environment of ``release`` at ``site``, else one that a user named; None if only another release's is there.

    Its ranks would refuse the other library, but only after the job has waited for its nodes.
    """
    name = f"{VENV}-{release.bridge}"
    own = site.venvs.get(name, site.venv)
    return None if own is None or (own.name.startswith(f"{VENV}-") and own.name != name) else own


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """How the ranks read a gated model's config.json: from its installed ``folder``, else from the hub.

    ``hub``: folders by repository, for the program; the others: what it takes, as in the launch.
    """

    hub: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def config_of(size: BridgeSize, site: Site) -> ModelConfig:
    """The config.json of ``size``; nothing where NVIDIA's recipe builds the model without it."""
    if size.hub is None:
        return ModelConfig()
    if size.hub in site.assets:
        folder = str(site.assets[size.hub])
        path = f"{folder}/{CONFIG}"
        fix = "llmb-install verify --repair --yes fetches it; without it in cluster_config.yaml, ranks use the hub"
        return ModelConfig(
            hub={size.hub: folder},
            folder=folder,
            inputs=(path,),
            fixes={path: fix},
            environment={"HF_HUB_OFFLINE": "1"},
        )
    fix = f"ask for access at https://huggingface.co/{size.hub}, then export your token as {HF_TOKEN}"
    return ModelConfig(
        secrets=(HF_TOKEN,),
        fixes={HF_TOKEN: f"{fix} or keep it in {SECRETS_FILE}"},
        environment={"TRANSFORMERS_OFFLINE": "0"},
    )
