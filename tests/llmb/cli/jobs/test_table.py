# SPDX-License-Identifier: Apache-2.0
"""Tests that the list of runs fits 80 columns, whatever its names, states and reasons."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.cli.jobs.runs_table import OUTCOME, table_of
from llmb.cli.output import fit
from llmb.contract.state import ENDS, PENDING, RUNNING

WIDTH = 80
NAMES = (
    "pretrain_nemotron4_tiny_bf16_gpus1_tp1_pp1_cp1_vpNone_mbs2_gbs4_steps8",
    "pretrain_nemotron4_tiny_bf16_gpus1_tp1_pp1_cp1_vpNone_mbs2_gbs4_steps50000",
    "pretrain_nemotron4_tiny_bf16_gpus1_tp1_pp1_cp1_vpNone_mbs4_gbs4_steps8",
    "pretrain_nemotron4_340b_fp8_gpus2048_tp8_pp8_cp1_vp12_mbs1_gbs512_nccltrace_profile_ckpt_interval10_layers8",
    "pretrain_nemotron4_340b_fp8_gpus2048_tp8_pp8_cp1_vp12_mbs1_gbs512",
    "pretrain_deepseek-v3_671b_bf16_gpus1024_tp2_pp16_cp1_vp1_mbs1_gbs8192_steps100",
    "another_program_of_a_plugin_whose_name_follows_no_pattern_and_never_ends_before_the_line_does_a",
    "another_program_of_a_plugin_whose_name_follows_no_pattern_and_never_ends_before_the_line_does_b",
)
REASONS = (
    None,
    "",
    "Priority",
    "exit code 3",
    (
        "the loss is not a number — and the sentence is so long that it does not fit on one line of"
        " a terminal"
    ),
    "no file /scratch/" + "x" * 120,
)


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"deb3ue{number % 100:02}",
        "scheduler_id": str(number),
        "attempt": 1,
        "experiment": NAMES[0],
        "repeat": 1,
        "state": PENDING,
        "submitted": "2025-11-21 19:03:58",
        "ran": None,
        "reason": None,
        "parameters": {},
        **dict.fromkeys(("workload", "model_size", "dtype", "gpu_type", "scale", *OUTCOME)),
        **changes,
    }


def drawn(rows: list[dict[str, Any]], width: int = WIDTH) -> tuple[list[str], tuple[str, ...]]:
    text, omitted = fit(*table_of(rows, "table"), width, longest=90)
    return text.splitlines(), omitted


runs = st.lists(
    st.fixed_dictionaries(
        {
            "attempt": st.integers(1, 120),
            "experiment": st.sampled_from(NAMES),
            "repeat": st.integers(1, 200),
            "state": st.sampled_from(
                [PENDING, RUNNING, "CONFIGURING", "NOT_SUBMITTED", *sorted(ENDS)]
            ),
            "ran": st.sampled_from([None, "00:01:12", "123:00:59"]),
            "reason": st.sampled_from(REASONS),
        }
    ),
    min_size=1,
    max_size=40,
)


@given(runs)
def test_no_row_folds_at_80_columns(found: list[dict[str, Any]]) -> None:
    rows = [row(number, **one) for number, one in enumerate(found)]
    lines, _ = drawn(rows)
    assert max(map(len, lines)) <= WIDTH
    # else a reason, below its row
    own = [line for line in lines[2:] if not line.startswith("    ")]
    assert [line.split()[0] for line in own] == [one["id"] for one in rows]
    assert all(one["state"] in line for line, one in zip(own, rows, strict=True))
    below = [line for line in lines[2:] if line.startswith("    ")]
    whys = [str(one["reason"]) for one in rows if one["reason"]]
    shown = "".join("".join(below).split()) if below else "".join("".join(own).split())
    assert all("".join(why.split()) in shown for why in whys)


def test_a_narrow_list_names_the_columns_that_it_omits() -> None:
    rows = [
        row(1, attempt=2, reason="Resources"),
        row(2, experiment=NAMES[2], repeat=2, ran="00:01:12"),
    ]
    lines, omitted = drawn(rows)
    assert "PENDING #2" in lines[2]
    assert lines[3].strip() == "Resources"
    assert "00:01:12" in lines[4]
    assert omitted == ("Submitted",)
    lines, omitted = drawn(rows, 400)
    assert "PENDING #2" in lines[2]
    assert lines[2].endswith("Resources")
    assert omitted == ()


def test_a_list_of_waiting_runs_has_no_column_for_how_long_they_ran() -> None:
    lines, _ = drawn([row(1)], 400)
    assert "2025-11-21 19:03" in lines[2]
    assert "Ran" not in lines[0]


@pytest.mark.parametrize("width", [80, 400])
def test_runs_without_a_reason_have_no_column_for_it(width: int) -> None:
    lines, _ = drawn([row(1, state="COMPLETED"), row(2, state="COMPLETED")], width)
    assert "Reason" not in lines[0]
    assert len(lines) == 4


def test_parameters_are_shown_where_runs_differ() -> None:
    values: tuple[dict[str, str], ...] = (
        {"message_size": "1M", "algorithm": "ring"},
        {"message_size": "16M", "algorithm": "ring"},
        {},
    )
    lines, _ = drawn([row(number, parameters=own) for number, own in enumerate(values)], 400)
    assert "Parameters" in lines[0]
    assert [word for line in lines for word in line.split() if "=" in word] == [
        "message_size=1M",
        "message_size=16M",
    ]
    lines, _ = drawn([row(number, parameters=values[0]) for number in range(2)], 400)
    assert "Parameters" not in lines[0]


def test_data_has_every_column() -> None:
    columns, rows = table_of([row(1, attempt=2)], "json")
    assert [column.key for column in columns] == list(row(1))
    assert rows[0]["state"] == PENDING
