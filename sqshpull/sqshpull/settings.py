# SPDX-License-Identifier: Apache-2.0
"""The settings of a pull: how registries are asked, how the image is built, and for which user."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Compression = Literal["zstd", "lz4", "gzip", "lzo", "xz"]
# zstd's own default, 15, takes twenty times as long as 3 and saves a few percent.
_DEFAULT_LEVELS = {"zstd": 3, "gzip": 6, "lz4": None, "lzo": None, "xz": None}
_HIGHEST_LEVELS = {"zstd": 22, "gzip": 9, "lz4": None, "lzo": 9, "xz": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """A site's settings for registries."""

    insecure_registries: tuple[str, ...] = ()
    """Hosts that may be asked without TLS. Loopback always may."""
    registry_mirrors: dict[str, str] = field(default_factory=dict)
    """The host to ask instead of a registry: ``{"docker.io": "mirror.example.org/hub"}``."""
    ca_bundle: Path | None = None
    """A file of certificates to trust in addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings(RegistrySettings):
    """The settings of a build of an image."""

    builder: Literal["auto", "stream", "enroot"] = "auto"
    """``stream`` writes the image from the registry's layers. ``enroot`` calls enroot import.
    ``auto`` is ``stream`` if mksquashfs supports it, else ``enroot``."""
    compression: Compression = "zstd"
    level: int | None = None
    """The compression level, None for the default: 3 for zstd, 6 for gzip."""
    processors: int | None = None
    """The processors of mksquashfs, None for all."""
    keep_layers: bool = False
    """Keep the downloaded layers in the cache."""
    cache: Path | None = None
    """The folder for downloaded layers, None for ``.layers`` beside the image."""
    devices: bool = False
    """Keep device nodes; only root can unpack such an image."""
    via: Literal["here", "srun"] = "here"
    """``srun`` calls enroot through Slurm's srun, on a node."""
    srun_args: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The options of mksquashfs that determine the file."""
        level = _DEFAULT_LEVELS[self.compression] if self.level is None else self.level
        level_options = () if level is None else ("-Xcompression-level", str(level))
        return ("-comp", self.compression, *level_options, "-b", "1M")


def level_fault(compression: str, level: int) -> str | None:
    """Return why mksquashfs does not accept ``level`` for ``compression``, None if it does."""
    highest = _HIGHEST_LEVELS[compression]
    if highest is None:
        return f"{compression} has no levels"
    if 1 <= level <= highest:
        return None
    return f"{level} is not a level of {compression}, which has 1 to {highest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretStore:
    """A program's own store of secrets, for variables that the environment lacks."""

    name: str
    """The store's name in messages: ``NGC_API_KEY in ~/.config/program/secrets``."""
    find: Callable[[Sequence[str]], Mapping[str, str]]
    """Return the values of those of these variables that the store has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullUser:
    """The user whose credentials are searched: environment variables and home folder."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    home: Path = field(default_factory=Path.home)
    store: SecretStore | None = None


class PullProgress(Protocol):
    """Receives the progress of a pull, from several threads.

    A call that raises an exception stops the pull: the exception reaches the caller, and no
    incomplete image is left.
    """

    def total(self, bytes: int) -> None:
        """Set the total of bytes to fetch and to write."""

    def advance(self, bytes: int) -> None:
        """Add finished bytes; a negative number when some are discarded."""

    def say(self, text: str) -> None:
        """Show the present stage, in a few words."""


class SilentProgress:
    """Shows nothing."""

    def total(self, bytes: int) -> None:
        """Do nothing."""

    def advance(self, bytes: int) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""
