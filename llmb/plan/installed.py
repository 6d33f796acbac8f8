# SPDX-License-Identifier: Apache-2.0
"""The frameworks of an installation, by its images or environments."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import NEMO
from llmb.core.values import dataclass
from llmb.plan.bridge_rows import (
    BRIDGE,
    framework_of_release,
    nvidia_release,
    releases,
)

_ENVIRONMENTS = {"nemo": NEMO, "bridge": BRIDGE}  # by the first word of their names


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The frameworks of an installation."""

    #: The only one that it has, None if it has both or does not tell.
    framework: str | None = None
    #: The releases of Megatron-Bridge that it has, the preferred first.
    releases: tuple[str, ...] = ()


def installed(workload: str, config: ClusterConfig) -> Installed:
    """Return what the installation has for ``workload``.

    The choice in ``install`` comes first, then the images, or the workload's environments.
    """
    install = config.install
    names, releases_found = set[str](), [install.bridge_release] if install.bridge_release else []
    if not config.traits.uses_images:
        names = set(_of_environments(workload, config))
    elif not config.traits.pulls_images:
        tags = _tags_in(install.image_folder or config.llmb_install / "images")
        names = {name for tag in tags if (name := framework_of_release(tag)) is not None}
        releases_found += [tag for tag in releases() if tag in tags]
    only = next(iter(names)) if len(names) == 1 else None
    chosen = install.framework if install.framework != "both" else None
    return Installed(framework=chosen or only, releases=tuple(dict.fromkeys(releases_found)))


def _of_environments(workload: str, config: ClusterConfig) -> Iterator[str]:
    entry = config.workloads.of(workload)
    paths = [] if entry.venv_path is None else [entry.venv_path]
    for path in (*paths, *entry.venvs.values()):
        name = _ENVIRONMENTS.get(path.name.partition("-")[0])
        if name is not None:
            yield name


def _tags_in(folder: Path) -> frozenset[str]:
    """Return the releases of NVIDIA's images in ``folder``, none if it cannot be read."""
    try:
        return _tags_at(folder, folder.stat().st_mtime_ns)
    except OSError:
        return frozenset()


@lru_cache(maxsize=16)  # a list may have thousands of requests
def _tags_at(folder: Path, _changed: int) -> frozenset[str]:
    tags = (nvidia_release(file.name) for file in folder.glob("*.sqsh"))
    return frozenset(tag for tag in tags if tag is not None)
