# SPDX-License-Identifier: Apache-2.0
"""Tests that a table gives way to a narrow terminal in order, says what it lost, and keeps what tells runs apart."""

from typing import Any

import pytest

from llmb.text.names import apart
from llmb.text.narrow import Level, fitted
from llmb.text.tables import Column

COLUMNS = [
    Column(key="run"),
    Column(key="experiment"),
    Column(key="time", right=True),
    Column(key="rate", right=True),
    Column(key="verdict"),
    Column(key="reason"),
]
NAME = "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs{}_gbs256"
WHY = "the loss is not a number, and this is said in so many words that no line of a terminal has room for them"


def rows(reason: str | None = None) -> list[dict[str, Any]]:
    common = {"time": "2.693", "rate": "389371"}
    first = {"run": "abcd1234", "experiment": NAME.format(1), "verdict": "PASS (n=3)", "reason": None}
    second = {"run": "efgh5678", "experiment": NAME.format(2), "verdict": "INVALID", "reason": reason}
    return [{**common, **first}, {**common, **second}]


def levels(reason: str | None = None) -> list[Level]:
    whole = Level(COLUMNS, rows(reason))
    return [whole, whole.without("rate", said="tokens/s"), whole.without("rate", "time", said="figures")]


def shown(width: int, reason: str | None = None, most: int | None = 90) -> tuple[list[str], tuple[str, ...]]:
    text, left_out = fitted(levels(reason), width, most=most)
    return text.splitlines(), left_out


def test_a_wide_table_has_all_on_one_line() -> None:
    lines, left_out = shown(1000, WHY)
    assert len(lines) == 4
    assert NAME.format(1) in lines[2]
    assert lines[3].endswith(WHY)
    assert left_out == ()


def test_a_reason_without_room_stands_below_its_row() -> None:
    (head, _, first, second, *below), left_out = shown(130, WHY)
    assert "reason" not in head
    assert first.split()[0] == "abcd1234"
    assert second.split()[0] == "efgh5678"
    assert " ".join(line.strip() for line in below) == WHY
    assert all(line.startswith("    ") and len(line) <= 130 for line in below)
    assert left_out == ()


@pytest.mark.parametrize(
    ("width", "lost"), [(80, ()), (67, ()), (64, ("tokens/s",)), (60, ("tokens/s",)), (55, ("figures",))]
)
def test_a_narrower_table_loses_figures_and_never_what_tells_runs_apart(width: int, lost: tuple[str, ...]) -> None:
    (*_, first, second), left_out = shown(width)
    assert left_out == lost
    assert max(len(first), len(second)) <= width
    assert "abcd1234" in first
    assert "PASS (n=3)" in first
    for line, word in ((first, "mbs1"), (second, "mbs2")):
        assert "nemotron4_15b_bf16_gpus64" in line
        assert word in line


def test_where_nothing_fits_text_is_folded_and_nothing_lost() -> None:
    lines, left_out = shown(50)
    assert left_out == ("figures",)
    assert max(map(len, lines)) <= 50
    assert len(lines) > 4


def test_full_names_are_kept() -> None:
    lines, _ = shown(110, most=None)
    assert NAME.format(1) in lines[2]
    lines, left_out = shown(60, WHY, most=None)  # they can be copied, though they go beyond the width
    assert left_out == ("figures",)
    assert NAME.format(1) in lines[2]
    assert all(len(line) <= 60 for line in lines[4:])


def test_names_lose_what_they_have_in_common() -> None:
    names = [NAME.format(1), NAME.format(2), NAME.format(2)]
    assert apart(names, 70) == names
    assert apart(names, 60) == [
        "nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs1_gbs256",
        *["nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"] * 2,
    ]
    assert apart(names, 33) == ["nemotron4_15b_bf16_gpus64..mbs1", *["nemotron4_15b_bf16_gpus64..mbs2"] * 2]
    assert apart(names, 30) is None
    assert apart(names[1:], 30) == ["nemotron4_15b_bf16_gpus64.."] * 2


def test_a_name_that_is_no_experiments_loses_its_middle_while_that_tells_it_apart() -> None:
    assert apart(["x" * 40 + "1", "x" * 40 + "2"], 24) == ["x" * 10 + "..." + "x" * 10 + end for end in "12"]
    assert apart(["a" * 20 + "1" + "a" * 20, "a" * 20 + "2" + "a" * 20], 24) is None
    assert apart(["x" * 41], 23) is None
    assert apart([], 1) == []


@pytest.mark.parametrize("width", [1, 5])
def test_a_terminal_without_room_for_anything_shows_all(width: int) -> None:
    lines, _ = shown(width, WHY, most=None)
    assert NAME.format(2) in lines[3]
    assert " ".join(line.strip() for line in lines[4:]) == WHY
