# SPDX-License-Identifier: Apache-2.0
"""Tests of what programs that write pages share."""

from pathlib import Path

import pytest

from llmb_testing.generated import with_part, write

PAGE = "before <!-- a -->old<!-- end --> after <!-- end -->"


def test_the_part_between_the_marks_is_replaced() -> None:
    page = with_part(PAGE, "new", "<!-- a -->", "<!-- end -->")
    assert page == PAGE.replace("old", "new")
    assert with_part(page, "new", "<!-- a -->", "<!-- end -->") == page


@pytest.mark.parametrize("page", ["<!-- a -->", "<!-- end -->", "<!-- end --> <!-- a -->"])
def test_a_page_without_both_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="<!-- a -->"):
        with_part(page, "new", "<!-- a -->", "<!-- end -->")


def test_a_check_names_what_differs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, other, absent = (tmp_path / name for name in ("same.md", "other.md", "a/absent.md"))
    same.write_text("1")
    other.write_text("1")
    texts = {same: "1", other: "2", absent: "3"}
    assert write(texts, "pages", ["--check"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("run: python docs/pages.py") == 2
    assert str(other) in printed
    assert str(absent) in printed
    assert (other.read_text(), absent.exists()) == ("1", False)
    assert write(texts, "pages", []) == 0
    assert (other.read_text(), absent.read_text()) == ("2", "3")
    assert write(texts, "pages", ["--check"]) == 0
