# SPDX-License-Identifier: Apache-2.0
"""Reads the names in a layer, and refuses one that inflates to more than a layer can mean."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from llmb.errors import LlmbError
from llmb.system.shell import StoppedError
from llmb_installer.images.inflate import pieces
from llmb_installer.images.tarheader import BLOCK, FILE, Attributes, NotTarError, attributes
from llmb_installer.images.tarstream import Stream, entries
from llmb_installer.images.tree import RefusedError, Tree, clean

# Layers of programs and data are two to ten times as large inflated; gzip can do a thousand, zstd far more.
_MAX_RATIO = 200
_ALWAYS_ALLOWED = 1 << 30  # bytes
_MAX_ENTRIES = 10_000_000
_MAX_PATH = 4095
_KNOWN = b"0123456"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that is here: ``file`` is its content as the registry has it, ``size`` bytes; ``label`` for messages."""

    label: str
    file: BinaryIO
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a layer holds, entry by entry: names, types (one byte each), where links lead, what the root is like.

    ``size``: the bytes of its tar file up to the last entry, with all of its files in full.
    """

    names: list[bytes]
    types: bytes
    links: dict[int, bytes]
    root: Attributes | None
    size: int


def read_names(layer: Layer, stop: Callable[[], bool] = lambda: False) -> Names:
    """The names in ``layer``. Raises LlmbError, which names it, StoppedError once ``stop`` says so."""
    try:
        return _read(_until(stop, layer), max(_ALWAYS_ALLOWED, _MAX_RATIO * layer.size), layer.size)
    except StoppedError:
        raise
    except LlmbError as error:
        raise fault(layer.label, error) from error


def _until(stop: Callable[[], bool], layer: Layer) -> Iterator[bytes]:
    for piece in pieces(layer.file):
        if stop():
            raise StoppedError(f"the reading of {layer.label} was ended")
        yield piece


def fault(label: str, error: LlmbError) -> LlmbError:
    """What is wrong with a layer, as its reader should be told."""
    if isinstance(error, RefusedError):
        return LlmbError(f"{label} {error.message}", hint="the image is refused; ask who made it")
    if isinstance(error, NotTarError):
        return LlmbError(f"{label}: {error.message}", hint="the image itself is broken; ask who made it")
    return LlmbError(f"{label}: {error.message}", hint=error.hint)


def _read(tar: Iterable[bytes], limit: int, size: int) -> Names:
    names: list[bytes] = []
    types = bytearray()
    links: dict[int, bytes] = {}
    root: Attributes | None = None
    total = 0
    stream = Stream(tar, _nowhere)
    for entry, block in entries(stream):
        kind = entry.type
        if kind not in _KNOWN:
            raise RefusedError(f"holds '{entry.name.decode('utf-8', 'backslashreplace')}' of the unknown type {kind!r}")
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
            raise _too_much(total, limit, size, name)
        stream.skip(stored + BLOCK if entry.plain else stored)
    return Names(names=names, types=bytes(types), links=links, root=root, size=total)


def _too_much(total: int, limit: int, size: int, name: bytes) -> RefusedError:
    if total > limit:
        what = f"{size:,} bytes would become more than {limit:,}"
    elif len(name) > _MAX_PATH:
        what = f"a name in it has {len(name):,} bytes"
    else:
        what = f"it claims more than {_MAX_ENTRIES:,} entries, or one of a negative size"
    return RefusedError(f"looks like an attack on whoever unpacks it: {what}")


def _nowhere(data: object) -> None:
    raise AssertionError(f"reading names keeps nothing, not even {data!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The layers one upon another: what each contributes, and what the root of the image is like."""

    tree: Tree
    root: Attributes | None


def apply_all(layers: list[tuple[str, Names]]) -> Whole:
    """The tree that labelled layers come to, the lowest first. Raises LlmbError, which names the layer."""
    tree = Tree()
    root = None
    for index, (label, names) in enumerate(layers):
        try:
            tree.apply(index, names.names, names.types, names.links)
        except LlmbError as error:
            raise fault(label, error) from error
        root = names.root or root
    return Whole(tree=tree, root=root)


__all__ = ["FILE", "Layer", "Names", "Whole", "apply_all", "fault", "read_names"]
