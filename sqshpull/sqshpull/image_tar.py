# SPDX-License-Identifier: Apache-2.0
"""Writes the tar stream of an image: each file once, in its final version, and enroot's in /etc.

The files in /etc tell enroot, and so pyxis, how a container starts; enroot import writes the same
ones. Without /etc/environment a job lacks the image's variables, so NVIDIA_VISIBLE_DEVICES and with
it the GPUs. The formats are enroot's (its doc/image-format.md): volumes as lines of fstab,
variables as NAME=VALUE, rc as a shell script that gets the container's command as its arguments.
"""

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from sqshpull.errors import PullError, PullStoppedError
from sqshpull.layers import FetchedLayer, layer_fault, pieces
from sqshpull.tar import (
    BLOCK,
    FILE,
    FOLDER,
    HARD,
    Attributes,
    TarEntry,
    TarStream,
    attributes,
    entries,
    header,
    padded,
)

Write = Callable[[bytes | memoryview], object]
_AHEAD = 16  # pieces that wait for the reader
_AT_A_TIME = 3  # layers decompressed at a time: the one that is written and those after it
_ZEROS = bytes(1 << 20)
_END = bytes(2 * BLOCK)

ENVIRONMENT, RC, FSTAB, RC_LOCAL = "etc/environment", "etc/rc", "etc/fstab", "etc/rc.local"

_RC = """\
mkdir -p {folder} 2> /dev/null
cd {folder} && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entry}"$@"
else
    exec {entry}{command}
fi
"""
_RC_LOCAL = (
    "# /etc/rc reads this when the container starts; it may change the container's command.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraFile:
    """A file that is added to those of the layers."""

    names: tuple[bytes, ...]
    content: bytes
    mode: int = 0o644


def write_image(
    layers: Sequence[FetchedLayer],
    chosen: Sequence[dict[int, list[bytes]]],
    folders: Sequence[bytes],
    extra: Sequence[ExtraFile],
    *,
    mtime: int,
    write: Write,
    advance: Callable[[int], None],
) -> None:
    """Write the tar of an image: the ``chosen`` entries of each layer, the lowest layer first.

    ``folders`` are the folders that no layer describes. ``advance`` gets the bytes of the layers'
    files that are done, and may raise. Raises PullError for a damaged layer, OSError when ``write``
    fails.
    """
    for path in folders:
        write(header(path, FOLDER, 0, Attributes(mtime=mtime)))
    with contextlib.ExitStack() as threads:
        read_ahead: list[ReadAhead] = []
        for index, (layer, names) in enumerate(zip(layers, chosen, strict=True)):
            while len(read_ahead) < min(len(layers), index + _AT_A_TIME):
                read_ahead.append(ReadAhead(layers[len(read_ahead)].file))
                threads.callback(read_ahead[-1].close)
            counted = _Counted(layer=layer, pieces=read_ahead[index], advance=advance)
            try:
                _write_layer(TarStream(counted, write), names)
            except PullStoppedError:
                raise
            except PullError as error:
                raise layer_fault(layer.label, error) from error
            counted.report(layer.size)  # all of it, including what was not needed
            read_ahead[index].close()
    for file in extra:
        file_attributes = Attributes(mode=file.mode, mtime=mtime)
        write(
            header(file.names[0], FILE, len(file.content), file_attributes) + padded(file.content)
        )
        for name in file.names[1:]:
            write(header(name, HARD, 0, file_attributes, file.names[0]))
    write(_END)


@dataclass(slots=True, kw_only=True)
class _Counted:
    """The pieces of a layer. ``advance`` gets how far its file has been read."""

    layer: FetchedLayer
    pieces: Iterable[bytes]
    advance: Callable[[int], None]
    reported: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.report(min(self.layer.file.tell(), self.layer.size))
            yield piece

    def report(self, position: int) -> None:
        self.advance(position - self.reported)
        self.reported = position


class ReadAhead:
    """The pieces of a layer, decompressed by a thread ahead of their use. Call ``close`` last."""

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
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):  # it may wait for space
                self._pieces.get(timeout=0.01)
        self._thread.join()

    def _work(self, file: BinaryIO) -> None:
        end: BaseException | None = None
        try:
            for piece in pieces(file):
                self._pieces.put(piece)
                if self._closed.is_set():
                    return
        except BaseException as error:  # the reader raises it
            end = error
        self._pieces.put(end)


def _write_layer(stream: TarStream, chosen: dict[int, list[bytes]]) -> None:
    remaining = len(chosen)
    for index, (entry, block) in enumerate(entries(stream)):
        names = chosen.get(index)
        body = entry.size + -entry.size % BLOCK
        if names is None:
            stream.skip(body + BLOCK if entry.plain else body)
            continue
        if (
            entry.plain
            and len(names) == 1
            and entry.name.removeprefix(b"./").removesuffix(b"/") == names[0]
        ):
            stream.keep(body + BLOCK)
        else:
            _write_entry(stream, entry, block, names)
        remaining -= 1
        if not remaining:
            break
    stream.flush()


def _write_entry(stream: TarStream, entry: TarEntry, block: bytes, names: list[bytes]) -> None:
    """Write an entry with a new header.

    It has another name or several, or attributes outside of one header block.
    """
    entry_attributes = attributes(block, entry.pax)
    if entry.plain:
        stream.skip(BLOCK)
    body = entry.size + -entry.size % BLOCK
    if entry.sparse is None:
        stream.put(header(names[0], entry.type, entry.size, entry_attributes, entry.link))
        stream.keep(body)
    else:
        stream.put(header(names[0], entry.type, entry.real_size, entry_attributes))
        _expand(stream, entry, entry.sparse)
    for name in names[1:]:
        stream.put(
            header(
                name,
                HARD,
                0,
                Attributes(mode=entry_attributes.mode, mtime=entry_attributes.mtime),
                names[0],
            )
        )


def _expand(stream: TarStream, entry: TarEntry, parts: list[tuple[int, int]]) -> None:
    """Write a sparse file with its zeros, which mksquashfs detects again."""
    at = stored = 0
    for offset, length in parts:
        _zeros(stream, offset - at)
        stream.keep(length)
        at, stored = offset + length, stored + length
    _zeros(stream, entry.real_size - at + -entry.real_size % BLOCK)
    stream.skip(entry.size + -entry.size % BLOCK - stored)


def _zeros(stream: TarStream, count: int) -> None:
    while count > 0:
        stream.put(_ZEROS[:count])
        count -= len(_ZEROS)


def etc_files(config: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the content of each file by its path, from ``config`` of the image's configuration."""
    comments = _lines(f"# {key} {value}" for key, value in (config.get("Labels") or {}).items())
    entry = [_quoted(word) for word in config.get("Entrypoint") or ()]
    command = [_quoted(word) for word in config.get("Cmd") or (() if entry else ("/bin/sh",))]
    script = _RC.format(
        folder=_quoted(working_folder(config)),
        entry="".join(f"{word} " for word in entry),
        command=" ".join(command),
    )
    texts = {
        ENVIRONMENT: _lines(map(str, config.get("Env") or ())),
        FSTAB: _lines(
            f"${{ENROOT_ROOTFS}}{path} {path} none x-create=dir,bind,rw,nosuid,nodev"
            for path in sorted(config.get("Volumes") or ())
        ),
        RC: f"{comments}\n{script}" if comments else script,
        RC_LOCAL: _RC_LOCAL,
    }
    return {path: text.encode("utf-8", "surrogateescape") for path, text in texts.items()}


def working_folder(config: Mapping[str, Any]) -> str:
    return str(config.get("WorkingDir") or "/")


def _lines(lines: Any) -> str:
    """Return the lines as a text. A break inside a line becomes a blank, or it would be two."""
    return "".join(re.sub(r"[\r\n\0]+", " ", line) + "\n" for line in lines)


def _quoted(word: str) -> str:
    """Return ``word`` quoted for the shell."""
    return "'" + str(word).replace("\0", "").replace("'", "'\\''") + "'"
