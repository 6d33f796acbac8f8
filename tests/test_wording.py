# SPDX-License-Identifier: Apache-2.0
"""Tests that each text in the golden files belongs to a test."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted((TESTS / "wording").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_text_belongs_to_a_test(path: Path) -> None:
    sources: dict[str, str] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        sources[file.stem] = sources.get(file.stem, "") + file.read_text(encoding="utf-8")
    names = re.findall(r"^=== (\S+) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert names
    assert [
        f"{file} {test}" for file, test in names if f"def {test}(" not in sources.get(file, "")
    ] == []
