# SPDX-License-Identifier: Apache-2.0
"""How images are built, and how the building tells how far it is."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from llmb_installer.registry.settings import RegistrySettings

Compression = Literal["zstd", "gzip", "lz4", "lzo", "xz"]
Builder = Literal["auto", "stream", "enroot"]
ELSEWHERE = "another folder (image_folder in the answers, -o FILE)"  # in hints: where images can go
# zstd's own default, 15, takes twenty times as long as 3 for a few percent of the size.
_LEVELS: dict[Compression, int | None] = {"zstd": 3, "gzip": 6, "lz4": None, "lzo": None, "xz": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How an image is built.

    ``builder``: ``stream`` writes it here from the registry's layers; ``enroot`` calls enroot import, ``via`` srun on a
    node or here; ``auto`` takes the stream where mksquashfs can do it, else enroot. ``cache`` is the folder for layers
    on their way, None for ``.layers`` beside the image; with ``keep_layers`` they stay there. ``processors`` None is
    all of them. ``devices`` keeps device nodes, which make an image that only root can unpack.
    """

    builder: Builder = "auto"
    via: Literal["here", "srun"] = "here"
    srun_args: tuple[str, ...] = ()
    compression: Compression = "zstd"
    level: int | None = None
    processors: int | None = None
    keep_layers: bool = False
    cache: Path | None = None
    devices: bool = False
    registry: RegistrySettings = field(default_factory=RegistrySettings)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of mksquashfs that decide what the image is like."""
        level = _LEVELS[self.compression] if self.level is None else self.level
        given = () if level is None else ("-Xcompression-level", str(level))
        return ("-comp", self.compression, *given, "-b", "1M")


class Progress(Protocol):
    """Whoever shows how far a build is. Called from several threads; each call may raise StoppedError to end it."""

    def total(self, bytes: int) -> None:
        """How many bytes there are to do: the layers as they are in the registry, once to fetch and once to write."""

    def advance(self, bytes: int) -> None:
        """So many more of them are done; less than none where some must be done again."""

    def say(self, text: str) -> None:
        """What is being done now, or what the user should know."""


class Silent:
    """A Progress that shows nothing."""

    def total(self, bytes: int) -> None:
        """Show nothing."""

    def advance(self, bytes: int) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""
