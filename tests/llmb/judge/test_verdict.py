# SPDX-License-Identifier: Apache-2.0
"""Tests of verdicts: each rule with its neighbours, what is comparable, pooling, and that order
changes nothing.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.contract.metrics import STEP_TIME, TRAINING_BY_NAME, Better, Bounds
from llmb.contract.settings import Settings
from llmb.contract.window import LAST, Window
from llmb.judge.compare import with_published
from llmb.judge.deviation import Deviations, Estimate, Variance
from llmb.judge.judge import judge
from llmb.judge.reference import References, same_window
from llmb.judge.value import (
    FAIL,
    INCONCLUSIVE,
    INVALID,
    NO_REFERENCE,
    PASS,
    SUSPICIOUS,
    WARN,
    Judgement,
    judge_values,
    ratio_in_digits,
)
from llmb.measure.facts import INCOMPLETE, ON_CPU, LogFacts
from llmb.measure.result import FAILED, RUNNING, SUCCESS, Result
from llmb.measure.statistics import spread
from llmb.plan.find_reference import find_reference
from llmb.plan.published import Figure
from llmb.show.comparison_table import rows_of
from llmb.show.results_table import table_of
from llmb_testing.results import result_of

Wording = Callable[..., None]
TIME = TRAINING_BY_NAME[STEP_TIME]

CONFIGURATION = Settings(
    framework="nemo",
    workload="w",
    model_size="15b",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    gbs=64,
    seq_length=4096,
    num_layers=32,
    tp=2,
    mbs=2,
)
FIGURE = Figure(
    release="25.05",
    source="a table",
    window=Window(11, 44),
    steps=50,
    workload="w",
    model_size="15b",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    gbs=64,
    seq_length=4096,
    num_layers=32,
    value=2.0,
)


def result(seconds: float | None = 2.0, **values: Any) -> Result:
    given: dict[str, Any] = {
        "experiment": "e",
        "path": "log-e.out",
        "status": SUCCESS,
        "window": Window(11, 44),
        "max_iteration": 49,
        "steps": 50,
        "time_mean_seconds": seconds,
        "configuration": CONFIGURATION,
    }
    return result_of({**given, **values})


def judged(
    *results: Result, figures: tuple[Figure, ...] = (FIGURE,), release: str | None = None
) -> list[Result]:
    return judge(results, figures, release)


def judge_ratios(
    ratios: list[float], reference: list[float] | None = None, deviation: float | None = None
) -> Judgement:
    """Judge step times that have these ratios to the published figure, or to ``reference``.

    ``deviation`` of single runs, as a fraction, if it is known well.
    """
    known = reference or [2.0]
    variance = None if deviation is None else Variance(deviation**2, 100)
    return judge_values(
        [spread(known).mean / ratio for ratio in ratios],
        known,
        TIME,
        variance and Estimate(variance, "12 configurations"),
        exact=reference is None,
    )


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (0.90, FAIL),
        (0.9499, FAIL),
        (0.95, WARN),
        (0.96, WARN),
        (0.9799, WARN),
        (0.98, PASS),
        (1.0, PASS),
        (1.05, PASS),
        (1.0501, SUSPICIOUS),
        (1.2, SUSPICIOUS),
    ],
)
def test_the_rules_and_their_borders(ratio: float, verdict: str) -> None:
    found = judge_ratios([ratio])
    assert (found.verdict, found.repeats, found.interval) == (verdict, 1, None)
    assert "n=1" in found.reason
    assert judge_ratios([ratio] * 3).verdict == verdict


def test_a_ratio_that_may_be_a_pass_and_a_fail_is_inconclusive(wording: Wording) -> None:
    """By hand: 1.984 · 2.5 % / √2 is 3.5 % on each side of 0.965."""
    found = judge_ratios([0.96, 0.97], deviation=0.025)
    assert found.verdict == INCONCLUSIVE
    assert found.interval == pytest.approx((0.9317, 0.9994), abs=0.0005)
    wording("results", found.reason)
    assert found.enough_repeats is not None
    # So it is: with that many repeats the interval is narrow enough, with one less it is not.
    enough = [0.96, 0.97] * found.enough_repeats
    assert judge_ratios(enough[: found.enough_repeats + 2], deviation=0.025).verdict == WARN
    assert judge_ratios(enough[: found.enough_repeats - 2], deviation=0.025).verdict == INCONCLUSIVE


@pytest.mark.parametrize(
    ("ratios", "verdict"), [([0.94, 0.945], FAIL), ([0.955, 0.965], WARN), ([0.985, 0.99], PASS)]
)
def test_a_narrow_interval_leaves_the_verdict_to_the_mean(
    ratios: list[float], verdict: str
) -> None:
    """The interval contains 0.95, or 0.98, but not both."""
    found = judge_ratios(ratios, deviation=0.01)
    assert found.interval is not None
    assert found.interval[0] < 0.95 < found.interval[1] or found.interval[0] < 0.98
    assert found.verdict == verdict


@pytest.mark.parametrize(("ratio", "verdict"), [(0.979, WARN), (1.06, SUSPICIOUS)])
def test_a_ratio_that_noise_alone_may_explain(ratio: float, verdict: str, wording: Wording) -> None:
    found = judge_ratios([ratio], deviation=0.0305 if ratio > 1 else 0.0125)
    assert found.verdict == verdict
    assert found.interval is not None
    assert found.interval[0] < 1 < found.interval[1]
    wording("results", found.reason)


@given(st.floats(0.9, 1.1), st.floats(0.001, 0.05), st.integers(1, 20), st.integers(1, 5))
def test_with_the_same_deviation_more_repeats_never_decide_less(
    ratio: float, deviation: float, repeats: int, references: int
) -> None:
    fewer, more = (
        judge_ratios([ratio] * count, [2.0] * references, deviation).verdict
        for count in (repeats, repeats + 1)
    )
    assert more == fewer or fewer == INCONCLUSIVE


def test_more_repeats_than_can_be_asked_for(wording: Wording) -> None:
    wording("results", judge_ratios([0.965], [2.0], deviation=0.05).reason)


def test_the_deviation_of_the_reference_counts_too() -> None:
    """By hand: 1.984 · 2 % · √(1 + 1/3) is 4.6 %, of a published figure 4.0 %."""
    beside_runs = judge_ratios([0.97], reference=[2.0, 2.0, 2.0], deviation=0.02).interval
    beside_figure = judge_ratios([0.97], deviation=0.02).interval
    assert beside_runs == pytest.approx((0.9265, 1.0155), abs=0.0005)
    assert beside_figure == pytest.approx((0.9322, 1.0092), abs=0.0005)


def test_repeats_are_one_measurement_of_all_their_steps() -> None:
    found = judge_values([2.0, 4.0], [2.4], TIME, exact=True)
    # all tokens by all time, whichever run had them
    assert (found.value, found.ratio) == (3.0, 0.8)


@given(
    st.lists(st.floats(0.001, 1000), min_size=2, max_size=6),
    st.lists(st.floats(0.001, 1000), min_size=1, max_size=6),
    st.sampled_from(["higher", "lower"]),
)
def test_the_other_way_round_everything_is_its_inverse(
    ours: list[float], theirs: list[float], better: Better
) -> None:
    estimate = Deviations([[ours, theirs]]).of(ours, theirs)
    metric = replace(TIME, better=better)
    there, back = (
        judge_values(*sides, metric, estimate) for sides in ((ours, theirs), (theirs, ours))
    )
    assert there.interval is not None
    assert back.interval is not None
    assert 0 < there.interval[0] <= there.ratio <= there.interval[1] < math.inf
    wide = (
        math.log(there.interval[1] / there.interval[0]),
        math.log(back.interval[1] / back.interval[0]),
    )
    assert wide[0] == pytest.approx(wide[1])
    assert math.isclose(there.ratio * back.ratio, 1, rel_tol=1e-3, abs_tol=1e-3)


def test_a_row_gets_reference_ratio_and_verdict() -> None:
    (got,) = judged(result(2.05))
    assert got.verdict.reference is not None
    own = got.verdict.reference
    assert (own.release, own.window, own.source) == ("25.05", "11-44", "a table")
    assert got.verdict.reference.step_time_s == 2.0
    assert got.verdict.ratio == pytest.approx(2.0 / 2.05)
    verdict = got.verdict
    assert (verdict.word, verdict.repeats, verdict.ratio_interval, verdict.same_window) == (
        WARN,
        1,
        None,
        True,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": "other"},
        {"model_size": "tiny"},
        {"gpu_type": "h200"},
        {"gpu_type": None},
        {"dtype": "fp8"},
        {"scale": 32},
        {"gbs": 128},
        {"seq_length": 8192},
        {"num_layers": 8},
    ],
)
def test_what_differs_is_not_compared_and_is_reported(
    changes: dict[str, Any], wording: Wording
) -> None:
    (got,) = judged(result(configuration=replace(CONFIGURATION, **changes)))
    assert (got.verdict.word, got.verdict.ratio, got.verdict.reference) == (
        NO_REFERENCE,
        None,
        None,
    )
    wording("results", str(got.verdict.reason))


def test_references_of_many_results_are_those_of_each_alone() -> None:
    figures = (
        FIGURE,
        replace(FIGURE, release="25.10", value=2.2),
        replace(FIGURE, scale=FIGURE.scale * 2),
    )
    settings: tuple[dict[str, Any], ...]
    settings = (
        {},
        {"tp": 4},
        {"dtype": "fp8"},
        {"scale": FIGURE.scale * 2},
        {"gpu_type": None},
        {"env": {"A": "1"}},
    )
    metrics = result().metrics
    unit = {name: replace(own, unit="ms") for name, own in metrics.measured.items()}
    measured = (
        metrics,
        replace(metrics, measured={}),
        replace(metrics, measured=unit),
        replace(metrics, headline="x"),
    )
    for release in (None, "25.05", "24.11"):
        references = References(figures, release)
        for one, own in [*product(settings, measured), *product(settings, measured)]:
            configuration = replace(CONFIGURATION, **one)
            alone = find_reference(configuration, figures, release, own.measured, own.headline)
            figures_found, missing = references.find(configuration, own)
            assert (next(iter(figures_found), None), missing) == alone


@pytest.mark.parametrize("changes", [{"tp": 4}, {"mbs": 1}, {"env": {"A": "1"}}, {"image": "i:2"}])
def test_other_settings_are_compared(changes: dict[str, Any]) -> None:
    (got,) = judged(result(configuration=replace(CONFIGURATION, **changes)))
    assert got.verdict.word == PASS


def test_the_newest_release_counts_unless_another_is_named(wording: Wording) -> None:
    older = replace(FIGURE, release="25.04", value=1.9)
    newest = replace(FIGURE, release="25.10", value=2.2)
    for figures in [(older, FIGURE, newest), (newest, FIGURE, older)]:
        assert [find_reference(CONFIGURATION, figures, name)[0] for name in (None, "25.04")] == [
            newest,
            older,
        ]
    (got,) = judged(result(), figures=(older, FIGURE), release="24.11")
    assert (got.verdict.word, got.verdict.reference) == (NO_REFERENCE, None)
    wording("results", str(got.verdict.reason))


@pytest.mark.parametrize(
    ("window", "steps", "of_figure", "same"),
    [
        (Window(11, 44), 50, Window(11, 44), True),
        (Window(35, 44), 50, Window(11, 44), False),
        (Window(49, 49), 50, LAST, True),
        (Window(99, 99), 100, LAST, True),
        (Window(49, 49), 100, LAST, False),
        (Window(22, 88), 100, Window(11, 44), False),
        (None, 50, LAST, False),
    ],
)
def test_whether_the_window_is_the_same(
    window: Window | None, steps: int, of_figure: Window, same: bool
) -> None:
    assert same_window(window, steps, replace(FIGURE, window=of_figure)) is same


def test_another_window_is_compared_and_marked(wording: Wording) -> None:
    (got,) = judged(result(), figures=(replace(FIGURE, window=LAST),))
    assert (got.verdict.word, got.verdict.same_window) == (PASS, False)
    wording("results", str(got.verdict.reason))


def test_without_anything_published_there_is_no_reference(wording: Wording) -> None:
    (got,) = judged(result(), figures=())
    assert got.verdict.word == NO_REFERENCE
    wording("results", str(got.verdict.reason))
    (got,) = judged(result(configuration=None))
    assert got.verdict.word == NO_REFERENCE


@pytest.mark.parametrize(
    "reason", ["the loss is not a number", "ran over TCP: NCCL shown 'Using network Socket'"]
)
def test_what_keeps_a_measurement_from_counting(reason: str) -> None:
    for figures in [(FIGURE,), ()]:
        (got,) = judged(result(invalid=(reason,)), figures=figures)
        assert (got.verdict.word, got.verdict.reason, got.verdict.ratio) == (INVALID, reason, None)


@pytest.mark.parametrize("changes", [{}, {"loads": True}, {"scale": 32}])
def test_what_does_not_count_is_invalid_whatever_it_compares_with(
    changes: dict[str, Any], wording: Wording
) -> None:
    profiled = replace(CONFIGURATION, profile=True, **changes)
    for figures in [(FIGURE,), ()]:
        (got,) = judged(result(configuration=profiled), figures=figures)
        assert (got.verdict.word, got.verdict.ratio) == (INVALID, None)
        wording("results", str(got.verdict.reason))
        (got,) = judged(
            result(configuration=profiled, invalid=("the loss is not a number",)), figures=figures
        )


def test_a_run_on_a_cpu_is_not_judged_by_the_figures_of_gpus() -> None:
    """`tiny` and the microbenchmarks run wherever torch does, also where it finds no GPU."""
    on_cpu = LogFacts(device="CPU")
    got, other = judged(result(20.0, log=on_cpu), result(2.0))
    assert (got.verdict.word, got.verdict.reason, got.verdict.ratio) == (INVALID, ON_CPU, None)
    assert (other.verdict.word, other.verdict.repeats) == (PASS, 1)
    (got,) = judged(result(20.0, log=on_cpu), figures=())
    assert got.verdict.word == NO_REFERENCE
    own = replace(CONFIGURATION, gpu_type="cpu")
    (got,) = judged(
        result(2.0, log=on_cpu, configuration=own), figures=(replace(FIGURE, gpu_type="cpu"),)
    )
    assert got.verdict.word == PASS


def test_a_window_that_is_not_complete(wording: Wording) -> None:
    (got,) = judged(result(None, status=FAILED, invalid=(INCOMPLETE,)))
    assert got.verdict.word == INVALID
    wording("results", str(got.verdict.reason))


@pytest.mark.parametrize(
    "unfinished",
    [
        result(None, status=FAILED),
        result(None, status=FAILED, max_iteration=20),
        result(None, status=FAILED, max_iteration=None),
        result(2.0, status=FAILED),
        result(None, status=RUNNING, max_iteration=20),
    ],
)
def test_a_run_that_failed_or_has_not_ended_has_no_verdict(unfinished: Result) -> None:
    assert judged(unfinished) == [unfinished]


def test_repeats_are_pooled_and_each_row_carries_the_verdict() -> None:
    got = judged(result(2.0, run="a"), result(2.3, run="b"), result(2.02, run="c"))
    assert [row.identity.run for row in got] == ["a", "b", "c"]
    assert [row.verdict.ratio for row in got] == [
        pytest.approx(2 / seconds) for seconds in (2.0, 2.3, 2.02)
    ]
    assert {row.verdict.word for row in got} == {INCONCLUSIVE}
    assert {row.verdict.repeats for row in got} == {3}
    assert len({row.verdict.ratio_interval for row in got}) == 1


@pytest.mark.parametrize(
    "other",
    [
        result(2.3, configuration=replace(CONFIGURATION, tp=4)),
        result(2.3, configuration=replace(CONFIGURATION, env={"A": "1"})),
        result(2.3, window=Window(35, 44)),
        result(2.3, steps=100, max_iteration=99),
        result(2.3, status=FAILED),
        result(2.3, status=RUNNING),
        result(2.3, invalid=("the loss is not a number",)),
        result(2.3, configuration=replace(CONFIGURATION, profile=True)),
    ],
)
def test_what_is_no_repeat_is_not_pooled(other: Result) -> None:
    first, _ = judged(result(2.0), other)
    assert (first.verdict.word, first.verdict.repeats) == (PASS, 1)


def test_logs_whose_names_differ_are_repeats_of_what_they_are_of() -> None:
    got = judged(result(2.0, experiment="e_1"), result(2.02, experiment="e_2"))
    assert {row.verdict.repeats for row in got} == {2}


CASES = st.builds(
    result,
    st.floats(1.7, 2.3),
    status=st.sampled_from([SUCCESS, SUCCESS, SUCCESS, FAILED, RUNNING]),
    invalid=st.sampled_from([(), (), ("the loss is not a number",)]),
    configuration=st.sampled_from(
        [
            CONFIGURATION,
            *(
                replace(CONFIGURATION, **own)
                for own in ({"tp": 4}, {"scale": 32}, {"env": {"A": "1"}})
            ),
        ]
    ),
)
FIGURES = (
    FIGURE,
    replace(FIGURE, release="25.04", value=1.9),
    replace(FIGURE, scale=32, value=2.1),
)


@given(st.lists(CASES, max_size=12), st.randoms(use_true_random=False))
def test_the_same_data_get_the_same_verdicts_in_any_order(
    results: list[Result], chance: random.Random
) -> None:
    order = list(range(len(results)))
    chance.shuffle(order)
    figures = list(FIGURES)
    chance.shuffle(figures)
    straight, mixed = judge(results, FIGURES), judge([results[i] for i in order], figures)
    assert [straight[i] for i in order] == mixed


@pytest.mark.parametrize(
    ("ratio", "bounds", "text"),
    [
        (0.94996, None, "0.94996"),
        (0.97996, None, "0.97996"),
        (0.9496, None, "0.9496"),
        (1.05004, None, "1.05004"),
        (0.95, None, "0.950"),
        (0.9632, None, "0.963"),
        (0.89996, Bounds(fail_below=0.9, warn_below=0.94), "0.89996"),
        (0.94996, Bounds(fail_below=0.9, warn_below=0.94), "0.950"),
        (0.95 - 1e-12, None, "0.950"),  # which is no FAIL
    ],
)
def test_a_ratio_is_shown_on_its_side_of_each_limit(
    ratio: float, bounds: Bounds | None, text: str
) -> None:
    assert ratio_in_digits(ratio, bounds) == text


def test_the_ratio_of_a_table_is_on_the_side_of_its_verdict() -> None:
    results = judged(result(2.0 / 0.94996))
    assert results[0].verdict.word == FAIL
    (row,) = table_of(results)[1]
    assert float(row["ratio"]) < 0.95
    (compared_row,) = rows_of(with_published(results))
    assert float(compared_row["ratio"]) < 0.95
