# SPDX-License-Identifier: Apache-2.0
"""Baselines on disk: accepted once, overwritten on request, and nothing outside their folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.window import Window
from llmb.errors import UsageError
from llmb.judge.compare import without_accepted
from llmb.judge.export import accept_baseline, baselines, outcome_of, read_baseline
from llmb.judge.value import FAIL, INCONCLUSIVE, INVALID, NO_REFERENCE, PASS, WARN
from llmb.measure.result import SUCCESS, Result
from llmb_testing.results import result_of


@pytest.fixture
def result() -> Result:
    return result_of(
        {
            "experiment": "w_15b",
            "path": "/x/a",
            "run": "a",
            "status": SUCCESS,
            "window": Window(11, 44),
            "max_iteration": 49,
            "steps": 50,
            "time_mean_seconds": 2.0,
        }
    )


def test_an_accepted_baseline_stays_unless_it_is_replaced(tmp_path: Path, result: Result) -> None:
    accept_baseline(tmp_path, "april", [result], 1.7e9, replace=False)
    assert len(read_baseline(tmp_path, "april").results) == 1
    with pytest.raises(UsageError) as raised:
        accept_baseline(tmp_path, "april", [result, result], 1.8e9, replace=False)
    assert (raised.value.code, raised.value.value) == ("baseline-exists", "april")
    baseline = read_baseline(tmp_path, "april")
    assert (len(baseline.results), (baseline.accepted or "")[:4]) == (1, "2023")
    twice = [result, replace(result, identity=replace(result.identity, path="/x/b"))]
    accept_baseline(tmp_path, "april", twice, 1.8e9, replace=True)
    assert len(read_baseline(tmp_path, "april").results) == 2
    assert baselines(tmp_path) == ["april"]


def test_the_nearest_name_is_suggested_for_an_unknown_baseline(
    tmp_path: Path, result: Result
) -> None:
    with pytest.raises(UsageError) as raised:
        read_baseline(tmp_path, "april")
    assert raised.value.code == "baseline-unknown"
    accept_baseline(tmp_path, "april", [result], 1.7e9, replace=False)
    with pytest.raises(UsageError) as raised:
        read_baseline(tmp_path, "aprli")
    assert raised.value.code == "baseline-unknown"
    assert "april" in str(raised.value.hint)


@pytest.mark.parametrize("name", ["../april", "a/b", ".april", "", "-april", "apríl"])
def test_a_name_that_leaves_the_folder_is_refused(
    tmp_path: Path, result: Result, name: str
) -> None:
    with pytest.raises(UsageError) as raised:
        accept_baseline(tmp_path, name, [result], 1.7e9, replace=True)
    assert raised.value.code == "name-invalid"
    assert [*tmp_path.rglob("*.json")] == []


def test_a_run_of_the_baseline_is_not_compared_with_itself(result: Result) -> None:
    new = replace(result, identity=replace(result.identity, run="b"))
    assert without_accepted([result, new], [result], "baseline april") == [new]
    unnamed = replace(result, identity=replace(result.identity, run=None))
    assert without_accepted([unnamed, new], [unnamed], "baseline april") == [unnamed, new]
    assert without_accepted([], [result], "baseline april") == []
    with pytest.raises(UsageError) as raised:
        without_accepted([result], [result], "baseline april")
    assert raised.value.code == "baseline-same-runs"


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (PASS, "passed"),
        (WARN, "passed"),
        (None, "passed"),
        (FAIL, "failure"),
        (INVALID, "failure"),
        (INCONCLUSIVE, "skipped"),
        (NO_REFERENCE, "skipped"),
    ],
)
def test_a_verdict_has_an_outcome_in_junit(verdict: str | None, outcome: str) -> None:
    assert outcome_of(verdict) == outcome
