# SPDX-License-Identifier: Apache-2.0
"""Writes the table of formats into docs/logs.md from the corpus of logs that the tests read.

python docs/corpus.py            write the table and print it
python docs/corpus.py --check    exit code 1 if the page is stale
"""

import sys
from pathlib import Path
from typing import Any

import yaml

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


def with_table(page: str, text: str) -> str:
    """Return ``page`` with ``text`` between its markers."""
    begin = page.index(BEGIN) + len(BEGIN)
    return f"{page[:begin]}\n{text}\n{page[page.index(END, begin) :]}"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with the corpus."""
    text = table(yaml.safe_load(INDEX.read_text(encoding="utf-8"))["logs"])
    page = PAGE.read_text(encoding="utf-8")
    changed = with_table(page, text)
    if "--check" in arguments:
        stale = changed != page
        print(f"docs/logs.md is {'stale: run python docs/corpus.py' if stale else 'up to date'}")
        return int(stale)
    PAGE.write_text(changed, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
