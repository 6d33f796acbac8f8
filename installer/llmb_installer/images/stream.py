# SPDX-License-Identifier: Apache-2.0
"""Builds an image from its registry's layers in one stream into mksquashfs: no root, no unpacked tree."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError
from llmb_installer.images.cache import layers_of, missing_bytes
from llmb_installer.images.etcfiles import RC, etc_files, working_folder
from llmb_installer.images.flatten import Added, write_image
from llmb_installer.images.scan import Layer, Names, apply_all
from llmb_installer.images.settings import ELSEWHERE, BuildSettings, Progress
from llmb_installer.images.squash import Write, squash
from llmb_installer.images.tarheader import DEVICES, FILE, Attributes
from llmb_installer.images.tree import RefusedError, Tree, chosen
from llmb_installer.registry import disk_faults
from llmb_installer.registry import size as human

if TYPE_CHECKING:
    from llmb_installer.registry.client import Registry
    from llmb_installer.registry.manifests import Manifest

_OURS = "the files in /etc for enroot"


def build_stream(
    registry: Registry,
    manifest: Manifest,
    part: Path,
    folder: Path,
    settings: BuildSettings,
    progress: Progress,
    log: Path,
) -> int:
    """Write the image to ``part``, its layers on their way in ``folder``; the device nodes that are left out.

    Raises LlmbError.
    """
    config = registry.config(manifest)
    size = sum(layer.size for layer in manifest.layers)
    _need_room(part.parent, folder, size, missing_bytes(manifest, folder))
    once = sum({layer.digest: layer.size for layer in manifest.layers}.values())
    progress.total(once + size)
    count = len(manifest.layers)
    progress.say(f"fetching {count} layer{'s' if count != 1 else ''}, {human(once)}")
    with layers_of(registry, manifest, folder, progress) as layers:
        progress.say(f"writing the image ({' '.join(settings.options)})")
        return write_squashfs(layers, config, part, settings, progress, log)


def write_squashfs(
    layers: list[tuple[Layer, Names]],
    config: dict[str, Any],
    part: Path,
    settings: BuildSettings,
    progress: Progress,
    log: Path,
) -> int:
    """Write the image ``part`` of layers that are here, by the image's configuration. As ``build_stream``."""
    start = config.get("config") or {}
    mtime = _seconds(config.get("created"))
    ours = etc_files(start)
    own = _names(ours)
    whole = apply_all([*((layer.label, names) for layer, names in layers), (_OURS, own)])
    _make_working_folder(whole.tree, start)
    left_out = () if settings.devices else DEVICES
    names, bare = chosen(whole.tree, len(layers) + 1, left_out)
    added = [
        Added(names=tuple(names[-1][index]), content=content, mode=0o755 if path == RC else 0o644)
        for index, (path, content) in enumerate(ours.items())
    ]
    devices = sum(1 for _, node in whole.tree.walk() if node.type in left_out)
    root = whole.root or Attributes(mtime=mtime)
    del whole

    def write_tar(write: Write) -> None:
        found = [layer for layer, _ in layers]
        write_image(found, names[:-1], bare, added, mtime=mtime, write=write, advance=progress.advance)

    squash(part, settings, root, log, write_tar)
    return devices


def _names(ours: dict[str, bytes]) -> Names:
    """Our own files as one more layer."""
    names = [path.encode() for path in ours]
    return Names(names=names, types=FILE * len(names), links={}, root=None, size=0)


def _make_working_folder(tree: Tree, start: dict[str, Any]) -> None:
    try:
        tree.make_folder(working_folder(start).encode("utf-8", "surrogateescape"))
    except RefusedError:
        return  # something else is there, and the container's start will say so


def _seconds(created: object) -> int:
    """When the image was made, in seconds since 1970; 0 when it does not say so."""
    try:
        return max(0, int(datetime.fromisoformat(str(created)).timestamp()))
    except ValueError:
        return 0


def _need_room(images: Path, cache: Path, size: int, missing: int) -> None:
    """Raise LlmbError when the disk is certain to get full: layers on their way, and an image of about their size."""
    wanted = {images: size * 9 // 10}
    wanted[cache] = wanted.get(cache, 0) + missing
    if faults := disk_faults(wanted):
        hint = f"free space there, or choose {ELSEWHERE}, or --cache DIR for the layers"
        raise LlmbError(faults[0].message, hint=hint)
