# SPDX-License-Identifier: Apache-2.0
"""How images are built."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from llmb_installer.registry.settings import RegistrySettings

Compression = Literal["zstd", "gzip", "lz4", "lzo", "xz"]
Builder = Literal["auto", "stream", "enroot"]
ELSEWHERE = "another folder (image_folder in the answers, -o FILE)"  # in hints: where images can go
# zstd's own default, 15, takes twenty times as long as 3 and saves a few percent.
_LEVELS: dict[Compression, int | None] = {"zstd": 3, "gzip": 6, "lz4": None, "lzo": None, "xz": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How an image is built.

    ``builder``: ``stream`` writes it here from the registry's layers; ``enroot`` calls enroot import, ``via`` srun on a
    node or here; ``auto`` is ``stream`` if mksquashfs supports it, else ``enroot``. ``cache`` is the folder for
    downloaded layers, None for ``.layers`` beside the image; with ``keep_layers`` they stay there. ``processors`` None
    means all. ``devices`` keeps device nodes, and only root can unpack such an image.
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
        """The options of mksquashfs that determine the file."""
        level = _LEVELS[self.compression] if self.level is None else self.level
        given = () if level is None else ("-Xcompression-level", str(level))
        return ("-comp", self.compression, *given, "-b", "1M")
