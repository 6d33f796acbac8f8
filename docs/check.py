# SPDX-License-Identifier: Apache-2.0
"""Checks that every link in the documentation points to an existing file and heading."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
EXTERNAL = re.compile(r"[a-z][a-z+.-]*:|//", re.IGNORECASE)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub names them; the second of one name gets `-1`."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text("utf-8"))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        name, count = slug, 0
        while name in found:
            count += 1
            name = f"{slug}-{count}"
        found.add(name)
    return found


def faults(page: Path) -> list[str]:
    """A line for each broken link of a page."""
    text = CODE.sub("", FENCE.sub("", page.read_text("utf-8")))
    wrong = []
    for link in LINK.findall(text) + REFERENCE.findall(text):
        if EXTERNAL.match(link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            wrong.append(f"{page.relative_to(ROOT)}: no file {path}")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{page.relative_to(ROOT)}: no heading #{anchor} in {path or 'this page'}")
    return wrong


def main() -> int:
    """Check the pages of the root, docs/, examples/ and plugins/."""
    pages = sorted(ROOT.glob("*.md"))
    for folder in ("docs", "examples", "plugins"):
        pages += sorted((ROOT / folder).rglob("*.md"))
    wrong = [fault for page in pages for fault in faults(page)]
    for fault in wrong:
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {len(wrong)} broken links")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
