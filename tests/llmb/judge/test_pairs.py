# SPDX-License-Identifier: Apache-2.0
"""Tests of runs in pairs: what a pair shares cancels out, and incomplete pairs do not count."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from llmb.contract.record import PairMember
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.judge.compare import Comparison, with_measured, with_pairs
from llmb.judge.value import FAIL, INCONCLUSIVE, PASS
from llmb.measure.result import FAILED, SUCCESS, Result
from llmb_testing.results import result_of

# The cluster gets slower from pair to pair, by up to 12 %.
DRIFT = (2.0, 2.09, 2.16, 2.24)


def result(run: str, seconds: float = 2.0, algorithm: str = "") -> Result:
    configuration = Settings(
        framework="nemo",
        workload="w",
        model_size="15b",
        dtype="bf16",
        gpu_type="h100",
        scale=16,
        gbs=64,
        seq_length=4096,
        num_layers=32,
        env={"NCCL_ALGO": algorithm},
    )
    return result_of(
        {
            **{"experiment": "e", "path": f"log-{run}.out", "status": SUCCESS, "run": run},
            **{"window": Window(11, 44), "max_iteration": 49, "steps": 50},
            **{"time_mean_seconds": seconds, "configuration": configuration},
        }
    )


def side(name: str, seconds: Sequence[float], value: str) -> list[Result]:
    members = [
        PairMember(number=number, side=name, setting="NCCL_ALGO", value=value)
        for number in range(1, len(seconds) + 1)
    ]
    runs = [
        result(f"{name}{member.number}", time, value)
        for member, time in zip(members, seconds, strict=True)
    ]
    return [
        replace(run, identity=replace(run.identity, pair=member, session="s"))
        for run, member in zip(runs, members, strict=True)
    ]


def compared(results: Sequence[Result]) -> Comparison:
    answer = with_pairs(results)
    assert answer is not None
    name, (row,) = answer
    assert name == "A, NCCL_ALGO=Ring"
    return row


@pytest.mark.parametrize(("slower", "verdict"), [(1.08, FAIL), (1.0, PASS)])
def test_a_drift_that_both_runs_of_a_pair_share_cancels_out(slower: float, verdict: str) -> None:
    tree = [seconds * slower * (1 + number % 2 / 500) for number, seconds in enumerate(DRIFT)]
    both = [*side("A", DRIFT, "Ring"), *side("B", tree, "Tree")]
    row = compared(both)
    assert (row.verdict, row.repeats) == (verdict, 4)
    assert row.ratio == pytest.approx(1 / slower, rel=0.003)
    assert row.ratio_interval is not None
    assert row.ratio_interval[1] - row.ratio_interval[0] < 0.01
    assert any("NCCL_ALGO" in difference for difference in row.differences)
    assert row.verdict_reason is not None
    assert row.verdict_reason.startswith("in pairs ")
    # Without the pairs, the drift hides what the setting costs.
    unpaired = [replace(run, identity=replace(run.identity, pair=None)) for run in both]
    (apart,) = with_measured(unpaired[4:], unpaired[:4], "A")
    assert apart.ratio_interval is not None
    assert apart.ratio_interval[1] - apart.ratio_interval[0] > 0.1
    assert verdict != FAIL or apart.verdict == INCONCLUSIVE


def test_a_pair_with_a_failed_run_does_not_count() -> None:
    ring, tree = side("A", DRIFT, "Ring"), side("B", [1.08 * time for time in DRIFT], "Tree")
    ring[3] = replace(ring[3], status=FAILED)
    answer = with_pairs([*ring, *tree])
    assert answer is not None
    rows = {row.verdict: row for row in answer[1]}
    assert rows[FAIL].repeats == 3


def test_one_side_of_two_submissions_is_no_pair() -> None:
    (row,) = with_measured(side("A", DRIFT, "Ring"), side("A", DRIFT[::-1], "Ring"), "before")
    assert row.repeats == 4
    assert row.verdict_reason is not None
    assert not row.verdict_reason.startswith("in pairs")
    assert row.ratio == pytest.approx(1.0)


def test_runs_without_pairs_and_of_two_submissions_are_not_paired() -> None:
    ring, tree = side("A", DRIFT, "Ring"), side("B", DRIFT, "Tree")
    assert with_pairs(ring) is None
    assert with_pairs([result("a"), result("b")]) is None
    other = [replace(run, identity=replace(run.identity, session="other")) for run in tree]
    assert with_pairs([*ring, *other]) is None


def in_session(runs: Sequence[Result], session: str) -> list[Result]:
    return [replace(run, identity=replace(run.identity, session=session)) for run in runs]


def test_runs_of_other_sessions_are_no_partners_in_any_order() -> None:
    before = [
        in_session(side("A", [seconds] * 2, "Ring"), name)
        for name, seconds in (("s1", 2.0), ("s2", 2.2), ("s3", 2.4))
    ]
    newest = in_session(side("B", [2.2, 2.2], "Tree"), "s4")
    for sessions in (before, before[::-1]):
        (row,) = with_measured(newest, [run for runs in sessions for run in runs], "accepted")
        assert row.ratio == pytest.approx(1.0, abs=0.005)
        assert "in pairs" not in (row.verdict_reason or "")


def test_two_submissions_of_a_session_are_compared_with_all_their_runs() -> None:
    # both begin with pair 1, and only the first has a slower side B
    first = [*side("A", [2.0, 2.0], "Ring"), *side("B", [2.2, 2.2], "Tree")]
    second = [*side("A", [2.0, 2.0], "Ring"), *side("B", [2.0, 2.0], "Tree")]
    for runs in ([*first, *second], [*second, *first]):
        row = compared(runs)
        assert row.repeats == 4
        assert row.ratio == pytest.approx(2.0 / 2.1, abs=0.002)


def test_pairs_of_several_sessions_are_paired_within_each() -> None:
    # the second session is slower by a fifth, on both sides
    a = [*side("A", [2.0, 2.01], "Ring"), *in_session(side("A", [2.4, 2.41], "Ring"), "t")]
    b = [*side("B", [2.2, 2.21], "Tree"), *in_session(side("B", [2.64, 2.65], "Tree"), "t")]
    rows = with_measured(b, a, "A")
    assert [row.repeats for row in rows] == [2, 2]  # side B is judged by session
    for row in rows:
        assert row.ratio == pytest.approx(2.0 / 2.2, abs=0.002)
        assert (row.verdict_reason or "").startswith("in pairs ")


def test_a_side_with_a_run_outside_of_pairs_is_compared_as_a_whole() -> None:
    ring, tree = side("A", [2.0, 2.0], "Ring"), side("B", [2.0, 2.0], "Tree")
    single = replace(result("c", 2.2, "Tree"), identity=replace(tree[0].identity, pair=None))
    (row,) = with_measured([*tree, single], ring, "A")
    assert (row.repeats, "in pairs" in (row.verdict_reason or "")) == (3, False)
    assert row.ratio == pytest.approx(2.0 / 2.0667, abs=0.003)
