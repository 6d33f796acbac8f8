# SPDX-License-Identifier: Apache-2.0
"""Finds the frameworks in an image without starting it: their versions, and a commit."""

import re
from collections.abc import Mapping
from pathlib import Path

from llmb.plan.images import commit_of
from llmb_installer.cluster_types import all_plugins
from sqshpull.record import read_files

# As distributions name their folders. The keys are the packages' names.
_PACKAGES = {
    "megatron-bridge": "megatron_bridge",
    "megatron-core": "megatron_core",
    "nemo-toolkit": "nemo_toolkit",
    "transformer-engine": "transformer_engine",
}
# Folders of packages, the first comes first on Python's path: NVIDIA's images have an environment
# in /opt/venv that also sees the system's packages.
_FOLDERS = (
    "opt/venv/lib/python3*/site-packages",
    "usr/local/lib/python3*/dist-packages",
    "usr/local/lib/python3*/site-packages",
    "usr/lib/python3/dist-packages",
)
# Its Dockerfile copies the whole checkout.
_COPIED = "megatron-bridge"
_GIT = "opt/Megatron-Bridge/.git"
_REFS = tuple(f"{_GIT}/{name}" for name in ("HEAD", "packed-refs", "refs"))


def libraries_in(image: Path) -> dict[str, str]:
    """Return the versions of the frameworks in an image, and the commit of Megatron-Bridge.

    Frameworks of plugins are among them. Empty if nothing is found, or unsquashfs is missing.
    """
    packages = _PACKAGES | {
        framework.library: framework.library.replace("-", "_")
        for framework in all_plugins().frameworks.values()
        if framework.library
    }
    metadata = [
        f"{folder}/{name}-*.dist-info/METADATA" for folder in _FOLDERS for name in packages.values()
    ]
    found = read_files(image, [*metadata, *_REFS])
    libraries = {
        name: version for name, folder in packages.items() if (version := _version(folder, found))
    }
    commit = _commit(found)
    return {**libraries, **({commit_of(_COPIED): commit} if commit is not None else {})}


def _version(package: str, found: Mapping[str, bytes]) -> str | None:
    """Return the version of the first folder of packages that has ``package``."""
    for folder in _FOLDERS:
        parent = re.escape(folder).replace(r"\*", r"[\d.]*")
        pattern = rf"{parent}/{re.escape(package)}-([^/-]+)\.dist-info/METADATA"
        for path in found:
            if (match := re.fullmatch(pattern, path)) is not None:
                return match[1]
    return None


def _commit(found: Mapping[str, bytes]) -> str | None:
    """Return the commit of the checkout: HEAD has it, or names a branch."""
    texts = {path: data.decode(errors="replace").strip() for path, data in found.items()}
    head = texts.get(f"{_GIT}/HEAD", "")
    if head.startswith("ref: "):
        branch = head.removeprefix("ref: ")
        packed = re.search(
            rf"^([0-9a-f]+) {re.escape(branch)}$",
            texts.get(f"{_GIT}/packed-refs", ""),
            re.MULTILINE,
        )
        head = texts.get(f"{_GIT}/{branch}") or (packed[1] if packed is not None else "")
    return head if re.fullmatch(r"[0-9a-f]{40}", head) else None
