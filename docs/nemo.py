# SPDX-License-Identifier: Apache-2.0
"""Writes nemo.md's table from the list of differences that `make test-nemo` checks; --check: exit
code 1 if stale.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llmb.core import yamlfile

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("nemo.md")
LIST = ROOT / "tests" / "real_nemo" / "differences.yaml"
NAME = "docs/nemo.md"
BEGIN, END = (
    "<!-- python docs/nemo.py writes this table from differences.yaml -->\n",
    "<!-- end of the table -->\n",
)
WORDS = {None: "not set", True: "True", False: "False", "absent": "absent", "*": "any"}

HEAD = ("Rows", "Setting", "llmb", "NVIDIA's script", "Reason", "Source")


def table() -> str:
    """The list as Markdown with a line for each setting; not padded, because some values are
    long.
    """
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *_lines()))


def _lines() -> Iterator[list[str]]:
    for entry in yamlfile.load(LIST).data["differences"]:
        rows = ", ".join(f"`{row}`" for row in entry["rows"])
        for setting, (ours, theirs) in entry["settings"].items():
            yield [
                rows,
                f"`{setting}`",
                _shown(ours),
                _shown(theirs),
                entry["reason"],
                entry["source"],
            ]


def _shown(value: Any) -> str:
    """A value of a setting; a class without its module."""
    if value is None or isinstance(value, bool) or value in ("absent", "*"):
        return WORDS[value]
    text = str(value)
    return f"`{text.rpartition('.')[2] if text.startswith('nemo.') else text}`"


def page(before: str) -> str:
    """The page with the current table. Raises ValueError if the page has no markers for it."""
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{NAME} has no lines '{BEGIN.strip()}' and '{END.strip()}'")
    return f"{head}{BEGIN}\n{table()}\n\n{END}{tail}"


def main(arguments: Sequence[str]) -> int:
    """Write the table into the page; with --check, only compare, and return 1 if it is stale."""
    before = PAGE.read_text("utf-8")
    now = page(before)
    if "--check" not in arguments:
        PAGE.write_text(now, "utf-8")
        return 0
    if before != now:
        print(f"{NAME} is out of date; run: python docs/nemo.py")
        return 1
    print(f"{NAME} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
