# SPDX-License-Identifier: Apache-2.0
"""Tests of tables in narrow terminals: which columns they omit, and that runs can still be found
apart.
"""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from llmb.cli.output import fit
from llmb.core.names import apart
from llmb.core.tables import Column

Command = Callable[..., subprocess.CompletedProcess[str]]

COLUMNS = [
    Column(key="run"),
    Column(key="experiment"),
    Column(key="time", right=True, optional=True),
    Column(key="rate", right=True, optional=True),
    Column(key="verdict"),
    Column(key="reason"),
]
NAME = "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs{}_gbs256"
WHY = (
    "the loss is not a number, and this is shown in so many words that no line of a terminal has"
    " space for them"
)


def rows(reason: str | None = None) -> list[dict[str, Any]]:
    common = {"time": "2.693", "rate": "389371"}
    first = {
        "run": "abcd1234",
        "experiment": NAME.format(1),
        "verdict": "PASS (n=3)",
        "reason": None,
    }
    second = {
        "run": "efgh5678",
        "experiment": NAME.format(2),
        "verdict": "INVALID",
        "reason": reason,
    }
    return [{**common, **first}, {**common, **second}]


def shown(
    width: int, reason: str | None = None, longest: int | None = 90
) -> tuple[list[str], tuple[str, ...]]:
    text, omitted = fit(COLUMNS, rows(reason), width, longest=longest)
    return text.splitlines(), omitted


def test_a_wide_table_has_each_row_on_one_line() -> None:
    lines, omitted = shown(1000, WHY)
    assert len(lines) == 4
    assert NAME.format(1) in lines[2]
    assert lines[3].endswith(WHY)
    assert omitted == ()


def test_a_long_reason_is_printed_below_its_row() -> None:
    (head, _, first, second, *below), omitted = shown(130, WHY)
    assert "reason" not in head
    assert first.split()[0] == "abcd1234"
    assert second.split()[0] == "efgh5678"
    assert " ".join(line.strip() for line in below) == WHY
    assert all(line[:4].isspace() and len(line) <= 130 for line in below)
    assert omitted == ()


@pytest.mark.parametrize(
    ("width", "lost"),
    [(80, ()), (67, ()), (64, ("rate",)), (60, ("rate",)), (55, ("time", "rate"))],
)
def test_a_narrow_table_omits_optional_columns_from_the_right(
    width: int, lost: tuple[str, ...]
) -> None:
    (*_, first, second), omitted = shown(width)
    assert omitted == lost
    assert max(len(first), len(second)) <= width
    assert "abcd1234" in first
    assert "PASS (n=3)" in first
    for line, word in ((first, "mbs1"), (second, "mbs2")):
        assert "nemotron4_15b_bf16_gpus64" in line
        assert word in line


def test_names_that_differ_only_in_their_middle_keep_it() -> None:
    long = [
        {**row, "experiment": f"probe_bf16_gpus8_value{'x' * 45}V{side}{'y' * 45}"}
        for row, side in zip(rows(), "AB", strict=True)
    ]
    text, omitted = fit(COLUMNS, long, 150, longest=90)
    assert omitted == ()
    assert all(f"V{side}y" in line for line, side in zip(text.splitlines()[2:], "AB", strict=True))
    text, omitted = fit(COLUMNS, long, 80, longest=90)
    assert omitted == ("time", "rate")


def test_text_is_folded_where_nothing_fits() -> None:
    lines, omitted = shown(50)
    assert omitted == ("time", "rate")
    assert max(map(len, lines)) <= 50
    assert len(lines) > 4


def test_full_names_stay_whole() -> None:
    lines, _ = shown(110, longest=None)
    assert NAME.format(1) in lines[2]
    # rows wider than the terminal: names can be copied
    lines, omitted = shown(60, WHY, longest=None)
    assert omitted == ("time", "rate")
    assert NAME.format(1) in lines[2]
    assert all(len(line) <= 60 for line in lines[4:])


def test_names_omit_what_they_have_in_common() -> None:
    names = [NAME.format(1), NAME.format(2), NAME.format(2)]
    assert apart(names, 70) == names
    assert apart(names, 60) == [
        "nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs1_gbs256",
        *["nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"] * 2,
    ]
    assert apart(names, 33) == [
        "nemotron4_15b_bf16_gpus64..mbs1",
        *["nemotron4_15b_bf16_gpus64..mbs2"] * 2,
    ]
    assert apart(names, 30) is None
    assert apart(names[1:], 30) == ["nemotron4_15b_bf16_gpus64.."] * 2


def test_other_names_are_shortened_in_the_middle_while_they_stay_different() -> None:
    assert apart(["x" * 40 + "1", "x" * 40 + "2"], 24) == [
        "x" * 10 + "..." + "x" * 10 + end for end in "12"
    ]
    assert apart(["a" * 20 + "1" + "a" * 20, "a" * 20 + "2" + "a" * 20], 24) is None
    assert apart(["x" * 41], 23) is None
    assert apart([], 1) == []


@pytest.mark.parametrize("width", [1, 5])
def test_a_terminal_of_a_few_columns_shows_everything(width: int) -> None:
    lines, _ = shown(width, WHY, longest=None)
    assert NAME.format(2) in lines[3]
    assert " ".join(line.strip() for line in lines[4:]) == WHY


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_rows_of_a_workload_fit_with_whole_scales_and_names(
    width: int, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = llmb_here("list", "-w", "llama3.1")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= width
    for text in ("405b-proxy", "512..2048", " bridge ", " nemo "):
        assert any(text in line for line in lines), text
    omitted = [line for line in done.stderr.splitlines() if line.startswith("omitted in")]
    assert len(omitted) == (1 if width < 110 else 0)
