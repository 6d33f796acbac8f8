# SPDX-License-Identifier: Apache-2.0
"""Tests of whiteouts, which remove what lower layers have, and nothing of their own layer."""

from itertools import permutations

import pytest

from sqshpull.merge_layers import ImageTree

LOWER = ("top/", "top/lower", "top/sub/", "top/sub/lower", "plain")


def paths(*layers: tuple[str, ...]) -> set[str]:
    """The paths of an image with these layers; the names of folders end with a slash."""
    tree = ImageTree()
    for number, entries in enumerate(layers):
        names = [name.rstrip("/").encode() for name in entries]
        types = b"".join(b"5" if name.endswith("/") else b"0" for name in entries)
        tree.apply(number, names, types, {})
    return {path.decode() for path, _ in tree.walk()}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (("plain", ".wh.plain"), {"top", "top/lower", "top/sub", "top/sub/lower", "plain"}),
        (("top/", "top/new", ".wh.top"), {"top", "top/new", "plain"}),
        (("top/new", ".wh.top"), {"top", "top/new", "plain"}),
        (("top/sub/new", ".wh.top"), {"top", "top/sub", "top/sub/new", "plain"}),
        (("top/new", "top/.wh..wh..opq"), {"top", "top/new", "plain"}),
        (("top/sub/new", "top/.wh..wh..opq"), {"top", "top/sub", "top/sub/new", "plain"}),
        (("top/sub/new", "top/.wh.sub"), {"top", "top/lower", "top/sub", "top/sub/new", "plain"}),
        (("top/lower", "top/.wh.sub"), {"top", "top/lower", "plain"}),
        ((".wh.top",), {"plain"}),
        (("top/.wh..wh..opq",), {"top", "plain"}),
        ((".wh..wh..opq",), set()),
    ],
)
def test_a_whiteout_removes_what_lower_layers_have(
    entries: tuple[str, ...], expected: set[str]
) -> None:
    """In any order: a whiteout may come before what its layer contains, or after it."""
    for ordered in permutations(entries):
        assert paths(LOWER, ordered) == expected, ordered


def test_what_an_earlier_layer_contains_is_removed_by_a_later_whiteout() -> None:
    assert paths(LOWER, ("top/new",), (".wh.top",)) == {"plain"}
    opaque = ("top/.wh..wh..opq", "top/newer")
    assert paths(LOWER, ("top/new",), opaque) == {"top", "top/newer", "plain"}
    assert paths(LOWER, (".wh.top",), ("top/new",)) == {"top", "top/new", "plain"}
