# SPDX-License-Identifier: Apache-2.0
"""Writes licences.md from the metadata of the installed packages; --check: exit code 1 if a package
that the project itself names has no row. What those packages require, and how they spell their
licence, changes with their own releases: a difference there is no fault of a commit.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("licences.md")

HEAD = """\
# Licences

<!-- Written by `python docs/licences.py` from the metadata of the packages. -->

llmb is under the Apache License 2.0. It includes no code of others; it requires these packages,
each under the licence that its metadata names. Its tests have
a copy of the schema of CTRF, from npm's package ctrf 0.3.0 (MIT).
"""
FETCHED = """\
## What llmb-install fetches

Only for the workloads that you choose, onto your cluster, as their metadata says: torch
(BSD-3-Clause, and others for the libraries in its wheel), transformers, nemo_toolkit and
megatron-bridge (Apache-2.0), megatron-core (Apache-2.0, and BSD for parts), and what these require:
the lock file of an environment (`.llmb/locks/`) names every package. Container images have the
licence that their registry shows, and files of a model hub that of their repository, such as
Llama's. llmb accepts none of them for you.
"""
# Texts of old metadata, as SPDX names.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "BSD": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(names: Iterable[str], seen: set[str]) -> Iterator[str]:
    """The packages that ``names`` need here, themselves included, without those of ``seen`` and our
    own.
    """
    for name in map(normal, names):
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another Python or platform
            continue
        needs = [Requirement(line) for line in found.requires or ()]
        if not name.startswith(("llmb", "sqshpull")):
            yield name
        yield from closure(
            (one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})),
            seen,
        )


def licence(name: str) -> str:
    """The licence that a package's metadata names: its expression, else its classifier, else its
    text's first line.
    """
    metadata = distribution(name).metadata.json
    names = (
        line.split(" :: ")[-1]
        for line in metadata.get("classifier", [])
        if line.startswith("License ::")
    )
    classified = ", ".join(name for name in names if not name.endswith(("Approved", "approved")))
    text = str(metadata.get("license") or "").strip().partition("\n")[0]
    named = str(metadata.get("license_expression") or "") or classified or text
    return _SPDX.get(named, named) or "unknown"


def table(names: Iterable[str]) -> str:
    """A table of packages with their licences."""
    rows = (f"| {name} | {licence(name)} |" for name in sorted(names))
    return "\n".join(["| package | licence |", "|---|---|", *rows]) + "\n"


def named_for_development() -> list[str]:
    """The packages that the project's own groups name."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    return [Requirement(line).name for line in groups["dev"] + groups["docs"]]


def without_row(text: str) -> list[str]:
    """The packages that the project names and a page does not list."""
    own = closure(["llmb", "llmb-testing"], set())
    rows = set(re.findall(r"^\| ([^ |]+) \|", text, re.MULTILINE))
    named = {*own, *(normal(name) for name in named_for_development())}
    return sorted(name for name in named - rows if not name.startswith(("llmb", "sqshpull")))


def page() -> str:
    """The page of all licences."""
    seen: set[str] = set()
    parts = [
        ("## llmb-run and llmb-install\n", closure(["llmb"], seen)),
        ("## The test kits, `llmb[testing]`\n", closure(["llmb-testing"], seen)),
        (
            "## Development\n",
            closure(named_for_development(), seen),
        ),
    ]
    tables = [
        f"{title}\n{table(names)}"
        for title, names in [(title, list(names)) for title, names in parts]
        if names
    ]
    return "\n".join([HEAD, *tables, FETCHED])


def main() -> int:
    """Write the page, or check it."""
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif missing := without_row(PAGE.read_text("utf-8") if PAGE.exists() else ""):
        names = ", ".join(missing)
        print(
            f"docs/licences.md has no row for {names}: run `python docs/licences.py`",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
