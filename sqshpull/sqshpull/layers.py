# SPDX-License-Identifier: Apache-2.0
"""The layers of an image: fetched in parallel, decompressed, rejected if implausible, and listed.

The layers of an interrupted build are reused.
"""

import contextlib
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sqshpull.errors import PullError, PullStoppedError
from sqshpull.manifests import Blob, ImageManifest
from sqshpull.merge_layers import LayerRefusedError, clean
from sqshpull.parallel import run_bounded
from sqshpull.registry import Registry
from sqshpull.settings import PullProgress
from sqshpull.tar import BLOCK, Attributes, NotTarError, TarStream, attributes, entries

PIECE = 1 << 20  # bytes; a multiple of a tar block, so that no header is split between two pieces
_CONNECTIONS = 6
_MAX_WINDOW = 1 << 27  # bytes of memory that a zstd frame may ask for

# Layers of programs and data decompress to two to ten times their size; gzip can reach a thousand,
# zstd far more.
_MAX_RATIO = 200
_ALWAYS_ALLOWED = 1 << 30  # bytes
_MAX_ENTRIES = 10_000_000
_MAX_PATH = 4095
_KNOWN = b"0123456"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedLayer:
    """A downloaded layer: ``file`` has the registry's ``size`` bytes; messages show ``label``."""

    label: str
    file: BinaryIO
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNames:
    """The entries of a layer: names, types (a byte each), targets of links by index.

    ``root`` are the attributes of the root folder. ``size`` is the length in bytes of its tar file
    up to the last entry, with sparse files in full.
    """

    names: list[bytes]
    types: bytes
    links: dict[int, bytes]
    root: Attributes | None
    size: int


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the tar file in ``file`` in pieces of PIECE bytes, the last one shorter.

    gzip, zstd and uncompressed tar are detected by their first bytes. Raises PullError for damaged
    data.
    """
    file.seek(0)
    magic = file.read(4)
    file.seek(0)
    try:
        with _decompressed(file, magic) as stream:
            while piece := stream.read(PIECE):
                yield piece
    except (OSError, EOFError) as error:
        raise _damaged(error) from error


@contextlib.contextmanager
def _decompressed(file: BinaryIO, magic: bytes) -> Iterator[BinaryIO]:
    if magic.startswith(b"\x1f\x8b"):
        from isal import igzip, isal_zlib

        unpacker: Any = igzip.GzipFile  # isal has no types
        zlib_error: Any = isal_zlib.error
        try:
            with unpacker(fileobj=file) as stream:
                yield stream
        except zlib_error as error:
            raise _damaged(error) from error
    elif magic == b"\x28\xb5\x2f\xfd":
        import zstandard

        unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        try:
            reader = unpack.stream_reader(
                file, read_size=PIECE, read_across_frames=True, closefd=False
            )
            yield io.BufferedReader(reader, PIECE)
        except zstandard.ZstdError as error:
            raise _damaged(error) from error
    else:
        yield file


def _damaged(error: Exception) -> PullError:
    return PullError(f"it cannot be decompressed: {error}", code="layer-damaged")


def read_names(layer: FetchedLayer, stop: Callable[[], bool] = lambda: False) -> LayerNames:
    """Return the names in ``layer``.

    Raises PullError, with its label, and PullStoppedError once ``stop()`` is true.
    """

    def read() -> Iterator[bytes]:
        for piece in pieces(layer.file):
            if stop():
                raise PullStoppedError(f"reading {layer.label} was interrupted")
            yield piece

    try:
        return _names_in(read(), layer.size)
    except PullStoppedError:
        raise
    except PullError as error:
        raise layer_fault(layer.label, error) from error


def layer_fault(label: str, error: PullError) -> PullError:
    """Return ``error`` with the layer's label: a rejected layer, a damaged tar file, or another."""
    if isinstance(error, LayerRefusedError):
        message, hint = (
            f"{label} {error.message}",
            "the image is rejected: report it to its publisher",
        )
        return PullError(message, hint=hint, code=error.code, key=label, value=error.value)
    if isinstance(error, NotTarError):
        hint = "the image itself is damaged: report it to its publisher"
        return PullError(f"{label}: {error.message}", hint=hint, code=error.code, key=label)
    return PullError(f"{label}: {error.message}", hint=error.hint, code=error.code, key=label)


def _names_in(tar: Iterator[bytes], size: int) -> LayerNames:
    """Return the names in a tar file of a layer with ``size`` bytes in the registry."""
    limit = max(_ALWAYS_ALLOWED, _MAX_RATIO * size)
    names: list[bytes] = []
    types = bytearray()
    links: dict[int, bytes] = {}
    root: Attributes | None = None
    total = 0
    stream = TarStream(tar, lambda _: None)  # nothing is kept
    for entry, block in entries(stream):
        kind = entry.type
        if kind not in _KNOWN:
            name_text = entry.name.decode("utf-8", "backslashreplace")
            raise LayerRefusedError(
                f"contains '{name_text}' of the unknown type {kind!r}", value="type"
            )
        name = clean(entry.name)
        if not name:
            root = attributes(block, entry.pax)
        if entry.link:
            links[len(names)] = clean(entry.link) if kind == b"1" else entry.link
        names.append(name)
        types += kind
        stored = entry.size + -entry.size % BLOCK
        total += BLOCK + max(stored, entry.real_size)
        if total > limit or len(names) > _MAX_ENTRIES or len(name) > _MAX_PATH or entry.size < 0:
            reason = f"it claims more than {_MAX_ENTRIES:,} entries, or one of a negative size"
            if total > limit:
                reason = f"{size:,} bytes would become more than {limit:,}"
            elif len(name) > _MAX_PATH:
                reason = f"a name in it has {len(name):,} bytes"
            raise LayerRefusedError(
                f"looks like an attack on the program that unpacks it: {reason}", value="size"
            )
        stream.skip(stored + BLOCK if entry.plain else stored)
    return LayerNames(names=names, types=bytes(types), links=links, root=root, size=total)


def cache_folder(target: Path, cache: Path | None) -> Path:
    """Return the folder for the layers of ``target`` alone, which the lock of ``target`` covers."""
    folder = cache or target.parent / ".layers"
    return folder / f"{target.name}-{hashlib.sha256(str(target).encode()).hexdigest()[:8]}"


def missing_bytes(manifest: ImageManifest, folder: Path) -> int:
    """Return the bytes still to be fetched, by the sizes of the files in ``folder``."""
    sizes = {_path(folder, layer): layer.size for layer in manifest.layers}
    missing = 0
    for path, size in sizes.items():
        part = path.with_name(f"{path.name}.part")  # of an interrupted download
        if not path.exists():
            missing += max(0, size - (part.stat().st_size if part.exists() else 0))
    return missing


@contextlib.contextmanager
def layers_of(
    registry: Registry, manifest: ImageManifest, folder: Path, progress: PullProgress
) -> Iterator[list[tuple[FetchedLayer, LayerNames]]]:
    """Yield the layers of an image, the lowest first, with the names in them.

    Their files are open within the context. Each layer is read while others are still being
    fetched, the largest first. Raises PullError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    blobs = {layer.digest: layer for layer in manifest.layers}
    stop, count, names = threading.Event(), len(manifest.layers), dict[str, LayerNames]()
    labels = {
        layer.digest: f"layer {number} of {count} ({layer.digest[:19]}) of {manifest.reference}"
        for number, layer in enumerate(manifest.layers, 1)
    }
    with contextlib.ExitStack() as files:

        def fetch(layer: Blob) -> None:
            path = _path(folder, layer)
            try:
                registry.fetch_blob(
                    manifest.reference.repository, layer, path, progress.advance, stop=stop.is_set
                )
                with path.open("rb") as file:
                    fetched = FetchedLayer(label=labels[layer.digest], file=file, size=layer.size)
                    names[layer.digest] = read_names(fetched, stop.is_set)
            except BaseException:
                stop.set()
                raise

        try:
            largest_first = sorted(blobs.values(), key=lambda layer: -layer.size)
            run_bounded(largest_first, fetch, workers=_CONNECTIONS, stop=stop.is_set)
        finally:
            stop.set()
        layer_files = [
            files.enter_context(_path(folder, layer).open("rb")) for layer in manifest.layers
        ]
        yield [
            (
                FetchedLayer(label=labels[layer.digest], file=file, size=layer.size),
                names[layer.digest],
            )
            for layer, file in zip(manifest.layers, layer_files, strict=True)
        ]


def _path(folder: Path, layer: Blob) -> Path:
    return folder / layer.digest.replace(":", "-")
