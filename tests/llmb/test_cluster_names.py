# SPDX-License-Identifier: Apache-2.0
"""No code decides by the name of a cluster type: what differs between types is data of the
types.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmb_installer.cluster_types import all_types

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("llmb", "installer/llmb_installer", "plugins", "examples")
NAMES = frozenset(all_types())
ABOUT = ("cluster_type", "kind")  # what such a name would be compared with


def _is_about(node: ast.expr) -> bool:
    """Whether an expression is a cluster type's name by its own name: ``site.cluster_type``,
    ``view.kind``.
    """
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in ABOUT
        case (
            ast.Call(args=[*_, ast.Constant(value=str(key))])
            | ast.Subscript(slice=ast.Constant(value=str(key)))
        ):
            return key == "cluster_type"
    return False


def _names(node: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    """The names of cluster types in an expression, also by a constant of the module."""
    for one in ast.walk(node):
        match one:
            case ast.Constant(value=str(text)) if text in NAMES:
                yield text
            case ast.Name(id=name) if constants.get(name) in NAMES:
                yield constants[name]


def comparisons(text: str) -> list[int]:
    """The lines of a module that compare a cluster type with a name, or look something up by it."""
    tree = ast.parse(text)
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(map(_is_about, sides)) and any(any(_names(one, constants)) for one in sides):
                    found.append(node.lineno)
            case ast.Match(subject=subject) if _is_about(subject):
                found.append(node.lineno)
            case ast.Subscript(value=ast.Dict(keys=keys), slice=key) if _is_about(key):
                found += [
                    node.lineno for one in keys if one is not None and any(_names(one, constants))
                ]
    return found


@pytest.mark.parametrize(
    "line",
    [
        "if site.cluster_type == 'slurm': pass",
        "local = 'local' != config.cluster_type",
        "x = cluster_type in ('slurm', 'runai')",
        "RUNAI = 'runai'\nok = site.cluster_type is RUNAI",
        "found = view.kind == 'runai'",
        "if value_at(data, 'cluster_type') == 'runai': pass",
        "if data['cluster_type'] != 'local': pass",
        "match site.cluster_type:\n    case 'slurm': pass",
        "y = {'slurm': 1}[site.cluster_type]",
    ],
)
def test_a_comparison_is_found(line: str) -> None:
    assert comparisons(line)


@pytest.mark.parametrize(
    "line", ["a = config.cluster_type == other.cluster_type", "b = graphs == 'local'"]
)
def test_other_code_is_not(line: str) -> None:
    assert comparisons(line) == []


def test_nothing_compares_a_cluster_type_with_a_name() -> None:
    own = [ROOT / "llmb" / "builtin" / name for name in NAMES]
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if not any(path.is_relative_to(folder) for folder in own)
        for line in comparisons(path.read_text("utf-8"))
    }
    assert found == set()
