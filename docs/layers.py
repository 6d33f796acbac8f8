# SPDX-License-Identifier: Apache-2.0
"""Writes the layers and the packages into architecture.md, from pyproject.toml and the packages'
docstrings.

With --check, reports differences.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("architecture.md")
BLOCK = re.compile(r"(<!-- (layers|packages) of (\w+)[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
FOLDERS = {"llmb": ROOT / "llmb", "llmb_installer": ROOT / "installer" / "llmb_installer"}
WIDTH = 44

Layers = Sequence[Sequence[str]]


def contracts() -> dict[str, Layers]:
    """Return the layers of each package with a contract, from top to bottom, by package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return {
        contract["id"]: [
            [name.strip() for name in layer.split("|")] for layer in contract["layers"]
        ]
        for contract in settings["contracts"]
        if "id" in contract
    }


def diagram(layers: Layers) -> str:
    """Return the layers as a stack of boxes; each imports only from boxes below."""
    rule = f"+{'-' * WIDTH}+\n"
    boxes = (f"|{' | '.join(layer):^{WIDTH}}|\n{rule}" for layer in layers)
    return "```text\n" + rule + "".join(boxes) + "```\n"


def summary(folder: Path, name: str) -> tuple[str, str]:
    """Return how the package or module ``name`` of ``folder`` is written, and its docstring's first
    paragraph.
    """
    package = folder / name / "__init__.py"
    path = package if package.exists() else folder / f"{name}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    shown = f"{name}/" if path == package else f"{name}.py"
    return shown, " ".join(docstring.split("\n\n")[0].split()).replace("``", "`")


def table(folder: Path, layers: Layers) -> str:
    """Return a row for each package, from top to bottom."""
    rows = (summary(folder, name) for layer in layers for name in layer)
    lines = (f"| `{shown}` | {text} |\n" for shown, text in rows)
    return "| package | contents |\n|---|---|\n" + "".join(lines)


def drawn(page: str, stacks: Mapping[str, Layers], folders: Mapping[str, Path] = FOLDERS) -> str:
    """Return the page with each diagram and each table written anew."""

    def block(match: re.Match[str]) -> str:
        start, kind, name, end = match.groups()
        layers = stacks[name]
        return start + (diagram(layers) if kind == "layers" else table(folders[name], layers)) + end

    return BLOCK.sub(block, page)


def faults(
    page: str, stacks: Mapping[str, Layers], folders: Mapping[str, Path] = FOLDERS
) -> list[str]:
    """Return what is wrong with the page: a missing or an outdated diagram or table."""
    wrong = [
        f"no {kind} of {name}"
        for kind in ("layers", "packages")
        for name in stacks
        if f"<!-- {kind} of {name} " not in page
    ]
    if drawn(page, stacks, folders) != page:
        wrong.append("a diagram or a table is out of date: run `python docs/layers.py`")
    return wrong


def main() -> int:
    """Write the page, or check it."""
    page, stacks = PAGE.read_text("utf-8"), contracts()
    if "--check" not in sys.argv:
        page = drawn(page, stacks)
        PAGE.write_text(page, encoding="utf-8")
    wrong = faults(page, stacks)
    for fault in wrong:
        print(f"docs/architecture.md: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
