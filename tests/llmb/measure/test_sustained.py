# SPDX-License-Identifier: Apache-2.0
"""Sustained trainings: drift, share of time in steps, restarts and heat, and the verdict on them."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.samples import MeasuredTemperature, Node, Samples, Step, Telemetry
from llmb.contract.window import Window
from llmb.judge import sustained as sustained_verdicts
from llmb.judge.sustained import in_words, with_sustained
from llmb.judge.value import FAIL, INCONCLUSIVE, PASS, WARN
from llmb.measure.log_reader import read_log
from llmb.measure.result import (
    CANCELLED,
    FAILED,
    RUNNING,
    SUCCESS,
    Identity,
    Metrics,
    Result,
    SustainedVerdict,
)
from llmb.measure.sustained import FEWEST_STEPS, Sustained, sustained_of
from llmb.measure.telemetry import NodeSample, NodeSamples

Wording = Callable[..., None]
LINE = 100  # bytes


def training(times: Sequence[float], *, attempts: int = 1, begins: int = 0) -> Samples:
    return Samples(
        steps=tuple(Step(iteration=n, step_time=seconds) for n, seconds in enumerate(times)),
        last=len(times) - 1,
        attempts=attempts,
        offsets=tuple((number, begins + number * LINE) for number in range(len(times))),
    )


def sampled(ends: Sequence[float], *, begins: int = 0, start: float = 0.0) -> list[NodeSamples]:
    """The samples of every second of a log whose line n was written at ``ends[n]``."""
    rows, lines = [], 0
    for second in range(int(start), int(ends[-1]) + 4):
        while lines < len(ends) and ends[lines] <= second:
            lines += 1
        size = begins + lines * LINE if lines else begins
        rows.append(NodeSample(time=float(second), log_bytes=float(size), columns={}))
    return [NodeSamples(host="n1", gpus=8, is_first=True, samples=tuple(rows))]


def held_out(
    times: Sequence[float], series: Sequence[NodeSamples] = (), nodes: Sequence[Node] = ()
) -> Sustained:
    sustained = sustained_of(training(times), Window(0, 10), series, nodes)
    assert sustained is not None
    return sustained


def judge(sustained: Sustained) -> SustainedVerdict:
    verdict = sustained_verdicts.judge(sustained)
    assert verdict is not None
    return verdict


def judged_run(sustained: Sustained, status: str = SUCCESS) -> Result:
    run = Result(
        identity=Identity(experiment="e", path="e.out"),
        status=status,
        metrics=Metrics(sustained=sustained),
    )
    return with_sustained(run)


def accumulated(times: Sequence[float], start: float = 0.0, pauses: float = 0.0) -> list[float]:
    ends, now = [], start
    for seconds in times:
        now += seconds + pauses
        ends.append(now)
    return ends


def noisy(slope: float, steps: int = 400, seed: int = 1) -> list[float]:
    source = random.Random(seed)
    return [2.0 * (1 + slope * n / (steps - 1)) + source.gauss(0, 0.02) for n in range(steps)]


@pytest.mark.parametrize("slope", [-0.04, 0.0, 0.01, 0.04, 0.08])
def test_the_drift_is_that_of_a_regression_over_all_steps(slope: float) -> None:
    times = noisy(slope)
    sustained = held_out(times)
    line = statistics.linear_regression(range(len(times)), times)
    expected = line.slope * (len(times) - 1) / statistics.median(times)
    assert sustained.drift == pytest.approx(expected, abs=0.004)
    assert sustained.drift_interval is not None
    low, high = sustained.drift_interval
    assert low < slope < high


def test_the_interval_of_no_drift_contains_0_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(300):
        interval = held_out(noisy(0.0, 200, seed)).drift_interval
        assert interval is not None
        inside += interval[0] <= 0 <= interval[1]
    assert 0.90 <= inside / 300 <= 0.99


@pytest.mark.parametrize(
    ("slope", "verdict"), [(-0.03, PASS), (0.0, PASS), (0.03, WARN), (0.08, FAIL)]
)
def test_a_run_that_gets_slower_is_named(slope: float, verdict: str, wording: Wording) -> None:
    judged = judge(held_out(noisy(slope)))
    assert judged.verdict == verdict
    wording("explain", judged.reason)


@pytest.mark.parametrize("count", [100, 119, 139, 400])
def test_no_step_at_the_end_is_omitted(count: int) -> None:
    slow = count // 6
    judged = judge(held_out([2.0] * (count - slow) + [2.6] * slow))
    assert judged.verdict == FAIL


def test_a_single_slow_step_is_no_drift() -> None:
    times = [2.0] * 400
    times[390] = 60.0
    assert judge(held_out(times)).verdict == PASS


def test_time_between_steps_is_lost() -> None:
    """Each of 300 steps of 2 s is followed by 0.3 s in none: 13 % of the time."""
    times = [2.0] * 300
    sustained = held_out(times, sampled(accumulated(times, 50, pauses=0.3), start=0))
    assert sustained.in_steps_s == 600
    assert sustained.elapsed_s == pytest.approx(690, abs=2)
    assert sustained.between_steps_s == pytest.approx(90, abs=2)
    assert sustained.goodput == pytest.approx(600 / 690, abs=0.003)
    assert (sustained.restarts, sustained.lost_to_restarts_s) == (0, 0)
    assert judge(sustained).verdict == FAIL


def test_the_start_of_the_program_is_not_lost_without_a_restart() -> None:
    times = [2.0] * 300
    sustained = held_out(times, sampled(accumulated(times, 500), start=0))
    assert sustained.goodput == pytest.approx(1, abs=0.004)
    assert judge(sustained).verdict == PASS


def test_a_restart_loses_everything_before_the_last_attempt(wording: Wording) -> None:
    """200 s of a first attempt, and a start of 40 s again."""
    times = [2.0] * 300
    samples = training(times, attempts=2, begins=5000)
    series = sampled(accumulated(times, 240), begins=5000, start=0)
    sustained = sustained_of(samples, Window(0, 10), series, ())
    assert sustained is not None
    assert sustained.restarts == 1
    assert sustained.lost_to_restarts_s == pytest.approx(240, abs=2)
    assert sustained.goodput == pytest.approx(600 / 840, abs=0.003)
    judged = judge(sustained)
    assert judged.verdict == FAIL
    wording("explain", judged.reason)


def test_steps_before_the_checkpoint_of_a_restart_are_not_lost() -> None:
    """202 steps, a pause of 30 s, and again from step 200 on: 2 of 1000 steps are lost."""
    attempts = [range(202), range(200, 1000)]
    now, ends = 30.0, []
    for attempt, pause in zip(attempts, (0.0, 30.0), strict=True):
        now += pause
        for _ in attempt:
            now += 2.0
            ends.append(now)
    samples = Samples(
        steps=tuple(Step(iteration=n, step_time=2.0) for n in attempts[1]),
        resumed=tuple(Step(iteration=n, step_time=2.0) for n in range(200)),
        last=999,
        attempts=2,
        offsets=tuple((n, (202 + place) * LINE) for place, n in enumerate(attempts[1])),
    )
    sustained = sustained_of(samples, Window(220, 879), sampled(ends), ())
    assert sustained is not None
    assert (sustained.steps, sustained.in_steps_s) == (1000, 2000)
    assert sustained.elapsed_s == pytest.approx(now, abs=2)
    assert sustained.lost_to_restarts_s == pytest.approx(30 + 30 + 2 * 2.0, abs=2)
    assert sustained.goodput == pytest.approx(2000 / now, abs=0.001)
    assert judge(sustained).verdict == PASS


LINES = {
    "NeMo": "Training epoch 0, iteration {n}/99 | train_step_timing in s: {seconds}\n",
    "Megatron": " iteration {m}/ 100 | elapsed time per iteration (ms): {ms} | lm loss: 9.0 |\n",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("every", [1, 5])
def test_the_log_shows_which_steps_an_attempt_continues_from(
    line: str, every: int, tmp_path: Path
) -> None:
    """A time tells the attempt of a step: the final training has each step once, of the last."""
    attempts = [range(60), range(40, 70), range(50, 55), range(50, 100)]
    log, trained = "", dict[int, float]()
    for number, attempt in enumerate(attempts, start=1):
        trained = {n: seconds for n, seconds in trained.items() if n < attempt[0]}
        for n in attempt:
            trained[n] = float(number)
            if (n + 1) % every == 0:
                log += line.format(n=n, m=n + 1, seconds=number, ms=1000.0 * number)
    path = tmp_path / "x.log"
    path.write_text(log + "`Trainer.fit` stopped: `max_steps=100` reached.\n")
    samples = read_log(path)
    steps = [*samples.resumed, *samples.steps]
    assert sum(step.span for step in steps) == 100
    assert sum(step.span * step.step_time for step in steps) == sum(trained.values())
    assert [step.iteration for step in samples.resumed] == [*range(every - 1, 50, every)]


def test_a_training_that_begins_anew_continues_from_none(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    numbers = (*range(50), *range(100))
    path.write_text("".join(LINES["NeMo"].format(n=n, seconds=1.5) for n in numbers))
    samples = read_log(path)
    assert (samples.attempts, samples.resumed) == (2, ())


def test_a_short_run_has_an_uncertain_share() -> None:
    times = [0.1] * 100
    sustained = held_out(times, sampled(accumulated(times, 5, pauses=0.02)))
    assert judge(sustained).verdict == INCONCLUSIVE


def test_heat_is_named_with_its_node(wording: Wording) -> None:
    hot = Telemetry(temperature_c=MeasuredTemperature(max=91), throttle={"hw_thermal": 0.4})
    cool = Telemetry(temperature_c=MeasuredTemperature(max=70), throttle={"sw_power_cap": 0.9})
    nodes = (Node(host="n1", telemetry=cool), Node(host="n2", telemetry=hot))
    sustained = held_out([2.0] * 400, nodes=nodes)
    assert sustained.hottest_c == 91
    judged = judge(sustained)
    assert judged.verdict == WARN
    wording("explain", judged.reason)
    assert judge(held_out([2.0] * 400, nodes=nodes[:1])).verdict == PASS


def test_a_short_training_and_one_without_times_have_none() -> None:
    times = [2.0] * FEWEST_STEPS
    assert sustained_of(training(times), None, (), ()) is not None
    assert sustained_of(training(times[1:]), None, (), ()) is None
    assert sustained_of(training([*times, float("nan")]), None, (), ()) is None


def test_what_is_unknown_is_reported() -> None:
    sustained = Sustained(steps=1000, in_steps_s=600.0)
    assert [line.partition(":")[0] for line in in_words(judged_run(sustained))[1:]] == [
        "drift unknown",
        "share of time in steps unknown",
        "temperature unknown",
    ]
    assert "restarts: 2" in in_words(judged_run(replace(sustained, restarts=2)))
    known = replace(
        sustained,
        restarts=2,
        drift=0.0,
        drift_interval=(0.0, 0.0),
        goodput=0.6,
        elapsed_s=1000.0,
        between_steps_s=300.0,
        lost_to_restarts_s=100.0,
        hottest_c=71.0,
    )
    assert not [
        line for line in in_words(judged_run(known)) if "unknown" in line or line == "restarts: 2"
    ]


def test_a_run_of_which_nothing_is_known_has_no_verdict() -> None:
    run = judged_run(Sustained(steps=1000, in_steps_s=600.0))
    assert run.verdict.sustained is None
    assert in_words(run)[0] == "no verdict over 1000 steps"


@pytest.mark.parametrize("status", [CANCELLED, FAILED, RUNNING])
def test_a_run_that_was_cut_off_did_not_hold_out(status: str) -> None:
    sustained = held_out(noisy(0.0))
    assert judge(sustained).verdict == PASS
    run = judged_run(sustained, status)
    assert run.verdict.sustained is None
    lines = in_words(run)
    assert lines[0] == "no verdict over 400 steps"
    assert "from begin to end" in lines[1]


@pytest.mark.parametrize(
    ("drift", "verdict"),
    [(0.0199, PASS), (0.0201, WARN), (0.0499, WARN), (0.0501, FAIL), (-0.3, PASS)],
)
def test_the_bounds_of_the_drift_are_2_and_5_percent(drift: float, verdict: str) -> None:
    known = replace(held_out([2.0] * 200), drift=drift, drift_interval=(drift - 1e-5, drift + 1e-5))
    judged = judge(known)
    assert judged.verdict == verdict
    shown = f"{100 * abs(drift):.1f}"
    assert f"({shown} to {shown} %)" in judged.reason
    assert shown_percent(judged.reason) == pytest.approx(100 * abs(drift), abs=0.05)


def shown_percent(reason: str) -> float:
    return float(reason.split()[0])


@pytest.mark.parametrize(("drift", "limit"), [(0.0504, 5), (0.05001, 5), (0.0204, 2)])
def test_a_drift_above_its_limit_is_not_shown_as_the_limit(drift: float, limit: float) -> None:
    known = replace(held_out([2.0] * 200), drift=drift, drift_interval=(drift - 1e-5, drift + 1e-5))
    assert shown_percent(judge(known).reason) > limit


@pytest.mark.parametrize(("goodput", "limit"), [(0.9497, 95), (0.8996, 90)])
def test_a_share_below_its_limit_is_not_shown_as_the_limit(goodput: float, limit: float) -> None:
    known = Sustained(
        steps=1000, in_steps_s=1000 * goodput, goodput=goodput, elapsed_s=1000, between_steps_s=50
    )
    assert shown_percent(judge(known).reason) < limit


def test_steps_that_never_change_have_no_drift(wording: Wording) -> None:
    reason = judge(held_out([2.0] * 400)).reason
    wording("explain", reason)
    assert "-" not in reason


def test_cool_gpus_alone_are_no_pass() -> None:
    cool = Sustained(steps=1000, in_steps_s=600.0, hottest_c=71.0)
    assert sustained_verdicts.judge(cool) is None
    lines = in_words(judged_run(cool))
    assert lines[0] == "no verdict over 1000 steps"
    assert any("71" in line for line in lines[1:])
    assert judge(replace(cool, slowed_nodes=("n1: heat",))).verdict == WARN


def interval_lines(lines: int, slope: float, seed: int) -> Samples:
    """A training of 200 steps that logs so many lines, each for the steps before it."""
    source, every = random.Random(seed), 200 // lines
    places = range(every - 1, every * lines, every)
    steps = [
        Step(iteration=n, step_time=2.0 * (1 + slope * n / 200) + source.gauss(0, 0.02), span=every)
        for n in places
    ]
    return Samples(steps=tuple(steps), last=steps[-1].iteration)


@pytest.mark.parametrize("lines", [5, 8, 16, 40])
def test_few_lines_have_a_drift_with_a_sound_interval(lines: int) -> None:
    inside = 0
    for seed in range(300):
        sustained = sustained_of(interval_lines(lines, 0.0, seed), Window(0, 10), (), ())
        assert sustained is not None
        assert sustained.drift_interval is not None
        low, high = sustained.drift_interval
        inside += low <= 0 <= high
    assert 0.90 <= inside / 300 <= 0.99


@pytest.mark.parametrize("lines", [5, 16, 40])
def test_a_training_with_few_lines_that_gets_much_slower_fails(lines: int) -> None:
    sustained = sustained_of(interval_lines(lines, 0.5, 1), Window(0, 10), (), ())
    assert sustained is not None
    assert judge(sustained).verdict == FAIL


def test_the_drift_of_four_lines_is_unknown() -> None:
    sustained = sustained_of(interval_lines(4, 0.5, 1), Window(0, 10), (), ())
    assert sustained is not None
    assert (sustained.drift, sustained.drift_interval) == (None, None)


def test_a_single_slow_line_of_few_is_no_failure() -> None:
    steps = [Step(iteration=n, step_time=2.0, span=10) for n in range(9, 200, 10)]
    steps[-1] = replace(steps[-1], step_time=6.0)
    sustained = sustained_of(Samples(steps=tuple(steps), last=199), Window(0, 10), (), ())
    assert sustained is not None
    assert judge(sustained).verdict == PASS


def test_a_batch_that_grows_is_no_drift() -> None:
    times = [2.0] * 150 + [4.0] * 150
    samples = replace(training(times), batches=((0, 64), (150, 128)))
    sustained = sustained_of(samples, Window(66, 263), (), ())
    assert sustained is not None
    assert sustained.drift == 0


def test_slow_steps_before_the_window_are_no_drift_after_a_change_of_the_batch() -> None:
    times = [2.0] * 10 + [6.0] * 50 + [4.0] * 240
    samples = replace(training(times), batches=((0, 64), (10, 128)))
    sustained = sustained_of(samples, Window(66, 263), (), ())
    assert sustained is not None
    assert sustained.drift == 0


def test_a_training_that_continues_from_steps_without_times_has_none() -> None:
    resumed = (Step(iteration=0, step_time=float("nan")),)
    samples = training([2.0] * FEWEST_STEPS)
    assert sustained_of(replace(samples, resumed=resumed), None, (), ()) is None


@pytest.mark.parametrize("drift", [1e-5, -1e-5])
def test_a_drift_of_less_than_is_shown_has_no_direction(drift: float) -> None:
    known = replace(held_out([2.0] * 200), drift=drift, drift_interval=(drift, drift))
    assert not {"slower", "faster"} & {*judge(known).reason.split()}
