# SPDX-License-Identifier: Apache-2.0
"""Tests that what many runs come to is found in a few lines, however many they are."""

from collections.abc import Callable

from llmb.judge.value import NO_REFERENCE, PASS
from llmb.measure.failure_causes import Cause
from llmb.measure.result import CANCELLED, FAILED, RUNNING, SUCCESS, Identity, Result, Verdict
from llmb.show.report.digest import LEAST, digest
from llmb.show.results_table import legend

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
