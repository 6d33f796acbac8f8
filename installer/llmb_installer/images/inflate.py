# SPDX-License-Identifier: Apache-2.0
"""Reads a layer as pieces of its tar file, whatever it is compressed by, inflating ahead of the reader in a thread."""

import contextlib
import io
import queue
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from llmb.errors import LlmbError

PIECE = 1 << 20  # bytes; a multiple of a tar block, so that no header straddles two pieces
_AHEAD = 16  # pieces that wait for the reader
_MAX_WINDOW = 1 << 27  # bytes of memory that a zstd frame may ask for


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """The tar file in ``file`` from its beginning, in pieces of PIECE bytes, the last one shorter.

    gzip, zstd and plain tar are told apart by their first bytes. Raises LlmbError when it cannot be inflated.
    """
    file.seek(0)
    magic = file.read(4)
    file.seek(0)
    try:
        with _opened(file, magic) as stream:
            while piece := stream.read(PIECE):
                yield piece
    except (OSError, EOFError) as error:
        raise LlmbError(f"it cannot be inflated: {error}") from error


@contextlib.contextmanager
def _opened(file: BinaryIO, magic: bytes) -> Iterator[BinaryIO]:
    if magic.startswith(b"\x1f\x8b"):
        from isal import igzip, isal_zlib

        unpacker: Any = igzip.GzipFile  # it has no types, nor has its error
        broken: Any = isal_zlib.error
        try:
            with unpacker(fileobj=file) as stream:
                yield stream
        except broken as error:
            raise LlmbError(f"it cannot be inflated: {error}") from error
    elif magic == b"\x28\xb5\x2f\xfd":
        import zstandard

        unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        try:
            reader = unpack.stream_reader(file, read_size=PIECE, read_across_frames=True, closefd=False)
            yield io.BufferedReader(reader, PIECE)
        except zstandard.ZstdError as error:
            raise LlmbError(f"it cannot be inflated: {error}") from error
    else:
        yield file


class Ahead:
    """The pieces of a layer, inflated by a thread of its own while the ones before are used; to be closed."""

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
        """End the thread, whether or not all was read."""
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
        except BaseException as error:  # handed to the reader, which raises it
            last = error
        self._put(last)

    def _put(self, item: bytes | BaseException | None) -> bool:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._pieces.put(item, timeout=0.2)
                return True
        return False
