# SPDX-License-Identifier: Apache-2.0
"""Draws the layers contracts of pyproject.toml into architecture.md. With --check, reports differences."""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("architecture.md")
BLOCK = re.compile(r"(<!-- layers of (\w+)[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
WIDTH = 44

Layers = Sequence[Sequence[str]]


def contracts() -> dict[str, Layers]:
    """The layers of each package with a contract, from top to bottom, by package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return {
        contract["id"]: [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
        for contract in settings["contracts"]
        if "id" in contract
    }


def diagram(layers: Layers) -> str:
    """The layers as a stack of boxes; each imports only from boxes below."""
    rule = f"+{'-' * WIDTH}+\n"
    return rule + "".join(f"|{' | '.join(layer):^{WIDTH}}|\n{rule}" for layer in layers)


def drawn(page: str, found: Mapping[str, Layers]) -> str:
    """The page with the diagram of each contract in its block."""
    return BLOCK.sub(lambda block: f"{block[1]}```text\n{diagram(found[block[2]])}```\n{block[3]}", page)


def faults(page: str, found: Mapping[str, Layers]) -> list[str]:
    """Faults of the page: missing or outdated diagrams, packages without a row in the tables."""
    wrong = [f"no diagram of {name}" for name in found if f"<!-- layers of {name} " not in page]
    if drawn(page, found) != page:
        wrong.append("a diagram is out of date: run `python docs/layers.py`")
    for name, layers in found.items():
        section = page.split(f"<!-- layers of {name} ", 1)[-1].split("\n## ", 1)[0]
        rows = "".join(line for line in section.splitlines() if line.startswith("|"))
        for package in (package for layer in layers for package in layer):
            if not re.search(rf"`{package}(/|\.py)`", rows):
                wrong.append(f"no row for {package} of {name}")
    return wrong


def main() -> int:
    """Write the page, or check it."""
    page, found = PAGE.read_text("utf-8"), contracts()
    if "--check" not in sys.argv:
        page = drawn(page, found)
        PAGE.write_text(page, encoding="utf-8")
    wrong = faults(page, found)
    for fault in wrong:
        print(f"docs/architecture.md: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
