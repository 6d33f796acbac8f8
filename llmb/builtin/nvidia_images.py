# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's image releases: which of them have NeMo and Megatron-Bridge. They are in releases.yaml.

The images from 25.09 to 26.02 contain both.
"""

import re
from functools import cache
from pathlib import Path
from typing import Annotated

from llmb.contract.switches import parse_image
from llmb.core import names, typed, yamlfile
from llmb.core.values import dataclass
from llmb.core.versions import minor_of
from llmb.errors import KeyFaultError, UsageError

# NVIDIA's later images have no NeMo: docs/releases/software-versions.md of Megatron-Bridge
NEMO_UNTIL = "26.02"
BRIDGE_FROM = "25.09"  # the first image with Megatron-Bridge, by docs/versions1.json of it
_NVIDIA = re.compile(r"(?:(?:.*/)?nvidia[/:])?nemo:(?P<release>\d\d\.\d\d(?:\.\d\d)?)")
RELEASES = Path(__file__).with_name("releases.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An image release: its image, and the versions of Megatron-Bridge and Megatron core in it."""

    bridge: str
    core: str
    image: Annotated[str, parse_image]

    @property
    def has_functions(self) -> bool:
        """The library has a function for each row. Before 0.6 the launch scripts alone have it."""
        return minor_of(self.bridge) >= (0, 6)


@cache
def releases() -> dict[str, Release]:
    """The releases that have rows of Megatron-Bridge, the newest first."""
    return typed.read(dict[str, Release], yamlfile.load_packaged(RELEASES))


def check_release(name: str) -> None:
    """Raise KeyFaultError for an image release without rows."""
    if name not in releases():
        message = f"no release '{name}' with Megatron-Bridge"
        raise KeyFaultError(
            message, hint=names.suggest(name, list(releases())), code="release-unknown", value=name
        )


def chosen_release(name: str | None, label: str, key: str) -> str:
    """Return the release ``name``, by default the newest with rows.

    Raises UsageError, for ``label`` and the setting ``key``, for one without rows.
    """
    name = name or next(iter(releases()))
    try:
        check_release(name)
    except KeyFaultError as error:
        message = f"{label}{error}"
        raise UsageError(message, hint=error.hint, code=error.code, key=key, value=name) from error
    return name


@cache
def nvidia_release(image: str) -> str | None:
    """Return the release ``26.02.01`` of the image ``nvcr.io/nvidia/nemo:26.02.01``, or None.

    Also of its file as enroot names it: ``nvidia+nemo+26.02.01.sqsh``.
    """
    name = image.removeprefix("docker://").replace("#", "/").partition("@")[0]
    if name.endswith(".sqsh"):
        name = name.rpartition("/")[2].removesuffix(".sqsh").replace("+", ":")
    match = _NVIDIA.fullmatch(name)
    return match["release"] if match is not None else None


def bridge_release(image: str) -> str | None:
    """Return the release of an image that contains Megatron-Bridge, with rows or not."""
    release = nvidia_release(image)
    return release if release is not None and release[:5] >= BRIDGE_FROM else None


def nemo_release(image: str) -> str | None:
    """Return the release of an image with NeMo, None for one with rows of Megatron-Bridge."""
    release = nvidia_release(image)
    is_of_nemo = release is not None and release[:5] <= NEMO_UNTIL and release not in releases()
    return release if is_of_nemo else None
