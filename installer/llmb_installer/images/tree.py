# SPDX-License-Identifier: Apache-2.0
"""What layers come to: applied one upon another as an unpacker would, but to names alone, nothing is unpacked.

The result says for each entry of each layer under which names it is in the image. An unpacker that writes to a disk
follows symbolic links of the image on the way to a name; so does this, within the image, as if it were chrooted there.
"""

from collections.abc import Iterator, Sequence

from llmb.errors import LlmbError
from llmb_installer.images.tarheader import FOLDER, HARD, SYMLINK

NOWHERE = -1  # the layer of a folder that no layer has an entry for
_MAX_LINKS = 40
_MAX_NAME = 255
_WHITEOUT, _OPAQUE, _AUFS = b".wh.", b".wh..wh..opq", b".wh..wh."


class RefusedError(LlmbError):
    """A layer holds what cannot be done, or what only somebody with bad intentions writes."""


class Node:
    """A file, folder or link of the image, and the entry that it comes from; hard links are one node."""

    __slots__ = ("children", "index", "layer", "link", "type")

    def __init__(self, kind: bytes, layer: int, index: int, link: bytes = b"") -> None:
        self.type, self.layer, self.index, self.link = kind, layer, index, link
        self.children: dict[bytes, Node] | None = {} if kind == FOLDER else None


class Tree:
    """The image as far as its layers have been applied."""

    def __init__(self) -> None:
        self.root = Node(FOLDER, NOWHERE, 0)
        self._folder: tuple[bytes, Node] | None = None  # the last that was found, as entries come folder by folder
        self._touched: set[tuple[int, bytes]] = set()  # what this layer has made: its own whiteouts leave it alone
        self._gone: list[Node] = []  # what this layer has removed, kept so that no new folder gets the same id

    def apply(self, layer: int, names: Sequence[bytes], types: bytes, links: dict[int, bytes]) -> None:
        """Apply one more layer: the names of its entries, their types, and where those that are links lead.

        Raises RefusedError.
        """
        self._folder = None
        self._touched = set()
        self._gone = []
        for index, name in enumerate(names):
            above, _, last = name.rpartition(b"/")
            if last.startswith(_WHITEOUT):
                self._whiteout(above, last)
            elif not name:
                self._own_root(layer, index, types[index : index + 1])
            else:
                self._add(layer, index, above, last, types[index : index + 1], links.get(index, b""))

    def make_folder(self, path: bytes) -> None:
        """Make the folder ``path`` and those above it where they are missing. Raises RefusedError."""
        self._find(path, make=True)

    def find(self, path: bytes) -> Node | None:
        """What is at ``path``, links on the way to it followed."""
        above, _, last = path.rpartition(b"/")
        folder = self._find(above, make=False)
        return None if folder is None or folder.children is None else folder.children.get(last)

    def walk(self) -> Iterator[tuple[bytes, Node]]:
        """Everything in the image but its root, by its path; a folder before what it holds."""
        waiting = [(b"", self.root)]
        while waiting:
            above, folder = waiting.pop()
            for name, node in (folder.children or {}).items():
                path = above + name
                yield path, node
                if node.children is not None:
                    waiting.append((path + b"/", node))

    def _own_root(self, layer: int, index: int, kind: bytes) -> None:
        if kind != FOLDER:
            raise RefusedError("holds an entry without a name")
        self.root.layer, self.root.index = layer, index

    def _add(self, layer: int, index: int, above: bytes, last: bytes, kind: bytes, link: bytes) -> None:
        if len(last) > _MAX_NAME:
            raise RefusedError(f"holds a name of {len(last)} bytes, '{_text(last[:40])}...'; {_MAX_NAME} are possible")
        folder = self._folder_of(above)
        assert folder.children is not None
        self._touch(folder, last)
        before = folder.children.get(last)
        if kind == FOLDER and before is not None and before.type == FOLDER:
            before.layer, before.index = layer, index
            return
        node = self._target(above, last, link) if kind == HARD else Node(kind, layer, index, link)
        if before is not None and before.type in (FOLDER, SYMLINK) and before is not node:
            self._folder = None  # the way to the folder that was found last may have led there
            self._gone.append(before)
        folder.children[last] = node

    def _target(self, above: bytes, last: bytes, link: bytes) -> Node:
        target = self.find(link)
        name = _text(above + b"/" + last if above else last)
        if target is None:
            raise RefusedError(f"makes '{name}' a further name of '{_text(link)}', which is not there")
        if target.type == FOLDER:
            raise RefusedError(f"makes '{name}' a further name of '{_text(link)}', which is a folder")
        return target

    def _folder_of(self, path: bytes) -> Node:
        if self._folder is None or self._folder[0] != path:
            node = self._find(path, make=True)
            assert node is not None
            self._folder = (path, node)
        return self._folder[1]

    def _touch(self, folder: Node, name: bytes) -> None:
        self._touched.add((id(folder), name))

    def _find(self, path: bytes, *, make: bool) -> Node | None:
        """The folder ``path``, links followed within the image; None when it is missing and not to be made."""
        way = [self.root]
        names = path.split(b"/")[::-1]
        links = 0
        while names:
            name = names.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                way = way[:-1] or way
                continue
            here = way[-1]
            assert here.children is not None
            node = here.children.get(name)
            if node is None:
                if not make:
                    return None
                if len(name) > _MAX_NAME:
                    raise RefusedError(f"holds a name of {len(name)} bytes, '{_text(name[:40])}...'")
                node = here.children[name] = Node(FOLDER, NOWHERE, 0)
            if make:
                self._touch(here, name)
            if node.type == SYMLINK:
                links += 1
                if links > _MAX_LINKS:
                    raise RefusedError(f"holds '{_text(path)}', whose symbolic links lead nowhere")
                way = way[:1] if node.link.startswith(b"/") else way
                names += node.link.split(b"/")[::-1]
            elif node.type == FOLDER:
                way.append(node)
            elif make:
                raise RefusedError(f"holds something below '{_text(path)}', which is not a folder")
            else:
                return None
        return way[-1]

    def _whiteout(self, above: bytes, last: bytes) -> None:
        """Remove what is below this layer and it hides; what this layer itself holds stays."""
        if last != _OPAQUE and last.startswith(_AUFS):
            return  # what the aufs file system notes for itself
        hidden = last.removeprefix(_WHITEOUT)
        if hidden in (b"", b".", b".."):
            raise RefusedError(f"holds '{_text(last)}', which hides nothing that has a name")
        folder = self._find(above, make=False)
        if folder is None or folder.children is None:
            return
        self._folder = None
        if last == _OPAQUE:
            self._prune(folder)
        elif (node := folder.children.get(hidden)) is not None:
            if (id(folder), hidden) not in self._touched:
                self._gone.append(folder.children.pop(hidden))
            else:
                self._prune(node)

    def _prune(self, node: Node) -> None:
        """Remove from a folder what this layer has not made."""
        waiting = [node]
        while waiting:
            folder = waiting.pop()
            children = folder.children or {}
            for name, child in [*children.items()]:
                if (id(folder), name) not in self._touched:
                    self._gone.append(children.pop(name))
                elif child.children:
                    waiting.append(child)


def chosen(tree: Tree, layers: int, left_out: Sequence[bytes]) -> tuple[list[dict[int, list[bytes]]], list[bytes]]:
    """For each layer, the names in the image of each entry that is in it; and the folders that no layer describes.

    The types ``left_out`` are left out, and whatever is in /dev.
    """
    found: list[dict[int, list[bytes]]] = [{} for _ in range(layers)]
    bare = []
    for path, node in tree.walk():
        if node.type in left_out or path.startswith(b"dev/"):
            continue
        if node.layer == NOWHERE:
            bare.append(path)
        else:
            found[node.layer].setdefault(node.index, []).append(path)
    return found, bare


def clean(name: bytes) -> bytes:
    """A name of a tar entry without what does not matter; the root is empty. Raises RefusedError for ``..``."""
    if name[:1] not in b"/." and b"/." not in name and b"//" not in name:
        return name.removesuffix(b"/")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise RefusedError(f"holds the name '{_text(name)}', which leads out of the image")
    return b"/".join(parts)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
