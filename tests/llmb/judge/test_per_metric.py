# SPDX-License-Identifier: Apache-2.0
"""Every metric with a reference or limits is judged, and the worst decides."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.metrics import TRAINING_BY_NAME, Better, Measured, MetricSpec
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload, read_workload
from llmb.contract.window import Window
from llmb.errors import KeyFaultError, LlmbError
from llmb.judge.compare import judged_against, to_data, with_measured
from llmb.judge.judge import judge
from llmb.judge.per_metric import only_by
from llmb.judge.reference import pool
from llmb.judge.steps import step_notes
from llmb.judge.value import FAIL, INVALID, NO_REFERENCE, PASS, WARN
from llmb.judge.verdict_causes import with_causes
from llmb.measure.columns import from_json, report
from llmb.measure.facts import LogFacts
from llmb.measure.reader import reader_of
from llmb.measure.result import SUCCESS, Result
from llmb.measure.statistics import Statistics
from llmb.plan.published import Figure
from llmb.show.results_table import legend

BUSBW = MetricSpec(name="busbw", unit="GB/s")
LATENCY = MetricSpec(name="latency", unit="us", better="lower")
FIGURE = Figure(
    release="1.0",
    source="a table",
    window=Window(4, 17),
    steps=20,
    workload="microbench",
    model_size="all_reduce",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    metric=BUSBW,
    value=480.0,
)
FIGURES = (FIGURE, replace(FIGURE, metric=LATENCY, value=36.0))
OWN = Settings(
    framework="nemo",
    workload="microbench",
    model_size="all_reduce",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
)


def result(run: str = "a", *specs: tuple[MetricSpec, float]) -> Result:
    measured = {spec.name: spec.measured(value, 0.0, 14) for spec, value in specs}
    values: dict[str, Any] = {
        "experiment": "all_reduce",
        "path": f"{run}.out",
        "run": run,
        "status": SUCCESS,
        "window": Window(4, 17),
        "max_iteration": 19,
        "steps": 20,
        "configuration": OWN,
        "metrics": measured,
        "headline": specs[0][0].name,
    }
    return from_json(values)


def test_a_metric_beside_the_headline_decides_if_it_is_worse() -> None:
    """An all-reduce of 64K that takes 3.3 times as long, beside a bandwidth as published."""
    (got,) = judge([result("a", (BUSBW, 481.0), (LATENCY, 118.8))], FIGURES)
    assert got.verdict.word == FAIL
    assert got.verdict.ratio == pytest.approx(36 / 118.8)
    assert got.verdict.reference is not None
    assert got.verdict.reference.metric == "latency"
    assert "compared by latency" in (got.verdict.reason or "")
    assert {name: one.word for name, one in got.verdict.metrics.items()} == {
        "busbw": PASS,
        "latency": FAIL,
    }


def test_a_headline_that_fails_is_named_first() -> None:
    (got,) = judge([result("a", (BUSBW, 400.0), (LATENCY, 118.8))], FIGURES)
    assert got.verdict.reference is not None
    assert got.verdict.reference.metric == "busbw"
    assert (got.verdict.reason or "").endswith("also FAIL by latency")


def test_a_headline_that_is_not_the_worst_has_its_verdict_named() -> None:
    """It is what the table would show: a bandwidth that is too good beside a slow latency."""
    (got,) = judge([result("a", (BUSBW, 530.0), (LATENCY, 118.8))], FIGURES)
    assert got.verdict.word == FAIL
    assert (got.verdict.reason or "").endswith("compared by latency; SUSPICIOUS by busbw")
    (got,) = judge([result("a", (BUSBW, 481.0), (LATENCY, 118.8))], FIGURES)
    assert "by busbw" not in (got.verdict.reason or "")


def test_json_has_the_verdict_of_each_metric() -> None:
    judged = judge([result("a", (BUSBW, 481.0), (LATENCY, 118.8))], FIGURES)
    (row,) = report(judged)["results"]
    latency = row["metrics"]["latency"]
    assert (latency["verdict"], latency["reference"]["value"]) == (FAIL, 36.0)
    assert latency["ratio"] == pytest.approx(36 / 118.8)
    (row,) = report(judge([result("a", (BUSBW, 481.0))], ()))["results"]
    assert row["metrics"]["busbw"]["verdict"] is None


def test_runs_are_compared_by_each_metric_that_both_measured() -> None:
    ours, theirs = (
        result(run, (BUSBW, 480.0), (LATENCY, latency)) for run, latency in (("a", 50), ("b", 36))
    )
    (row,) = with_measured([ours], [theirs], "B")
    assert (row.verdict, row.metric) == (FAIL, "latency")
    (data,) = to_data([row], "B")["comparisons"]
    assert {name: one["verdict"] for name, one in data["metrics"].items()} == {
        "busbw": PASS,
        "latency": FAIL,
    }


@pytest.mark.parametrize(("value", "word"), [(340.0, FAIL), (360.0, PASS), (480.0, PASS)])
def test_a_minimum_is_judged_without_a_reference(value: float, word: str) -> None:
    promised = replace(BUSBW, minimum=360.0)
    (got,) = judge([result("a", (promised, value))], ())
    assert (got.verdict.word, got.verdict.ratio) == (word, None)
    if word == FAIL:
        assert got.verdict.reason == "busbw 340.0 GB/s is below the minimum 360.0 GB/s"


def test_a_broken_minimum_decides_beside_a_good_ratio() -> None:
    promised = replace(BUSBW, minimum=500.0)
    (got,) = judge([result("a", (promised, 481.0))], FIGURES)
    assert got.verdict.word == FAIL
    assert got.verdict.metrics["busbw"].ratio == pytest.approx(481 / 480)


@pytest.mark.parametrize(("errors", "word"), [(0.0, PASS), (2.0, FAIL)])
def test_zero_is_a_value(errors: float, word: str) -> None:
    count = MetricSpec(name="errors", better="lower", maximum=0.0)
    (got,) = judge([result("a", (BUSBW, 480.0), (count, errors))], FIGURES)
    assert (got.verdict.word, got.verdict.metrics["errors"].word) == (word, word)
    (alone,) = judge([result("a", (count, errors))], ())
    assert alone.verdict.word == word


def test_zero_without_limits_has_no_ratio() -> None:
    (got,) = judge([result("a", (BUSBW, 0.0))], FIGURES)
    assert got.verdict.word == INVALID


def test_a_metric_has_bounds_of_its_own() -> None:
    loose = replace(LATENCY, fail_below=0.5, warn_below=0.8)
    (got,) = judge([result("a", (BUSBW, 480.0), (loose, 50.0))], FIGURES)
    assert got.verdict.metrics["latency"].word == WARN
    assert "below 0.8" in got.verdict.metrics["latency"].reason


def test_a_metric_that_is_not_judged_has_no_verdict() -> None:
    (got,) = judge([result("a", (BUSBW, 480.0), (replace(LATENCY, judged=False), 99.0))], FIGURES)
    assert (got.verdict.word, list(got.verdict.metrics)) == (PASS, ["busbw"])


def test_bounds_stay_with_the_run() -> None:
    """A result is read back from its own JSON, in which the limits are."""
    spec = replace(BUSBW, minimum=360.0, fail_below=0.9)
    kept = spec.measured(1.0, 0.0, 1)
    assert kept.spec("busbw") == spec
    assert BUSBW.measured(1.0, 0.0, 1) == Measured(mean=1.0, std=0.0, n=1, unit="GB/s")


WORKLOAD = """
key: net
title: Network
default_size: small
default_dtype: bf16
judge: [busbw]
metrics:
  - {name: busbw, unit: GB/s, minimum: 360, fail_below: 0.9}
  - {name: latency, unit: us, better: lower}
sizes:
  small: {rows: [{gpu: any, dtype: bf16, scales: 1}]}
"""


def workload(folder: Path, text: str = WORKLOAD) -> Workload:
    path = folder / "workload.yaml"
    path.write_text(text)
    return read_workload(path)


def test_a_workload_says_which_metrics_are_judged_and_by_what(tmp_path: Path) -> None:
    busbw, latency = reader_of(workload(tmp_path), "small", None).metrics
    assert (busbw.minimum, busbw.fail_below, busbw.judged) == (360, 0.9, True)
    assert latency.judged is False


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("judge: [busbw]", "judge: [busbandwidth]", "metric-unknown"),
        ("fail_below: 0.9", "fail_below: 0.99", "bounds-invalid"),
        ("fail_below: 0.9", "maximum: 300", "bounds-invalid"),
        ("{rows: [{gpu: any, dtype: bf16, scales: 1}]}", "{rows: }", "value-type"),
        ("minimum: 360", "minimum: .nan", "number-not-finite"),
        ("fail_below: 0.9", "maximum: .inf", "number-not-finite"),
        ("scales: 1", "scales: 1, memory_gb: .nan", "number-not-finite"),
        ("scales: 1", "scales: 1, memory_gb: -4", "value-not-allowed"),
    ],
)
def test_wrong_bounds_are_faults(tmp_path: Path, before: str, after: str, code: str) -> None:
    with pytest.raises(LlmbError) as error:
        workload(tmp_path, WORKLOAD.replace(before, after))
    assert code in str([getattr(fault, "code", "") for fault in getattr(error.value, "faults", [])])


@pytest.mark.parametrize("limit", ["minimum", "maximum"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_made_by_code_has_finite_limits(limit: str, value: float) -> None:
    limits: dict[str, Any] = {limit: value}
    with pytest.raises(KeyFaultError) as caught:
        MetricSpec(name="bw", **limits)
    assert (caught.value.code, caught.value.path) == ("number-not-finite", (limit,))


def test_no_reference_stays_no_reference() -> None:
    (got,) = judge([result("a", (BUSBW, 480.0))], ())
    assert got.verdict.word == NO_REFERENCE


def test_a_table_says_how_many_warnings_chance_predicts() -> None:
    """Six configurations whose repeats deviate by 2 %, one of them at 0.97."""
    runs, figures = [], []
    for number in range(6):
        figures.append(replace(FIGURE, scale=8 * 2**number))
        for repeat, factor in enumerate((0.98, 1.0, 1.02)):
            value = 480.0 * factor * (0.975 if number == 5 else 1.0)
            run = result(f"r{number}{repeat}", (BUSBW, value))
            own = replace(OWN, scale=8 * 2**number)
            runs.append(replace(run, identity=replace(run.identity, configuration=own)))
    judged = judge(runs, figures)
    assert {one.verdict.word for one in judged} == {PASS, WARN}
    (line,) = (line for line in legend(judged) if "chance" in line)
    # by hand: the error is 2 % / √3 = 1.15 %, with a 95 % interval by Student's t for 12 degrees
    # of 2.52 %; below 0.98 are 6 · Φ(-2.02 / 1.285) = 0.35
    assert "0.3 WARN among 6 configurations" in line or "0.4 WARN among 6 configurations" in line
    assert not [line for line in legend(judge(runs[:3], figures)) if "chance" in line]


def test_one_metric_alone_may_be_judged() -> None:
    both = result("a", (BUSBW, 481.0), (LATENCY, 118.8))
    (busbw,) = judge([only_by(both, "busbw")], FIGURES)
    assert (busbw.verdict.word, list(busbw.verdict.metrics)) == (PASS, ["busbw"])
    (latency,) = judge([only_by(both, "latency")], FIGURES)
    assert (latency.verdict.word, latency.metrics.headline) == (FAIL, "latency")
    assert list(latency.verdict.metrics) == ["latency"]


def trained(run: str, seconds: float, count: int = 40) -> Result:
    """A training whose single slow step is an outlier: its steps deviate by 9 %, the others by 0.1."""
    metrics = {"step_time": seconds, "mfu": 1 / seconds, "tokens_per_second": 1e6 / seconds}
    measured = {
        name: TRAINING_BY_NAME[name].measured(value, 0.09 * value, 40)
        for name, value in metrics.items()
    }
    steps = Statistics(
        count=count,
        median=seconds,
        p95=seconds,
        least=seconds,
        most=1.6 * seconds,
        interval=None,
        outliers=(12,),
        drift=0.0,
        deviation=0.001,
    )
    one = result(run, (TRAINING_BY_NAME["step_time"], seconds))
    metrics_of = replace(one.metrics, measured=measured, statistics=steps)
    return replace(one, metrics=metrics_of, log=LogFacts())


def test_what_follows_from_the_step_time_deviates_as_it_does() -> None:
    """Without its outlier by ``--metric`` too: equal numbers were PASS and INCONCLUSIVE."""
    (got,) = judged_against([trained("a", 1.01)], [trained("b", 1.0)], "b")
    assert got.verdict.word == PASS
    for name in ("mfu", "tokens_per_second"):
        ours, theirs = (only_by(trained(*run), name) for run in (("a", 1.01), ("b", 1.0)))
        (alone,) = judged_against([ours], [theirs], "b")
        assert alone.verdict.ratio_interval == pytest.approx(got.verdict.ratio_interval)
    both = result("c", (BUSBW, 480.0), (TRAINING_BY_NAME["step_time"], 1.0)).metrics
    assert [both.share_statistics(name) for name in ("busbw", "step_time")] == [True, False]


def test_one_line_for_all_steps_has_no_verdict_by_any_metric() -> None:
    figures = [replace(FIGURE, metric=TRAINING_BY_NAME["mfu"], value=1.0)]
    run = trained("a", 1.0, count=1)
    (got,) = judge([only_by(run, "mfu")], figures)
    assert "one line" in (got.verdict.reason or "")
    (got,) = judge([only_by(trained("a", 1.0), "mfu")], figures)
    assert got.verdict.word == PASS


def test_the_notes_on_steps_are_about_their_times_beside_another_metric() -> None:
    """The worst of the step times is the longest, not the lowest."""
    (note,) = step_notes(only_by(trained("a", 1.0), "mfu"))
    assert note.endswith("far from the median of 1 s: iteration 12; the worst is 1.6 s")


def test_a_metric_of_zero_fails_beside_a_figure_unless_lower_is_better() -> None:
    (got,) = judge([result("a", (BUSBW, 481.0), (LATENCY, 0.0))], FIGURES)
    assert got.verdict.metrics["latency"].word == PASS
    (got,) = judge([result("a", (LATENCY, 36.0), (BUSBW, 0.0))], FIGURES)
    assert (got.verdict.word, got.verdict.metrics["busbw"].word) == (FAIL, FAIL)
    assert got.verdict.metrics["busbw"].reference is not None


def test_repeats_of_which_one_measured_zero_have_no_ratio() -> None:
    latencies = {"a": 36.0, "b": 0.0}
    runs = [result(run, (BUSBW, 480.0), (LATENCY, value)) for run, value in latencies.items()]
    for run in judge(runs, FIGURES):
        by_latency = run.verdict.metrics["latency"]
        assert (by_latency.word, by_latency.ratio, by_latency.repeats) == (PASS, None, 2)
        assert by_latency.reason.endswith("without a ratio, as latency is 0 in 1 of 2 runs")
    runs = [result(run, (LATENCY, 36.0), (BUSBW, value)) for run, value in latencies.items()]
    for run in judge(runs, FIGURES):
        assert run.verdict.word == FAIL
        assert run.verdict.metrics["busbw"].reason == "busbw is 0 in 1 of 2 runs"


def test_zeros_are_not_omitted_from_a_mean_in_any_order() -> None:
    errors = MetricSpec(name="errors", unit="", better="lower")

    def night(*counts: float) -> list[Result]:
        return [result(str(count), (BUSBW, 480.0), (errors, count)) for count in counts]

    for counts in ((0.0, 0.0, 0.0, 3.0), (3.0, 0.0, 0.0, 0.0)):  # 0.75 is better than 1
        better = judged_against(night(*counts), night(1.0, 1.0, 1.0, 1.0), "nightly")
        assert {run.verdict.metrics["errors"].word for run in better} == {PASS}
        worse = judged_against(night(1.0, 1.0, 1.0, 1.0), night(*counts), "nightly")
        assert ["errors" in run.verdict.metrics for run in worse] == [False] * 4
    partly = [*night(1.0, 1.0), result("r", (BUSBW, 480.0))]  # a run that did not count errors
    (judged, *_) = judged_against(night(2.0, 2.0), partly, "nightly")
    assert judged.verdict.metrics["errors"].pooled_ratio == 0.5
    limited = replace(errors, maximum=3.0)
    (alone, *_) = judge([result(run, (limited, float(run))) for run in "01"], ())
    assert alone.verdict.metrics["errors"].reason == "errors 0.5 is within its limits"
    one, none = [result("a", (limited, 1.0))], [result("b", (limited, 0.0))]
    (judged,) = judged_against(one, none, "nightly")
    assert judged.verdict.metrics["errors"].reason == "errors 1.000 is within its limits"
    (judged, *_) = judged_against(night(0.0, 0.0), night(1.0), "nightly")
    assert judged.verdict.metrics["errors"].reason == "errors 0 is within its limits"


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_zero_on_either_side_has_no_ratio_to_runs(better: Better) -> None:
    """Limits judge a night without an error, which has no ratio."""
    errors = MetricSpec(name="errors", unit="", better=better, minimum=0.0, maximum=3.0)
    runs = [result(run, (errors, value)) for run, value in (("a", 2.0), ("b", 0.0))]
    against_one = judged_against(runs, [result("r", (errors, 1.0))], "nightly")
    assert [run.verdict.ratio for run in against_one] == [None, None]
    against_none = judged_against(runs, [result("r", (errors, 0.0))], "nightly")
    assert [run.verdict.ratio for run in against_none] == [None, None]


@pytest.mark.parametrize(
    ("mean", "median", "outliers", "is_cause"),
    [
        (1.20, 1.01, (12,), True),
        (1.20, 1.01, (), False),  # slow throughout
        (1.20, 1.19, (12,), False),  # slow by the median as well
        (1.00, 1.00, (12,), False),  # not slow
        (0.90, 0.89, (12,), False),  # too fast, which slow steps do not explain
        (1.20, 0.00, (12,), False),  # without a ratio by the median
    ],
)
def test_few_slow_steps_are_the_cause_if_the_others_are_not_slow(
    mean: float, median: float, outliers: tuple[int, ...], *, is_cause: bool
) -> None:
    """A checkpoint of another job on the file system took 19 seconds of one step."""
    run = trained("a", mean)
    assert run.metrics.statistics is not None
    steps = replace(run.metrics.statistics, median=median, outliers=outliers, most=19.0)
    run = replace(run, metrics=replace(run.metrics, statistics=steps))
    published = [replace(FIGURE, metric=TRAINING_BY_NAME["step_time"], value=1.0)]
    (got,) = with_causes(judge([run], published))
    causes = [cause for cause in got.verdict.causes if cause.condition == "steps"]
    assert bool(causes) == is_cause
    if is_cause:
        assert (got.verdict.reason or "").startswith(
            "1 of 40 steps is far from the median of 1.01 s: iteration 12; the worst is 19 s (by the"
            " median, the ratio would be 0.990); "
        )
    two = [run, replace(run, identity=replace(run.identity, run="b"))]
    (first, _) = with_causes(judge(two, published))
    assert ("1 of 40 steps of run a is far" in (first.verdict.reason or "")) == is_cause
    unknown = replace(two[1], metrics=replace(run.metrics, statistics=None))
    for judged in with_causes(judge([unknown, run], published)):
        assert "steps" not in [cause.condition for cause in judged.verdict.causes]


def test_steps_are_no_cause_of_a_verdict_by_another_metric() -> None:
    figures = [replace(FIGURE, metric=BUSBW, value=1.0)]
    run = trained("a", 1.2)
    measured = {"busbw": BUSBW.measured(0.8, None, 1), **run.metrics.measured}
    run = replace(run, metrics=replace(run.metrics, measured=measured))
    (got,) = with_causes(judge([run], figures))
    assert (got.verdict.word, got.verdict.causes) == (FAIL, ())


def limited(run: str, *, has_latency: bool) -> Result:
    most = replace(LATENCY, maximum=40.0)
    specs = [(replace(BUSBW, minimum=1.0), 480.0), *([(most, 50.0)] if has_latency else [])]
    return result(run, *specs)


@pytest.mark.parametrize("order", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_metric_that_one_repeat_lacks_is_judged_whichever_it_is(order: tuple[int, ...]) -> None:
    runs = [limited(str(n), has_latency=bool(has)) for n, has in enumerate(order)]
    judged = judge(runs, [])
    assert {one.verdict.word for one in judged} == {FAIL}
    verdict = judged[0].verdict.metrics["latency"]
    assert (verdict.word, verdict.repeats) == (FAIL, 2)
    base = [result("x", (BUSBW, 480.0), (LATENCY, 36.0))]
    (row,) = with_measured(runs, base, "B")
    assert (row.verdict, row.metrics["latency"].repeats) == (FAIL, 2)
    (row,) = with_measured(base, runs, "B")
    assert row.metrics["latency"].ratio == pytest.approx(50 / 36)
    alone = judge([limited("a", has_latency=False)], [])
    assert "latency" not in alone[0].verdict.metrics


def short(run: Result, window: Window, steps: int | None, first: int = 0) -> Result:
    metrics = replace(run.metrics, window=window, steps=steps, first_iteration=first)
    return replace(run, metrics=metrics)


def test_the_warm_up_is_the_first_step_of_a_training_in_the_numbers_of_its_log() -> None:
    """Megatron counts from 1. A benchmark has no warm-up, and an unknown number of steps is none."""
    published = [replace(FIGURE, metric=TRAINING_BY_NAME["step_time"], value=1.0)]
    run = trained("a", 1.0)
    for training, words in (
        (short(run, Window(1, 2), 2, first=1), None),
        (short(run, Window(2, 2), 2, first=1), PASS),
        (short(run, Window(0, 0), None), PASS),
    ):
        (got,) = judge([training], published)
        assert got.verdict.word == words
    (got,) = judge([short(result("a", (BUSBW, 481.0)), Window(0, 0), 1)], FIGURES[:1])
    assert got.verdict.word == PASS


def test_rates_of_repeats_are_pooled_at_the_mean_of_what_they_are_divided_by() -> None:
    """2 s and 4 s for 1,200: 2,400 in 6 s. A bandwidth is no rate of steps."""
    for name in ("tokens_per_second", "tflops_per_gpu", "mfu", "tokens_per_joule"):
        assert pool([600.0, 300.0], name).mean == pytest.approx(400.0), name
    for name in ("busbw", "step_time", "watts_per_gpu", "joules_per_step"):
        assert pool([600.0, 300.0], name).mean == 450.0, name
