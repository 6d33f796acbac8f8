# SPDX-License-Identifier: Apache-2.0
"""Tests of verdicts, comparisons and scaling of any metric: ratios computed by hand, in both
directions.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.job import Job
from llmb.contract.metrics import (
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
    Better,
    Measured,
    MetricSpec,
    shown,
)
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.core.tables import render
from llmb.judge.compare import with_measured, with_published
from llmb.judge.deviation import Estimate, Variance
from llmb.judge.explain import Subject, explain
from llmb.judge.export import read_export
from llmb.judge.judge import judge
from llmb.judge.scaling import columns, rows_of, scaling_points
from llmb.judge.steps import step_notes
from llmb.judge.value import (
    FAIL,
    INCONCLUSIVE,
    INVALID,
    NO_REFERENCE,
    PASS,
    SUSPICIOUS,
    WARN,
    judge_values,
)
from llmb.measure.columns import report
from llmb.measure.result import SUCCESS, Result
from llmb.measure.statistics import Statistics
from llmb.plan.published import Figure
from llmb.show.results_table import table_of
from llmb_testing.results import result_of

Wording = Callable[..., None]
WINDOW = Window(4, 17)
BUSBW = MetricSpec(name="busbw", unit="GB/s", better="higher")
LATENCY = MetricSpec(name="latency", unit="us", better="lower")
OWN = Settings(
    framework="nemo",
    workload="microbench",
    model_size="all_reduce",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    gpus_per_node=8,
    parameters={"message_size": "16M"},
)
FIGURE = Figure(
    release="1.0",
    source="a table",
    window=WINDOW,
    steps=20,
    workload="microbench",
    model_size="all_reduce",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    parameters={"message_size": "16M"},
    metric=BUSBW,
    value=500.0,
)


def measured(
    value: float, metric: MetricSpec = BUSBW, *, run: str = "a", std: float = 0.1, **changes: Any
) -> Result:
    """A run of 20 iterations that measured ``value``, and 1.5 times that as ``algbw``."""
    found = {
        metric.name: Measured(mean=value, std=std, n=14, unit=metric.unit, better=metric.better),
        "algbw": Measured(mean=1.5 * value, std=0.0, n=14, unit="GB/s"),
    }
    return result_of(
        {
            "experiment": f"microbench_{run}",
            "path": f"{run}.out",
            "run": run,
            "status": SUCCESS,
            "window": WINDOW,
            "max_iteration": 19,
            "steps": 20,
            "configuration": replace(OWN, **changes),
            "metrics": found,
            "headline": metric.name,
        }
    )


def trained(seconds: float, *, run: str = "t", **changes: Any) -> Result:
    """A run of training on 16 GPUs: sequence 4096, global batch 64."""
    own = replace(
        OWN,
        workload="w",
        model_size="15b",
        parameters={},
        gbs=64,
        seq_length=4096,
        num_layers=32,
        **changes,
    )
    rate = TRAINING_BY_NAME[TOKENS_PER_SECOND_PER_GPU].measured(4096 * 64 / seconds / 16, 0.0, 14)
    return result_of(
        {
            "experiment": "w_15b",
            "path": f"{run}.out",
            "run": run,
            "status": SUCCESS,
            "window": WINDOW,
            "max_iteration": 19,
            "steps": 20,
            "configuration": own,
            "time_mean_seconds": seconds,
            "metrics": {TOKENS_PER_SECOND_PER_GPU: rate},
        }
    )


def figure(value: float, metric: MetricSpec = BUSBW, **changes: Any) -> Figure:
    return replace(FIGURE, value=value, metric=metric, **changes)


def verdict_of(
    *results: Result, figures: tuple[Figure, ...] = (FIGURE,)
) -> tuple[str | None, float | None]:
    first = judge(results, figures)[0].verdict
    return first.word, first.pooled_ratio and round(first.pooled_ratio, 6)


@pytest.mark.parametrize(
    ("value", "published", "metric", "verdict", "ratio"),
    [
        (480.0, 500.0, BUSBW, WARN, 0.96),
        (470.0, 500.0, BUSBW, FAIL, 0.94),
        (500.0, 500.0, BUSBW, PASS, 1.0),
        (550.0, 500.0, BUSBW, SUSPICIOUS, 1.1),
        (40.0, 36.0, LATENCY, FAIL, 0.9),
        (37.5, 36.0, LATENCY, WARN, 0.96),
        (36.0, 36.0, LATENCY, PASS, 1.0),
        (30.0, 36.0, LATENCY, SUSPICIOUS, 1.2),
    ],
)
def test_the_ratio_is_better_above_1(
    value: float, published: float, metric: MetricSpec, verdict: str, ratio: float
) -> None:
    figures = (figure(published, metric),)
    (got,) = judge([measured(value, metric)], figures)
    assert got.verdict.word == verdict
    assert got.verdict.pooled_ratio == pytest.approx(ratio)
    assert got.verdict.ratio == pytest.approx(ratio)
    reference = got.verdict.reference
    assert reference is not None
    assert (reference.metric, reference.value, reference.unit) == (
        metric.name,
        published,
        metric.unit,
    )
    assert reference.step_time_s is None


@pytest.mark.parametrize(("metric", "values"), [(BUSBW, (470.0, 490.0)), (LATENCY, (39.0, 37.0))])
def test_repeats_are_the_mean_of_their_values(
    metric: MetricSpec, values: tuple[float, float]
) -> None:
    runs = [measured(value, metric, run=str(number)) for number, value in enumerate(values)]
    word, ratio = verdict_of(*runs, figures=(figure(500.0 if metric is BUSBW else 36.0, metric),))
    by_hand = 480 / 500 if metric is BUSBW else 36 / 38
    assert (word, ratio) == (INCONCLUSIVE, round(by_hand, 6))


@pytest.mark.parametrize(("better", "value"), [("higher", 96.5), ("lower", 103.6)])
def test_more_repeats_would_decide_in_either_direction(better: Better, value: float) -> None:
    metric = MetricSpec(name="busbw", unit="GB/s", better=better)
    estimate = Estimate(Variance(4e-4, 100), "12 configurations")
    found = judge_values([value], [100.0], metric, estimate, exact=True)
    assert found.verdict == INCONCLUSIVE
    assert found.enough_repeats is not None
    again = judge_values([value] * found.enough_repeats, [100.0], metric, estimate, exact=True)
    assert again.verdict == WARN


def test_a_value_of_0_has_no_ratio() -> None:
    assert verdict_of(measured(0.0)) == (INVALID, None)


def test_parameters_are_part_of_the_configuration(wording: Wording) -> None:
    other = measured(480.0, parameters={"message_size": "256M"})
    (got,) = judge([other], [FIGURE])
    assert (got.verdict.word, got.verdict.ratio) == (NO_REFERENCE, None)
    wording("results", str(got.verdict.reason))
    (row,) = with_measured([other], [measured(480.0, run="b")], "B")
    assert row.verdict == NO_REFERENCE
    assert "message_size=256M" in (row.verdict_reason or "")
    assert judge([measured(480.0), other], [FIGURE])[0].verdict.repeats == 1


def test_a_figure_of_a_metric_that_the_run_lacks_is_not_compared() -> None:
    (got,) = judge([measured(480.0)], [figure(36.0, LATENCY)])
    assert got.verdict.word == NO_REFERENCE
    assert "latency" in (got.verdict.reason or "")
    in_bits = MetricSpec(name="busbw", unit="Gb/s")
    assert verdict_of(measured(480.0), figures=(figure(4000.0, in_bits),)) == (NO_REFERENCE, None)


def test_the_headline_is_preferred_then_the_first_of_the_newest_release() -> None:
    algbw = figure(720.0, MetricSpec(name="algbw", unit="GB/s"))
    chosen = judge([measured(480.0)], [algbw, FIGURE])[0].verdict.reference
    assert chosen is not None
    assert chosen.metric == "busbw"
    newer = replace(algbw, release="2.0")
    (got,) = judge([measured(480.0)], [FIGURE, newer])
    assert got.verdict.reference is not None
    assert (got.verdict.word, got.verdict.reference.metric) == (WARN, "busbw")
    assert got.verdict.metrics["algbw"].ratio == pytest.approx(1.0)
    (alone,) = judge([measured(480.0)], [newer])
    assert (alone.verdict.reason or "").endswith("compared by algbw")


def test_training_is_judged_by_tokens_per_second_where_only_they_are_published() -> None:
    rate = TRAINING_BY_NAME[TOKENS_PER_SECOND_PER_GPU]
    training = {
        "workload": "w",
        "model_size": "15b",
        "gbs": 64,
        "seq_length": 4096,
        "num_layers": 32,
        "parameters": {},
    }
    known = figure(8192.0, rate, **training)  # 4096 · 64 / 16 / 2 s
    assert (known.step_time_s, known.seconds_per_step) == (None, 2.0)
    runs = [trained(2.0, run="a"), trained(2.5, run="b")]
    first, second = judge(runs, [known])
    assert (first.verdict.ratio, second.verdict.ratio) == (1.0, 0.8)
    # as for step times: at the mean of both
    assert first.verdict.pooled_ratio == pytest.approx(2.0 / 2.25)
    reference = json.loads(json.dumps(report([first])["results"][0]["reference"]))
    assert reference == {
        "release": "1.0",
        "window": "4-17",
        "step_time_s": None,
        "source": "a table",
        "metric": "tokens_per_second_per_gpu",
        "value": 8192.0,
        "unit": "tokens/s/GPU",
    }


def test_runs_are_compared_by_their_headline() -> None:
    ours = [measured(480.0, run="a"), measured(490.0, run="b")]
    (row,) = with_measured(ours, [measured(500.0, run="c"), measured(510.0, run="d")], "B")
    assert (row.metric, row.unit, row.step_time_s) == ("busbw", "GB/s", None)
    assert [row.value, row.ratio] == pytest.approx([485.0, 485 / 505])
    assert row.reference is not None
    assert row.reference.value == pytest.approx(505.0)
    assert row.reference.step_time_s is None
    (row,) = with_measured(
        [measured(40.0, LATENCY, std=0.0)], [measured(36.0, LATENCY, run="b", std=0.0)], "B"
    )
    assert row.ratio == pytest.approx(0.9)
    assert row.verdict == FAIL
    (row,) = with_measured([measured(480.0)], [measured(36.0, LATENCY, run="b")], "B")
    assert row.verdict == NO_REFERENCE


def test_an_export_keeps_metrics(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    before = [measured(480.2), measured(36.0, LATENCY, run="b"), trained(2.0)]
    path.write_text(json.dumps(report(before)))
    after = read_export(path)
    assert [one.metrics.value for one in after] == [one.metrics.value for one in before]
    assert [one.metrics.headline for one in after] == ["busbw", "latency", "step_time"]
    (row,) = with_measured(after[:1], before[:1], "before")
    assert (row.ratio, row.verdict) == (1.0, PASS)


def test_an_export_is_compared_as_the_runs_it_has(tmp_path: Path) -> None:
    """Slow steps are outliers of a run, not its deviation: their number is in the file."""
    statistics = Statistics(
        count=15,
        median=480.0,
        p95=485.0,
        least=170.0,
        most=490.0,
        interval=(400.0, 480.0),
        outliers=(4, 5),
        drift=0.0,
        deviation=0.01,
    )

    def with_outliers(value: float, run: str) -> Result:
        result = measured(value, run=run, std=120.0)
        return replace(result, metrics=replace(result.metrics, statistics=statistics))

    ours, theirs = with_outliers(430.0, "a"), with_outliers(480.0, "b")
    path = tmp_path / "results.json"
    path.write_text(json.dumps(report([theirs])))
    exported = read_export(path)
    assert exported[0].metrics.statistics == statistics
    assert with_measured([ours], exported, "B") == with_measured([ours], [theirs], "B")
    assert with_measured([ours], exported, "B")[0].verdict == FAIL


def test_scaling_of_a_bus_bandwidth_is_relative_to_the_smallest_scale(wording: Wording) -> None:
    by_scale = {8: (480.0, 484.0), 16: (458.0,), 32: (433.8,)}
    runs = [
        measured(value, run=f"{scale}-{value}", scale=scale)
        for scale, values in by_scale.items()
        for value in values
    ]
    points = scaling_points(runs)
    assert [
        (point.kind, point.configuration.scale, point.n, point.metric.name) for point in points
    ] == [
        (None, 8, 2, "busbw"),
        (None, 16, 1, "busbw"),
        (None, 32, 1, "busbw"),
    ]
    assert [point.value for point in points] == pytest.approx([482.0, 458.0, 433.8])
    assert [point.relative for point in points] == pytest.approx([1.0, 458 / 482, 0.9])
    wording("compare", render(columns(points, "md"), rows_of(points, "md"), "md"))
    row = rows_of(points, "json")[2]
    assert (row["metric"], row["value"], row["unit"], row["relative"]) == (
        "busbw",
        433.8,
        "GB/s",
        pytest.approx(0.9),
    )
    assert (row["efficiency"], row["tokens_per_second_per_gpu"], row["step_time_s"]) == (
        None,
        None,
        None,
    )


def test_a_latency_that_doubles_is_half_as_good() -> None:
    points = scaling_points(
        [measured(20.0, LATENCY, run="a", scale=8), measured(40.0, LATENCY, run="b", scale=16)]
    )
    assert [point.relative for point in points] == [1.0, 0.5]


def test_message_sizes_are_series_of_their_own() -> None:
    runs = [
        measured(float(scale), run=f"{size}{scale}", scale=scale, parameters={"message_size": size})
        for size in ("1M", "16M")
        for scale in (8, 16)
    ]
    found = [
        (point.configuration.parameters["message_size"], point.configuration.scale)
        for point in scaling_points(runs)
    ]
    assert found == [("16M", 8), ("16M", 16), ("1M", 8), ("1M", 16)]


def test_scaling_of_training_beside_others(wording: Wording) -> None:
    runs = [
        measured(480.0, run="a", scale=8),
        measured(456.0, run="b"),
        trained(2.0, run="c"),
        trained(2.5, run="d", scale=32),
    ]
    points = scaling_points(runs)
    strong = [point for point in points if point.kind is not None]
    assert [point.relative for point in strong] == pytest.approx([1.0, 2.0 / 2.5 / 2])
    wording("compare", render(columns(points, "md"), rows_of(points, "md"), "md"))


def test_a_table_of_one_metric_has_the_unit_in_its_heading(wording: Wording) -> None:
    text = render(
        *table_of(judge([measured(480.2), measured(470.0, run="b", scale=32)], [FIGURE])), "md"
    )
    wording("results", text)
    assert not any(word in text.lower() for word in ("step", "token", "mfu", "tflops", "batch"))


def test_a_table_of_several_metrics_has_the_unit_in_each_cell(wording: Wording) -> None:
    found = [measured(480.2), measured(35.12, LATENCY, run="b"), trained(2.7461)]
    text = render(*table_of(judge(found, [FIGURE])), "md")
    wording("results", text)
    assert [word in text for word in ("480.2 GB/s", "35.12 us", "2.746 s")] == [True, True, True]


def test_only_training_has_the_columns_of_training() -> None:
    headings = [column.title() for column in table_of([trained(2.0)])[0]]
    assert headings == ["run", "experiment", "status", "step (s)", "±", "tokens/s/GPU"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (480.2, "480.2"),
        (35.12345, "35.12"),
        (2.7461, "2.746"),
        (0.00012345, "0.0001234"),
        (1234567.0, "1,234,567"),
    ],
)
def test_values_have_four_digits(value: float, text: str) -> None:
    assert shown(value) == text
    assert shown(value, "GB/s") == f"{text} GB/s"


def test_explain(wording: Wording) -> None:
    figures = (figure(36.0, LATENCY),)
    results = judge([measured(37.5, LATENCY, std=0.25)], figures)
    same = ("workload", "model_size", "dtype", "gpu_type", "scale", "gpus_per_node", "parameters")
    values: dict[str, Any] = {name: getattr(OWN, name) for name in same}
    values |= {
        "repeat": 1,
        "profile": False,
        "env": {},
        "max_steps": 20,
        "nodes": 2,
        "time_limit": 600,
        "image": None,
    }
    job = Job(**values, experiment_name="microbench_a")
    text = explain(Subject(result=results[0], job=job, figure=figures[0], repeats=results))
    wording("explain", text)
    assert "36 us / 37.5 us = 0.9600" in text
    assert not any(
        word in text.lower() for word in ("step time", "token", "mfu", "tflops", "batch", "flops")
    )


def test_a_reference_of_zero_has_no_verdict_unless_it_is_the_headline() -> None:
    def run(name: str, algbw: float) -> Result:
        result = measured(480.0, run=name)
        judged_metric = Measured(mean=algbw, std=0.0, n=14, unit="GB/s", judged=True)
        both = {**result.metrics.measured, "algbw": judged_metric}
        return replace(result, metrics=replace(result.metrics, measured=both))

    for reference, names in ((0.0, {"busbw"}), (700.0, {"busbw", "algbw"})):
        (row,) = with_measured([run("b", 700.0)], [run("a", reference)], "A")
        assert set(row.metrics) == names


def steps_around(median: float) -> Statistics:
    """14 steps with this median, without drift and outliers."""
    return Statistics(
        count=14,
        median=median,
        p95=500.0,
        least=0.0,
        most=510.0,
        interval=(0.0, 540.0),
        outliers=(),
        drift=0.0,
    )


@pytest.mark.parametrize(("metric", "is_reported"), [("busbw", True), ("algbw", False)])
def test_the_ratio_by_the_median_is_reported_of_the_headline_alone(
    metric: str, is_reported: bool
) -> None:
    chosen = FIGURE if metric == "busbw" else figure(720.0, MetricSpec(name=metric, unit="GB/s"))
    (result,) = judge([measured(480.0)], [chosen])
    assert result.verdict.reference is not None
    assert result.verdict.reference.metric == metric
    steps = steps_around(430.0)
    result = replace(result, metrics=replace(result.metrics, statistics=steps))
    assert list(step_notes(result)) == ["by their median, the ratio would be 0.8600"] * is_reported


def test_a_median_of_zero_has_no_ratio() -> None:
    """Most steps were shorter than the clock can tell."""
    (result,) = judge([measured(36.0, LATENCY)], [figure(36.0, LATENCY)])
    assert result.verdict.ratio == 1.0
    metrics = replace(result.metrics, statistics=steps_around(0.0))
    assert list(step_notes(replace(result, metrics=metrics))) == []


def test_published_rows_of_compare() -> None:
    (row,) = with_published(judge([measured(480.0)], [FIGURE]))
    assert (row.metric, row.value, row.unit, row.ratio, row.step_time_s) == (
        "busbw",
        480.0,
        "GB/s",
        0.96,
        None,
    )
