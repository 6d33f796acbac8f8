# SPDX-License-Identifier: Apache-2.0
"""Applies layers in order as an unpacker would, but to names only. Nothing is unpacked.

The result maps each entry of each layer to its names in the image. Like an unpacker that is
chrooted to the image, this follows the image's symbolic links on the path to a name.
"""

from collections.abc import Iterator, Sequence

from sqshpull.errors import PullError
from sqshpull.tar import FOLDER, HARD, SYMLINK

NOWHERE = -1  # the layer of a folder that no layer has an entry for
_MAX_LINKS = 40
_MAX_NAME = 255
_WHITEOUT, _OPAQUE, _AUFS = b".wh.", b".wh..wh..opq", b".wh..wh."


class LayerRefusedError(PullError):
    """A layer contains what is impossible, or what only an attacker writes: ``value`` names it."""

    def __init__(self, message: str, *, value: str) -> None:
        super().__init__(message, code="layer-rejected", value=value)


class TreeNode:
    """A file, folder or link of the image, and its entry. Hard links share one node."""

    __slots__ = ("children", "index", "layer", "link", "type")

    def __init__(self, kind: bytes, layer: int, index: int, link: bytes = b"") -> None:
        self.type, self.layer, self.index, self.link = kind, layer, index, link
        self.children: dict[bytes, TreeNode] | None = {} if kind == FOLDER else None


class ImageTree:
    """The files of the image after the layers that have been applied."""

    def __init__(self) -> None:
        self.root = TreeNode(FOLDER, NOWHERE, 0)
        # the last one found: entries come folder by folder
        self._folder: tuple[bytes, TreeNode] | None = None
        # created by this layer, whose whiteouts do not remove it
        self._touched: set[tuple[int, bytes]] = set()
        # removed by this layer, kept so that no new folder gets the same id
        self._gone: list[TreeNode] = []

    def apply(
        self, layer: int, names: Sequence[bytes], types: bytes, links: dict[int, bytes]
    ) -> None:
        """Apply one more layer: names of its entries, their types, and targets of links by index.

        Raises LayerRefusedError.
        """
        self._folder = None
        self._touched = set()
        self._gone = []
        for index, name in enumerate(names):
            above, _, last = name.rpartition(b"/")
            if last.startswith(_WHITEOUT):
                self._whiteout(above, last)
            elif not name:
                if types[index : index + 1] != FOLDER:
                    raise LayerRefusedError("contains an entry without a name", value="name")
                self.root.layer, self.root.index = layer, index
            else:
                self._add(
                    layer, index, above, last, types[index : index + 1], links.get(index, b"")
                )

    def find(self, path: bytes) -> TreeNode | None:
        """Return the node at ``path``, with links in the path followed."""
        above, _, last = path.rpartition(b"/")
        folder = self.folder(above, make=False)
        return None if folder is None or folder.children is None else folder.children.get(last)

    def walk(self) -> Iterator[tuple[bytes, TreeNode]]:
        """Yield every node except the root, with its path. A folder comes before its content."""
        waiting = [(b"", self.root)]
        while waiting:
            above, folder = waiting.pop()
            for name, node in (folder.children or {}).items():
                path = above + name
                yield path, node
                if node.children is not None:
                    waiting.append((path + b"/", node))

    def _add(
        self, layer: int, index: int, above: bytes, last: bytes, kind: bytes, link: bytes
    ) -> None:
        if len(last) > _MAX_NAME:
            raise _long_name(last)
        if self._folder is None or self._folder[0] != above:
            folder_above = self.folder(above, make=True)
            assert folder_above is not None
            self._folder = (above, folder_above)
        folder = self._folder[1]
        assert folder.children is not None
        self._touched.add((id(folder), last))
        before = folder.children.get(last)
        if kind == FOLDER and before is not None and before.type == FOLDER:
            before.layer, before.index = layer, index
            return
        node = (
            self._target(above, last, link) if kind == HARD else TreeNode(kind, layer, index, link)
        )
        if before is not None and before.type in (FOLDER, SYMLINK) and before is not node:
            self._folder = None  # the path of that folder may have led through it
            self._gone.append(before)
        folder.children[last] = node

    def _target(self, above: bytes, last: bytes, link: bytes) -> TreeNode:
        target = self.find(link)
        name = _text(above + b"/" + last if above else last)
        if target is None:
            raise LayerRefusedError(
                f"links '{name}' to '{_text(link)}', which does not exist", value="link"
            )
        if target.type == FOLDER:
            raise LayerRefusedError(
                f"links '{name}' to '{_text(link)}', which is a folder", value="link"
            )
        return target

    def folder(self, path: bytes, *, make: bool) -> TreeNode | None:
        """Return the folder ``path``, with links followed within the image.

        With ``make``, missing folders are made. Without, the result is None. Raises
        LayerRefusedError.
        """
        path_nodes = [self.root]
        remaining_names = path.split(b"/")[::-1]
        links = 0
        while remaining_names:
            name = remaining_names.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                path_nodes = path_nodes[:-1] or path_nodes
                continue
            current = path_nodes[-1]
            assert current.children is not None
            node = current.children.get(name)
            if node is None:
                if not make:
                    return None
                if len(name) > _MAX_NAME:
                    raise _long_name(name)
                node = current.children[name] = TreeNode(FOLDER, NOWHERE, 0)
            if make:
                self._touched.add((id(current), name))
            if node.type == SYMLINK:
                links += 1
                if links > _MAX_LINKS:
                    raise LayerRefusedError(
                        f"contains '{_text(path)}', whose symbolic links form a loop", value="loop"
                    )
                path_nodes = path_nodes[:1] if node.link.startswith(b"/") else path_nodes
                remaining_names += node.link.split(b"/")[::-1]
            elif node.type == FOLDER:
                path_nodes.append(node)
            elif make:
                raise LayerRefusedError(
                    f"contains a file below '{_text(path)}', which is not a folder", value="folder"
                )
            else:
                return None
        return path_nodes[-1]

    def _whiteout(self, above: bytes, last: bytes) -> None:
        """Remove what lower layers have there. What this layer itself contains stays."""
        if last != _OPAQUE and last.startswith(_AUFS):
            return  # the aufs file system's own notes
        hidden = last.removeprefix(_WHITEOUT)
        if hidden in (b"", b".", b".."):
            raise LayerRefusedError(
                f"contains the whiteout '{_text(last)}' without a name", value="whiteout"
            )
        folder = self.folder(above, make=False)
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

    def _prune(self, node: TreeNode) -> None:
        """Remove from a folder what this layer has not created."""
        waiting = [node]
        while waiting:
            folder = waiting.pop()
            children = folder.children or {}
            for name, child in [*children.items()]:
                if (id(folder), name) not in self._touched:
                    self._gone.append(children.pop(name))
                elif child.children:
                    waiting.append(child)


def names_by_layer(
    tree: ImageTree, layers: int, omitted: Sequence[bytes]
) -> tuple[list[dict[int, list[bytes]]], list[bytes]]:
    """Return the names in the image for each entry of each layer, and the folders without an entry.

    Entries of the types ``omitted`` and the content of /dev are skipped.
    """
    names: list[dict[int, list[bytes]]] = [{} for _ in range(layers)]
    undescribed = []
    for path, node in tree.walk():
        if node.type in omitted or path.startswith(b"dev/"):
            continue
        if node.layer == NOWHERE:
            undescribed.append(path)
        else:
            names[node.layer].setdefault(node.index, []).append(path)
    return names, undescribed


def clean(name: bytes) -> bytes:
    """Return the normalized name of an entry, empty for the root.

    Raises LayerRefusedError for ``..``.
    """
    if name[:1] not in b"/." and b"/." not in name and b"//" not in name:
        return name.removesuffix(b"/")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise LayerRefusedError(
            f"contains the name '{_text(name)}', which leads out of the image", value="escape"
        )
    return b"/".join(parts)


def _long_name(name: bytes) -> LayerRefusedError:
    message = (
        f"contains a name of {len(name)} bytes, '{_text(name[:40])}...'; at most {_MAX_NAME} are"
        " possible"
    )
    return LayerRefusedError(message, value="name")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
