# SPDX-License-Identifier: Apache-2.0
"""Writes the table of formats into docs/logs.md from the corpus of logs that the tests read.

python docs/corpus.py            write the table
python docs/corpus.py --check    exit code 1 if the page is stale
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from llmb_testing.generated import with_part, write

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "tests" / "llmb" / "measure" / "corpus" / "index.yaml"
PAGE = Path(__file__).with_name("logs.md")
BEGIN, END = "<!-- corpus (written by `python docs/corpus.py`) -->", "<!-- end -->"


def table(logs: list[dict[str, Any]]) -> str:
    """Return a row for each format: its versions, and the corpus logs with what they show."""
    formats: dict[str, list[dict[str, Any]]] = {}
    for log in logs:
        formats.setdefault(log["format"], []).append(log)
    lines = ["| format | versions | logs | among them |", "|---|---|---|---|"]
    for name, members in formats.items():
        versions = ", ".join(dict.fromkeys(str(log["version"]) for log in members))
        shown = "; ".join(log["shows"] for log in members if "shows" in log)
        lines.append(f"| {name} | {versions} | {len(members)} | {shown} |")
    lines.append(f"| all | | {len(logs)} | |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Write the table, or compare it with the corpus."""
    logs = yaml.safe_load(INDEX.read_text(encoding="utf-8"))["logs"]
    text = with_part(PAGE.read_text("utf-8"), f"\n{table(logs)}\n", BEGIN, END)
    return write({PAGE: text}, "corpus", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
