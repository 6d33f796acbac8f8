# SPDX-License-Identifier: Apache-2.0
"""Pages that programs of the documentation write: a part between two marks, and the check."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def with_part(page: str, part: str, begin: str, end: str) -> str:
    """Return the page with ``part`` between its marks. Raises ValueError if it has no marks."""
    head, first, rest = page.partition(begin)
    _, last, tail = rest.partition(end)
    if not first or not last:
        raise ValueError(f"the page has no lines '{begin.strip()}' and '{end.strip()}'")
    return f"{head}{begin}{part}{end}{tail}"


def write(texts: Mapping[Path, str], program: str, arguments: Sequence[str]) -> int:
    """Write the files that ``texts`` differ from, and return 0.

    With ``--check``, name them, and return 1 if there is one.
    """
    stale = [
        path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    for path in stale:
        if "--check" in arguments:
            print(f"{path} is out of date; run: python docs/{program}.py")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path], "utf-8")
    return 1 if stale and "--check" in arguments else 0
