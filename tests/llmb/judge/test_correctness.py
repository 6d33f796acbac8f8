# SPDX-License-Identifier: Apache-2.0
"""Loss and memory beside speed: a fast run with a wrong loss or other memory is not a PASS."""

import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.samples import Samples, Step
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.judge.compare import Comparison, is_bad, judged_against, with_measured
from llmb.judge.correctness import curve_difference
from llmb.judge.value import FAIL, PASS, SUSPICIOUS
from llmb.measure.columns import is_by_other_metric
from llmb.measure.facts import LogFacts
from llmb.measure.losses import MOST, LossCurve, loss_curve
from llmb.measure.result import LOSS, PEAK_MEMORY, SUCCESS, Result
from llmb_testing.results import result_of

Wording = Callable[..., None]

SETTINGS = Settings(
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
FALLING = tuple(12.0 * 0.98**step for step in range(50))
GIB = 2.0**30


def curve(values: Sequence[float]) -> LossCurve:
    return LossCurve(iterations=tuple(range(len(values))), values=tuple(values))


def run(
    name: str,
    losses: Sequence[float] | None = FALLING,
    *,
    seconds: float = 2.0,
    memory: float | None = 40 * GIB,
    steps: int = 50,
    **change: Any,
) -> Result:
    return result_of(
        {
            "experiment": "e",
            "path": f"log-{name}.out",
            "status": SUCCESS,
            "window": Window(11, 44),
            "max_iteration": steps - 1,
            "steps": steps,
            "time_mean_seconds": seconds,
            "run": name,
            "configuration": replace(SETTINGS, **change),
            "losses": None if losses is None else curve(losses),
            "log": LogFacts(peak_memory_bytes=memory),
        }
    )


def compared(ours: Result | list[Result], theirs: Result | list[Result]) -> Comparison:
    results, reference = (side if isinstance(side, list) else [side] for side in (ours, theirs))
    (row,) = with_measured(results, reference, "baseline april")
    return row


def scaled(factor: float, first: int = 0) -> tuple[float, ...]:
    return tuple(loss * (factor if step >= first else 1) for step, loss in enumerate(FALLING))


def test_equal_losses_leave_the_verdict_on_the_speed(wording: Wording) -> None:
    row = compared(run("a", scaled(1.001)), run("b"))
    assert (row.verdict, row.loss_not_compared) == (PASS, None)
    assert {name: verdict.word for name, verdict in row.metrics.items()} == {
        "step_time": PASS,
        LOSS: PASS,
        PEAK_MEMORY: PASS,
    }
    wording("compare", f"{row.metrics[LOSS].reason}; {row.metrics[PEAK_MEMORY].reason}")


@pytest.mark.parametrize(
    "losses",
    [
        scaled(1.031, first=49),  # the last step alone
        scaled(0.969, first=49),  # a loss that is too low is as wrong
        (*(loss * 1.11 for loss in FALLING[:6]), *FALLING[6:]),  # 6 of 50 steps by 11 %
        tuple(12.0 for _ in FALLING[:-1]) + FALLING[-1:],  # it does not learn
    ],
)
def test_a_fast_run_with_a_wrong_loss_is_no_pass(
    losses: tuple[float, ...], wording: Wording
) -> None:
    row = compared(run("a", losses, seconds=1.95), run("b"))
    assert (row.verdict, row.metrics["step_time"].word) == (FAIL, PASS)
    assert row.ratio == pytest.approx(2 / 1.95)  # the speed's
    assert is_bad(row)
    wording("compare", str(row.verdict_reason))


@pytest.mark.parametrize(
    "losses",
    [
        scaled(1.029, first=49),
        (*(loss * 1.12 for loss in FALLING[:5]), *FALLING[5:]),  # 5 of 50 steps may be outliers
    ],
)
def test_differences_within_the_limits_pass(losses: tuple[float, ...]) -> None:
    assert compared(run("a", losses), run("b")).verdict == PASS


def test_a_tolerance_depends_on_the_loss() -> None:
    """10 % above a loss of 2, 5 % above 0.5, 2 % below."""
    reference = {0: 2.1, 1: 1.9, 2: 0.6, 3: 0.4}
    inside = curve([2.1 * 1.09, 1.9 * 1.04, 0.6 * 0.96, 0.4 * 1.01])
    outside = curve([2.1 * 1.11, 1.9 * 1.06, 0.6 * 0.94, 0.4 * 1.03])
    difference = curve_difference(inside, reference)
    assert difference is not None
    assert difference.outliers == ()
    difference = curve_difference(outside, reference)
    assert difference is not None
    assert (difference.outliers, difference.at) == ((0, 1, 2, 3), 0)
    assert difference.final == pytest.approx(0.03)


def test_the_correlation_is_pearsons() -> None:
    losses = [loss + (step % 5) / 3 for step, loss in enumerate(FALLING)]
    difference = curve_difference(curve(losses), dict(enumerate(FALLING)))
    assert difference is not None
    assert difference.correlation == pytest.approx(statistics.correlation(losses, FALLING))


def test_noise_of_a_flat_curve_has_no_correlation() -> None:
    noise = [12.0 + (-1) ** step / 100 for step in range(50)]
    row = compared(run("a", noise), run("b", [12.0 - (-1) ** step / 100 for step in range(50)]))
    assert row.verdict == PASS


@pytest.mark.parametrize(
    ("memory", "verdict"),
    [(41.9, PASS), (42.1, FAIL), (38.1, PASS), (37.9, SUSPICIOUS), (None, PASS)],
)
def test_memory_within_5_percent(memory: float | None, verdict: str, wording: Wording) -> None:
    row = compared(run("a", memory=memory and memory * GIB), run("b"))
    assert row.verdict == verdict
    assert (PEAK_MEMORY in row.metrics) == (memory is not None)
    if verdict != PASS:
        wording("compare", str(row.verdict_reason))


@pytest.mark.parametrize("memory", [42.001, 37.999])
def test_memory_beyond_its_limit_is_not_shown_as_the_limit(memory: float) -> None:
    reason = compared(run("a", memory=memory * GIB), run("b")).verdict_reason or ""
    shown = re.search(r"([\d.]+) % (?:above|below)", reason)
    assert shown is not None
    assert float(shown[1]) > 5


def test_memory_of_other_settings_is_not_compared() -> None:
    row = compared(run("a", memory=60 * GIB, dotted={"model.recompute": True}), run("b"))
    assert (row.verdict, PEAK_MEMORY in row.metrics) == (PASS, False)


def test_a_changed_learning_rate_is_compared() -> None:
    row = compared(run("a", scaled(1.2, first=20), dotted={"optim.lr": 1e-3}), run("b"))
    assert row.verdict == FAIL


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (run("a", scaled(2), tp=4), run("b")),
        (run("a", scaled(2), dotted={"data.random_seed": 5}), run("b")),
        (run("a", scaled(2), tokenizer="hub"), run("b")),
        (run("a", scaled(2), steps=100), run("b")),
        (run("a", None), run("b")),
        (run("a"), run("b", None)),
    ],
)
def test_another_seed_or_layout_and_a_missing_loss_are_one_note(
    ours: Result, theirs: Result, wording: Wording
) -> None:
    row = compared(ours, theirs)
    assert (row.verdict, LOSS in row.metrics) == (PASS, False)
    assert row.verdict_reason is not None
    assert "loss" not in row.verdict_reason
    wording("compare", str(row.loss_not_compared))


def test_a_benchmark_that_trains_nothing_has_no_note() -> None:
    settings: dict[str, Any] = {"gbs": None, "seq_length": None, "num_layers": None}
    row = compared(run("a", None, **settings), run("b", None, **settings))
    assert (row.verdict, row.loss_not_compared) == (PASS, None)


def test_the_worst_of_repeats_decides(wording: Wording) -> None:
    row = compared([run("a"), run("c", scaled(1.5))], [run("b"), run("d")])
    assert row.verdict == FAIL
    wording("compare", str(row.verdict_reason))


def test_the_order_of_equal_repeats_changes_no_reason() -> None:
    repeats = [run(name) for name in ("c", "a", "e")]
    rows = [compared(list(order), [run("b")]) for order in itertools.permutations(repeats)]
    assert len({str(row.metrics["loss"].reason) for row in rows}) == 1


def test_a_judged_result_has_the_reason() -> None:
    (judged,) = judged_against([run("a", scaled(1.5))], [run("b")], "baseline april")
    assert judged.verdict.word == FAIL
    assert judged.verdict.ratio == 1
    assert is_by_other_metric(judged)  # so tables and JSON say why


def test_long_curves_keep_common_points() -> None:
    """A run of 10,000 steps and its first half have points in common, and the last step."""
    steps = tuple(Step(iteration=n, step_time=1.0, loss=12.0 - n / 1e4) for n in range(10_000))
    long, half = (loss_curve(Samples(steps=steps[:count], first=1)) for count in (10_000, 5_000))
    assert long is not None
    assert half is not None
    assert len(long.iterations) <= MOST + 1
    assert (long.iterations[0], long.iterations[-1], half.iterations[-1]) == (1, 10_000, 5_000)
    assert len(set(long.iterations) & set(half.iterations)) > 50
    assert loss_curve(Samples(steps=(Step(iteration=0, step_time=1.0, loss=float("nan")),))) is None


def test_steps_without_a_loss_move_no_other_point_of_a_long_curve() -> None:
    steps = [Step(iteration=n, step_time=1.0, loss=12.0 - n / 1e3) for n in range(1000)]
    complete = loss_curve(Samples(steps=tuple(steps), first=1))
    for skipped in (1, 5, 500):
        fewer = [*steps]
        fewer[skipped] = Step(iteration=skipped, step_time=1.0, fault="skipped")
        curve = loss_curve(Samples(steps=tuple(fewer), first=1))
        assert complete is not None
        assert curve is not None
        common = set(curve.iterations) & set(complete.iterations)
        assert len(common) >= len(complete.iterations) - 1


@pytest.mark.parametrize(
    "iterations", [range(9, 20_000, 10), range(0, 20_000, 10), [0, *range(9, 20_000, 10)]]
)
def test_a_long_curve_of_every_tenth_iteration_is_as_short(iterations: Iterable[int]) -> None:
    steps = tuple(Step(iteration=n, step_time=1.0, loss=2.0, span=10) for n in iterations)
    curve = loss_curve(Samples(steps=steps))
    assert curve is not None
    assert MOST / 2 <= len(curve.iterations) <= MOST + 2


def test_a_curve_of_one_iteration_is_kept() -> None:
    steps = tuple(Step(iteration=8, step_time=1.0, loss=2.0) for _ in range(MOST + 1))
    assert loss_curve(Samples(steps=steps)) is not None


def test_curves_with_few_iterations_in_common_are_not_compared() -> None:
    reference = dict.fromkeys(range(9, 1000, 10), 2.0)
    other = LossCurve(iterations=(*range(0, 999, 4), 999), values=(2.0,) * 251)
    assert curve_difference(other, reference) is None
    assert curve_difference(curve([2.0, 2.0, 2.0]), {0: 2.0, 1: 2.0, 2: 2.0}) is not None
    assert curve_difference(curve([2.0] * 50), {0: 2.0, 1: 2.0, 2: 2.0}) is not None
    assert curve_difference(curve([2.0] * 3), dict.fromkeys(range(50), 2.0)) is not None
    assert curve_difference(curve([]), {0: 2.0}) is None


def test_the_ratios_of_loss_and_memory_are_in_a_row() -> None:
    row = compared(run("a", scaled(1.2, 25), memory=50 * GIB), run("b"))
    assert row.metrics["loss"].ratio == pytest.approx(1 / 1.2, rel=0.01)
    assert row.metrics["peak_memory"].ratio is not None
    assert row.metrics["step_time"].ratio == row.metrics["step_time"].pooled_ratio
