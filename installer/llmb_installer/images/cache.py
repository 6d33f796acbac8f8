# SPDX-License-Identifier: Apache-2.0
"""The downloaded layers of an image: fetched in parallel, each checked; those of an interrupted build are reused."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.system.parallel import run_bounded
from llmb_installer.images.layer import Layer, Names, read_names
from llmb_installer.images.settings import BuildSettings

if TYPE_CHECKING:
    from llmb_installer.registry import Descriptor, Manifest, Registry
    from llmb_installer.step import Progress

_CONNECTIONS = 6


def cache_folder(target: Path, settings: BuildSettings) -> Path:
    """The folder for the layers of the image ``target`` alone; the lock of ``target`` covers it."""
    folder = settings.cache or target.parent / ".layers"
    return folder / f"{target.name}-{hashlib.sha256(str(target).encode()).hexdigest()[:8]}"


def missing_bytes(manifest: Manifest, folder: Path) -> int:
    """The bytes still to be fetched, by the sizes of the files in ``folder``."""
    sizes = {_path(folder, layer): layer.size for layer in manifest.layers}
    return sum(max(0, size - _begun(path)) for path, size in sizes.items() if not path.exists())


def _begun(path: Path) -> int:
    """The bytes that an interrupted download of ``path`` left."""
    part = path.with_name(f"{path.name}.part")
    return part.stat().st_size if part.exists() else 0


@contextlib.contextmanager
def layers_of(
    registry: Registry, manifest: Manifest, folder: Path, progress: Progress
) -> Iterator[list[tuple[Layer, Names]]]:
    """The layers of an image, the lowest first, with the names in them; their files are open within the context.

    Each is read while others are still being fetched, the largest first. Raises LlmbError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {layer.digest: layer for layer in manifest.layers}
    stop = threading.Event()
    with contextlib.ExitStack() as files:
        labels, names = _labels(manifest), dict[str, Names]()

        def fetch(layer: Descriptor) -> tuple[str, Names]:
            try:
                label = labels[layer.digest]
                return layer.digest, _get(registry, manifest, layer, folder, label, progress, stop)
            except BaseException:
                stop.set()
                raise

        def keep(fetched: tuple[str, Names]) -> bool:
            names.update([fetched])
            return True

        try:
            largest_first = sorted(wanted.values(), key=lambda layer: -layer.size)
            run_bounded(largest_first, fetch, keep, workers=_CONNECTIONS, stop=stop.is_set)
        finally:
            stop.set()
        opened = [files.enter_context(_path(folder, layer).open("rb")) for layer in manifest.layers]
        yield [
            (Layer(label=labels[layer.digest], file=file, size=layer.size), names[layer.digest])
            for layer, file in zip(manifest.layers, opened, strict=True)
        ]


def forget(folder: Path) -> None:
    """Remove the layers, and the folder above if it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _labels(manifest: Manifest) -> dict[str, str]:
    count = len(manifest.layers)
    pairs = enumerate((layer.digest for layer in manifest.layers), 1)
    return {digest: f"layer {number} of {count} ({digest[:19]}) of {manifest.reference}" for number, digest in pairs}


def _get(
    registry: Registry,
    manifest: Manifest,
    layer: Descriptor,
    folder: Path,
    label: str,
    progress: Progress,
    stop: threading.Event,
) -> Names:
    """Fetch one layer into ``folder``, and read the names in it."""
    path = _path(folder, layer)
    registry.fetch_blob(manifest.reference.repository, layer, path, progress.advance, stop=stop.is_set)
    with path.open("rb") as file:
        return read_names(Layer(label=label, file=file, size=layer.size), stop.is_set)


def _path(folder: Path, layer: Descriptor) -> Path:
    return folder / layer.digest.replace(":", "-")
