# SPDX-License-Identifier: Apache-2.0
"""Reads a layer: decompresses it, lists the names in it, and rejects one that decompresses to implausible sizes."""

import contextlib
import io
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from llmb.errors import LlmbError
from llmb.system.shell import StoppedError
from llmb_installer.images.tarheader import BLOCK, Attributes, NotTarError, attributes
from llmb_installer.images.tarstream import Stream, entries
from llmb_installer.images.tree import RefusedError, Tree, clean

PIECE = 1 << 20  # bytes; a multiple of a tar block, so that no header is split between two pieces
_AHEAD = 16  # pieces that wait for the reader
_MAX_WINDOW = 1 << 27  # bytes of memory that a zstd frame may ask for

# Layers of programs and data decompress to two to ten times their size; gzip can reach a thousand, zstd far more.
_MAX_RATIO = 200
_ALWAYS_ALLOWED = 1 << 30  # bytes
_MAX_ENTRIES = 10_000_000
_MAX_PATH = 4095
_KNOWN = b"0123456"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A downloaded layer: ``file`` has the registry's content, ``size`` bytes; ``label`` is for messages."""

    label: str
    file: BinaryIO
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The entries of a layer: names, types (one byte each), targets of links by index, attributes of the root folder.

    ``size`` is the length in bytes of its tar file up to the last entry, with sparse files in full.
    """

    names: list[bytes]
    types: bytes
    links: dict[int, bytes]
    root: Attributes | None
    size: int


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """The tar file in ``file`` from its beginning, in pieces of PIECE bytes, the last one shorter.

    gzip, zstd and uncompressed tar are detected by their first bytes. Raises LlmbError for damaged data.
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
            reader = unpack.stream_reader(file, read_size=PIECE, read_across_frames=True, closefd=False)
            yield io.BufferedReader(reader, PIECE)
        except zstandard.ZstdError as error:
            raise _damaged(error) from error
    else:
        yield file


def _damaged(error: Exception) -> LlmbError:
    return LlmbError(f"it cannot be decompressed: {error}", code="layer-damaged")


class ReadAhead:
    """The pieces of a layer, decompressed by a thread while earlier ones are used; call ``close`` afterwards."""

    def __init__(self, file: BinaryIO) -> None:
        self._pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(file,), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    def close(self) -> None:
        """End the thread, whether or not everything was read."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._pieces.get_nowait()
        self._thread.join()

    def _work(self, file: BinaryIO) -> None:
        last: BaseException | None = None
        try:
            for piece in pieces(file):
                if not self._put(piece):
                    return
        except BaseException as error:  # the reader raises it
            last = error
        self._put(last)

    def _put(self, item: bytes | BaseException | None) -> bool:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._pieces.put(item, timeout=0.2)
                return True
        return False


def read_names(layer: Layer, stop: Callable[[], bool] = lambda: False) -> Names:
    """The names in ``layer``. Raises LlmbError, with its label, and StoppedError once ``stop()`` is true."""
    try:
        return _read(_until(stop, layer), max(_ALWAYS_ALLOWED, _MAX_RATIO * layer.size), layer.size)
    except StoppedError:
        raise
    except LlmbError as error:
        raise layer_fault(layer.label, error) from error


def _until(stop: Callable[[], bool], layer: Layer) -> Iterator[bytes]:
    for piece in pieces(layer.file):
        if stop():
            raise StoppedError(f"reading {layer.label} was interrupted")
        yield piece


def layer_fault(label: str, error: LlmbError) -> LlmbError:
    """``error`` with the layer's label: a rejected layer, a damaged tar file, or another error."""
    if isinstance(error, RefusedError):
        message, hint, code = (
            f"{label} {error.message}",
            "the image is rejected: report it to its publisher",
            error.code,
        )
        return LlmbError(message, hint=hint, code=code, key=label, value=error.value)
    if isinstance(error, NotTarError):
        hint = "the image itself is damaged: report it to its publisher"
        return LlmbError(f"{label}: {error.message}", hint=hint, code=error.code, key=label)
    return LlmbError(f"{label}: {error.message}", hint=error.hint, code=error.code, key=label)


def _read(tar: Iterable[bytes], limit: int, size: int) -> Names:
    names: list[bytes] = []
    types = bytearray()
    links: dict[int, bytes] = {}
    root: Attributes | None = None
    total = 0
    stream = Stream(tar, _no_output)
    for entry, block in entries(stream):
        kind = entry.type
        if kind not in _KNOWN:
            name_text = entry.name.decode("utf-8", "backslashreplace")
            raise RefusedError(f"contains '{name_text}' of the unknown type {kind!r}", value="type")
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
            raise _too_large(total, limit, size, name)
        stream.skip(stored + BLOCK if entry.plain else stored)
    return Names(names=names, types=bytes(types), links=links, root=root, size=total)


def _too_large(total: int, limit: int, size: int, name: bytes) -> RefusedError:
    if total > limit:
        what = f"{size:,} bytes would become more than {limit:,}"
    elif len(name) > _MAX_PATH:
        what = f"a name in it has {len(name):,} bytes"
    else:
        what = f"it claims more than {_MAX_ENTRIES:,} entries, or one of a negative size"
    return RefusedError(f"looks like an attack on the program that unpacks it: {what}", value="size")


def _no_output(data: object) -> None:
    raise AssertionError(f"reading names keeps no data, not even {data!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedLayers:
    """The layers applied in order: the tree of the image, and the attributes of its root folder."""

    tree: Tree
    root: Attributes | None


def apply_all(layers: list[tuple[str, Names]]) -> MergedLayers:
    """Apply labelled layers, the lowest first. Raises LlmbError with the layer's label."""
    tree = Tree()
    root = None
    for index, (label, names) in enumerate(layers):
        try:
            tree.apply(index, names.names, names.types, names.links)
        except LlmbError as error:
            raise layer_fault(label, error) from error
        root = names.root or root
    return MergedLayers(tree=tree, root=root)
