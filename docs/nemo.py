# SPDX-License-Identifier: Apache-2.0
"""Writes nemo.md's table from the list of differences that `make test-nemo` checks; --check: exit
code 1 if stale.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llmb.core import yamlfile
from llmb_testing.generated import with_part, write

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("nemo.md")
LIST = ROOT / "tests" / "real_nemo" / "differences.yaml"
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


def main(arguments: Sequence[str]) -> int:
    """Write the table into the page; with --check, only compare, and return 1 if it is stale."""
    text = with_part(PAGE.read_text("utf-8"), f"\n{table()}\n\n", BEGIN, END)
    return write({PAGE: text}, "nemo", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
