# SPDX-License-Identifier: Apache-2.0
"""Checks the documentation: every link points to an existing file and heading, and every row of a
table has the cells of its heading. With a folder, checks the pictures of the site there.
"""

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
PICTURE = re.compile(r"<(?:img|source)\b[^>]*?\b(?:src|srcset)=\"([^\"]+)\"")
DIVIDER = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$")
BAR = re.compile(r"(?<!\\)\|")
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


def uneven_rows(page: Path) -> list[str]:
    """A line for each row of a table that has more or fewer cells than the table's heading.

    A bar ends a cell even within code, unless it is escaped.
    """
    lines = FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text("utf-8")).split(
        "\n"
    )
    wrong, cells = [], 0
    for number, line in enumerate(lines, 1):
        if not line.startswith("|"):
            cells = 0
        elif number < len(lines) and not cells and DIVIDER.match(lines[number].strip()):
            cells = len(BAR.findall(line.strip()))
        elif cells and len(BAR.findall(line.strip())) != cells:
            place = f"{page.relative_to(ROOT)}:{number}"
            wrong.append(f"{place}: another number of cells than the heading; write \\| for a bar")
    return wrong


def missing_pictures(site: Path) -> list[str]:
    """A line for each picture that a page of the built site names and the site lacks."""
    return [
        f"{page.relative_to(site)}: no picture {name}"
        for page in sorted(site.rglob("*.html"))
        for name in PICTURE.findall(page.read_text("utf-8"))
        if not EXTERNAL.match(name) and not (page.parent / unquote(name)).exists()
    ]


def main() -> int:
    """Check the pages of the root, docs/, examples/ and plugins/, or a site."""
    if len(sys.argv) > 1:
        missing = missing_pictures(Path(sys.argv[1]))
        print("\n".join(missing), file=sys.stderr, end="\n" if missing else "")
        return 1 if missing else 0
    pages = sorted(ROOT.glob("*.md"))
    for folder in ("docs", "examples", "plugins"):
        pages += sorted((ROOT / folder).rglob("*.md"))
    wrong = [fault for page in pages for fault in (*faults(page), *uneven_rows(page))]
    for fault in wrong:
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {len(wrong)} broken links and rows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
