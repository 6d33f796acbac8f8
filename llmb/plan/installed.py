# SPDX-License-Identifier: Apache-2.0
"""The frameworks of an installation, by its images or environments."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Framework, Workload
from llmb.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The frameworks of an installation."""

    #: The only one that it has, None if it has several or does not tell.
    framework: str | None = None
    #: The releases that it has, the preferred first.
    releases: tuple[str, ...] = ()


def installed(workload: Workload, config: ClusterConfig) -> Installed:
    """Return what the installation has for ``workload``.

    The choice in ``install`` comes first, then the images, or the workload's environments.
    """
    install, frameworks = config.install, workload.frameworks.values()
    names, releases = set[str](), [install.bridge_release] if install.bridge_release else []
    if not config.traits.uses_images:
        names = _of_environments(workload, config)
    elif not config.traits.pulls_images:
        files = _images_in(install.image_folder or config.llmb_install / "images")
        images = [releases_of_image(file, frameworks) for file in files]
        names = {name for image in images if len(image) == 1 for name in image}
        image_releases = {release for image in images for release in image.values()}
        releases += [
            name for known in frameworks for name in known.releases if name in image_releases
        ]
    only = next(iter(names)) if len(names) == 1 else None
    chosen = install.framework if install.framework != "both" else None
    return Installed(framework=chosen or only, releases=tuple(dict.fromkeys(releases)))


def releases_of_image(image: str, frameworks: Iterable[Framework]) -> dict[str, str]:
    """Return the release of each framework that ``image`` contains by its name, if known."""
    release_by_framework = {framework.name: framework.release_of(image) for framework in frameworks}
    return {name: release for name, release in release_by_framework.items() if release is not None}


def _of_environments(workload: Workload, config: ClusterConfig) -> set[str]:
    """Return the frameworks of the workload's environments, which begin with their names."""
    entry = config.workloads.of(workload.key)
    paths = [] if entry.venv_path is None else [entry.venv_path]
    words = {path.name.partition("-")[0] for path in (*paths, *entry.venvs.values())}
    return words & {workload.framework, *(framework.name for framework, _ in workload.brought())}


def _images_in(folder: Path) -> tuple[str, ...]:
    """Return the names of the images in ``folder``, none if it cannot be read."""
    try:
        return _images_at(folder, folder.stat().st_mtime_ns)
    except OSError:
        return ()


@lru_cache(maxsize=16)  # a list may have thousands of requests
def _images_at(folder: Path, _changed: int) -> tuple[str, ...]:
    return tuple(file.name for file in folder.glob("*.sqsh"))
