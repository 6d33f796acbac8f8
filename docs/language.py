# SPDX-License-Identifier: Apache-2.0
"""Finds retired words in docs, code and golden files.

python docs/language.py [PATH...]    exit code 1 where one is found; all files of the repository
without PATH
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {
    ".md",
    ".py",
    ".yaml",
    ".yml",
    ".html",
    ".css",
    ".txt",
    ".sh",
    ".toml",
    ".tmpl",
    ".json",
    ".c",
    ".1",
    "",
}
HERE = Path(__file__).relative_to(ROOT).as_posix()
# What to write instead of each. Names in code are words too: `_told` is found, `standard` is not
# `stand`.
RETIRED = {
    r"cure[ds]?": "fix",
    r"aloud": "is printed, is reported",
    r"stands?(?!-in|-by)|stood": "is",
    r"told": "is printed, is reported",
    r"(?<!not_)said": "is printed, is reported",  # the JSON field `not_said` is a contract
    r"(comes?|came|coming)[ _]over": "overrides",
    r"left[ _](away|out)|leav(e|es|ing)[ _]out": "omitted, skipped",
    r"(goes?|going|went)[ _]on": "continues",
    r"in[ _]the[ _]way": "prevents; pre-submission checks",
    r"mend(s|ed|ing)?": "fix, repair",
    r"hand(ed|over)": "passed, submitted",
    r"beaten": "overridden",
    r"tidy(?!-imports)|tidied": "clean up",
    r"surroundings": "environment",
    r"unmet": "unmatched",
    r"houses?|rooms?|doors?": "module, package, space",
    r"counts[ _](as|for)": "is",
    r"whose[ _]word": "which value applies",
}
_WORD = re.compile("|".join(f"(?P<w{n}>{pattern})" for n, pattern in enumerate(RETIRED)))
_PATTERN = re.compile(rf"(?<![a-z])(?:{_WORD.pattern})(?![a-z])", re.IGNORECASE)
# A field of the JSON files beside images.
_FIELDS = re.compile(r"\bdevices_left_out\b")
# Texts that are not ours: another program's output, what a file of another tool says, records of
# earlier releases.
ALLOWED = re.compile(
    r"^tests/(real_nemo/.*\.yaml|llmb/run/records/complete/)|^uv\.lock$|^LICENSE|^\.git"
)


def files(paths: list[str]) -> list[str]:
    """The tracked and new files below ``paths``, relative to the repository."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(
        argv, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [path for path in listed if Path(path).suffix in KINDS and (ROOT / path).is_file()]


def retired(path: str) -> Iterator[str]:
    """A line for each retired word of a file: place, word, what to write instead."""
    for number, line in enumerate(
        (ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        for found in _PATTERN.finditer(_FIELDS.sub("", line)):
            kind = next(
                int(name[1:]) for name, text in found.groupdict().items() if text is not None
            )
            yield f"{path}:{number}: '{found[0]}': write {list(RETIRED.values())[kind]}"


def main(paths: list[str]) -> int:
    """Print every retired word below ``paths``."""
    found = [
        line
        for path in files(paths)
        if path != HERE and not ALLOWED.search(path)
        for line in retired(path)
    ]
    print("\n".join(found[:200]) + ("\n..." if len(found) > 200 else "")) if found else None
    print(f"{len(found)} retired words", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["."]))
