# SPDX-License-Identifier: Apache-2.0
"""Tests that what many runs come to is found in a few lines, however many they are."""

from collections.abc import Callable

from llmb.contract.metrics import Bounds, Measured
from llmb.judge.value import FAIL, INVALID, NO_REFERENCE, PASS
from llmb.measure.failure_causes import Cause
from llmb.measure.result import (
    CANCELLED,
    FAILED,
    LOSS,
    RUNNING,
    SUCCESS,
    Identity,
    Metrics,
    MetricVerdict,
    ReferenceValue,
    Result,
    Verdict,
)
from llmb.show.report.digest import LEAST, digest, remarkable
from llmb.show.results_table import legend, table_of

Wording = Callable[..., None]


def named(number: int, run: str | None = None) -> Identity:
    return Identity(experiment="e", path=f"log-{number}.out", run=run)


def failed(number: int, kind: str | None = None) -> Result:
    cause = None if kind is None else Cause(kind=kind, line="it broke")
    return Result(identity=named(number, f"f{number:03}"), status=FAILED, cause=cause)


def test_a_few_runs_need_no_digest() -> None:
    assert digest([failed(number) for number in range(LEAST - 1)]) == []
    assert digest([]) == []


def test_runs_and_causes_beyond_a_few_are_counted(wording: Wording) -> None:
    found = [failed(number, "crash") for number in range(20)]
    found += [failed(100 + number, f"kind {number:02}") for number in range(12)]
    lines = digest(found)
    for line in (lines[0], lines[1], lines[9]):
        wording("results", line)
    assert len(lines) == 11


def test_what_has_not_ended_or_was_cancelled_is_no_failure(wording: Wording) -> None:
    def one(number: int, status: str, state: str | None = None) -> Result:
        return Result(identity=named(number), status=status, state=state)

    found = [one(number, SUCCESS) for number in range(10)] + [one(90, RUNNING), one(91, CANCELLED)]
    for several in (found, [*found, one(92, FAILED)]):
        wording("results", "\n".join(digest(several)))


def test_that_nothing_can_be_compared_is_left_to_the_tables_legend(wording: Wording) -> None:
    def one(number: int, verdict: str) -> Result:
        return Result(identity=named(number), status=SUCCESS, verdict=Verdict(word=verdict))

    found = [one(number, NO_REFERENCE) for number in range(19)]
    assert len(legend(found)) == 1
    for several in (found, [*found, one(19, PASS)]):
        wording("results", "\n".join(digest(several)))


def test_a_value_beyond_its_limit_has_no_ratio() -> None:
    reason = "errors 5.000 is above 3"
    verdict = Verdict(word=FAIL, reason=reason)
    (line,) = remarkable([Result(identity=named(1, "r1"), status=SUCCESS, verdict=verdict)])
    assert reason in line
    assert "0.000" not in line.replace(reason, "")


def bad_run(ratio: float, speed: str, *, loss: str = PASS, bounds: Bounds | None = None) -> Result:
    """A run that is FAIL by its bandwidth or by its loss."""
    reference = ReferenceValue(
        release="april",
        window="",
        step_time_s=None,
        source="april",
        metric="bw",
        value=400.0,
        unit="GB/s",
    )
    verdict = Verdict(
        word=FAIL,
        reason="the reason",
        reference=reference,
        ratio=ratio,
        pooled_ratio=ratio,
        metrics={
            "bw": MetricVerdict(word=speed, reason="", repeats=1),
            LOSS: MetricVerdict(word=loss, reason="the loss", repeats=1),
        },
    )
    measured = {"bw": Measured(mean=400.0 * ratio, std=None, n=1, bounds=bounds)}
    metrics = Metrics(measured=measured, headline="bw")
    return Result(identity=named(1, "r1"), status=SUCCESS, metrics=metrics, verdict=verdict)


def bad(ratio: float, speed: str, *, loss: str = PASS) -> str:
    """The line of such a run."""
    (line,) = remarkable([bad_run(ratio, speed, loss=loss)])
    return line


def test_a_bad_run_has_its_ratio_unless_its_loss_alone_is_wrong() -> None:
    slow, wrong, both = bad(0.9, FAIL), bad(1.01, PASS, loss=FAIL), bad(0.9, FAIL, loss=FAIL)
    assert ["0.900" in line for line in (slow, wrong, both)] == [True, False, True]
    assert ["the loss" in line for line in (slow, wrong, both)] == [False, True, True]
    assert "1.01" not in wrong


def test_a_ratio_is_on_its_side_of_the_limits_of_its_metric() -> None:
    run = bad_run(0.89996, FAIL, bounds=Bounds(fail_below=0.9, warn_below=0.94))
    (line,) = remarkable([run])
    (row,) = table_of([run])[1]
    assert "0.89996" in line
    assert row["ratio"].rstrip("*") == "0.89996"


def test_an_invalid_run_has_its_reason() -> None:
    verdict = Verdict(word=INVALID, reason="over TCP", pooled_ratio=0.9)
    (line,) = remarkable([Result(identity=named(1, "r1"), status=SUCCESS, verdict=verdict)])
    assert "over TCP" in line
