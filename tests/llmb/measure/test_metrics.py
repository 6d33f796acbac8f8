# SPDX-License-Identifier: Apache-2.0
"""Tests of metrics in results: what windows measure, JSON, CSV, and exports of any release."""

import csv
import io
import json
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llmb.contract.formats import ParseSpec
from llmb.contract.metrics import STEP_TIME, TRAINING, Measured, MetricSpec
from llmb.contract.samples import Samples, Step
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.contract.window import LAST, Window, measure
from llmb.core.tables import render, to_json
from llmb.judge.export import read_export
from llmb.measure.columns import csv_columns, csv_rows, report
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import FAILED, SUCCESS, Identity, Metrics, Result
from llmb_testing.results import result_of

BUSBW = Measured(mean=480.2, std=1.5, n=9, unit="GB/s", better="higher")
LATENCY = Measured(mean=35.1, std=0.2, n=9, unit="us", better="lower")


def collective() -> Result:
    metrics = Metrics(
        window=Window(4, 12),
        steps=20,
        measured={"busbw": BUSBW, "latency": LATENCY},
        headline="busbw",
    )
    return Result(
        identity=Identity(experiment="bench", path="log-bench.out"), status=SUCCESS, metrics=metrics
    )


def trained() -> Result:
    return result_of(
        {
            "experiment": "train",
            "path": "log-train.out",
            "status": SUCCESS,
            "window": Window(11, 44),
            "time_mean_seconds": 2.5,
            "time_std_dev_seconds": 0.1,
            "tokens_per_second": 4096.0,
        }
    )


def test_a_result_has_its_headline_and_every_metric() -> None:
    (row,) = json.loads(to_json(report([collective()])))["results"]
    assert row["headline"] == "busbw"
    busbw = row["metrics"]["busbw"]
    assert {key: busbw[key] for key in ("mean", "std", "n", "unit", "better")} == {
        "mean": 480.2,
        "std": 1.5,
        "n": 9,
        "unit": "GB/s",
        "better": "higher",
    }
    assert row["metrics"]["latency"]["better"] == "lower"
    assert {
        row[key] for key in ("time_mean_seconds", "tokens_per_second", "mfu", "model_flops")
    } == {None}
    assert collective().metrics.value == BUSBW


def test_csv_has_the_declared_metrics_once_and_those_of_training_in_their_columns() -> None:
    results = [collective(), trained()]
    first, second = csv.DictReader(
        io.StringIO(render(csv_columns(results), csv_rows(results), "csv"))
    )
    assert (first["busbw_mean"], first["busbw_std"], first["latency_mean"]) == (
        "480.2",
        "1.5",
        "35.1",
    )
    assert (second["busbw_mean"], second["time_mean_seconds"], second["tokens_per_second"]) == (
        "",
        "2.5",
        "4096.0",
    )
    assert (first["headline"], second["headline"]) == ("busbw", STEP_TIME)
    assert "metrics" not in first
    assert not [key for key in first if key.startswith(("step_time_", "tokens_per_second_mean"))]


def test_an_export_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(to_json(report([collective(), trained()])))
    first, second = read_export(path)
    assert (first.metrics.measured, first.metrics.headline) == (
        collective().metrics.measured,
        "busbw",
    )
    assert second.metrics.value == Measured(mean=2.5, std=0.1, n=34, unit="s", better="lower")


def test_an_export_of_a_later_release_may_know_more_of_a_metric(tmp_path: Path) -> None:
    document = json.loads(to_json(report([collective()])))
    document["results"][0]["metrics"]["busbw"]["median"] = 481.0
    path = tmp_path / "new.json"
    path.write_text(json.dumps(document))
    (found,) = read_export(path)
    assert found.metrics.value == BUSBW


READER = LogReader(
    spec=ParseSpec(metrics=("busbw", "latency")),
    metrics=(
        MetricSpec(name="busbw", unit="GB/s"),
        MetricSpec(name="latency", unit="us", better="lower"),
    ),
    headline="busbw",
)


def bench(path: Path, change: dict[int, str] | None = None, count: int = 20) -> Result:
    """The result of a log of ``count`` iterations, some of whose lines are others."""
    own = {n: f"llmb step {n}/19 busbw={480 + n % 2} latency=35.5\n" for n in range(count)}
    path.write_text("".join((own | (change or {})).values()))
    return result_of_log(path, READER)


def test_a_window_of_a_benchmark_without_steps_that_take_a_time(tmp_path: Path) -> None:
    got = bench(tmp_path / "log-x.out")
    assert (got.status, got.metrics.window, got.metrics.steps) == (SUCCESS, Window(4, 18), 20)
    # 7 odd and 8 even iterations of 4 to 18: 480 + 7/15, and the deviation of a coin with these
    # odds.
    value = got.metrics.value
    assert value is not None
    assert (value.n, value.unit, value.better) == (15, "GB/s", "higher")
    assert [value.mean, value.std] == pytest.approx([480 + 7 / 15, (7 * 8) ** 0.5 / 15])
    assert got.metrics.measured["latency"] == Measured(
        mean=35.5, std=0.0, n=15, unit="us", better="lower"
    )
    assert set(got.metrics.measured) == {"busbw", "latency"}
    assert got.metrics.statistics is not None
    assert (got.metrics.statistics.median, got.metrics.statistics.count) == (480.0, 15)
    assert (got.reason, got.metrics.invalid) == (None, ())


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("busbw=nan latency=1", "nan"),
        ("busbw=inf latency=1", "inf"),
        ("latency=1", "missing"),
        ("busbw=?", "missing"),
    ],
)
def test_an_iteration_without_the_headline_is_no_success(
    tmp_path: Path, line: str, word: str
) -> None:
    got = bench(tmp_path / "log-x.out", {7: f"llmb step 7/19 {line}\n"})
    assert got.status == FAILED
    assert "busbw" not in got.metrics.measured
    assert got.reason is not None
    assert (word in got.reason, "iteration 7" in got.reason) == (True, True)
    assert [why for why in got.metrics.invalid if "busbw" in why] == (
        ["busbw is not a number"] if word == "nan" else []
    )


def test_another_metric_may_be_missing_and_the_reason_says_where(tmp_path: Path) -> None:
    got = bench(
        tmp_path / "log-x.out", {7: "llmb step 7/19 busbw=480\n", 9: "llmb step 9/19 busbw=480\n"}
    )
    assert got.status == SUCCESS
    assert set(got.metrics.measured) == {"busbw"}
    assert got.reason == "latency is missing at iteration 7 and 1 more"


def test_a_metric_that_is_not_a_number_is_invalid(tmp_path: Path) -> None:
    got = bench(tmp_path / "log-x.out", {7: "llmb step 7/19 busbw=480 latency=nan\n"})
    assert (got.status, got.metrics.invalid) == (SUCCESS, ("latency is not a number",))
    early = bench(tmp_path / "log-x.out", {1: "llmb step 1/19 busbw=480 latency=nan\n"})
    assert early.metrics.invalid == ()


def test_a_value_outside_the_window_decides_nothing(tmp_path: Path) -> None:
    got = bench(tmp_path / "log-x.out", {0: "llmb step 0/19 busbw=inf latency=1\n"})
    assert (got.status, got.reason) == (SUCCESS, None)


def test_an_incomplete_log_of_a_benchmark(tmp_path: Path) -> None:
    got = bench(tmp_path / "log-x.out", count=12)
    assert (got.status, dict(got.metrics.measured)) == (FAILED, {})


def test_other_windows(tmp_path: Path) -> None:
    bench(tmp_path / "log-x.out")
    got = result_of_log(tmp_path / "log-x.out", READER, LAST)
    assert (
        got.metrics.window,
        got.metrics.mean("busbw"),
        got.metrics.value and got.metrics.value.n,
    ) == (
        (19, 19),
        481,
        1,
    )


@given(
    st.lists(
        st.floats(-1e100, 1e100, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-100),
        min_size=1,
        max_size=40,
    )
)
def test_it_agrees_with_statistics(values: list[float]) -> None:
    steps = tuple(
        Step(iteration=i, step_time=math.nan, values={"x": own}) for i, own in enumerate(values)
    )
    found = measure(Samples(steps=steps), Window(0, len(values) - 1), [MetricSpec(name="x")])["x"]
    scale = max(map(abs, values)) or 1.0
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-9 * scale)
    deviation = statistics.pstdev(values) if len(values) > 1 else None
    assert found.std == pytest.approx(deviation, abs=1e-7 * scale)


def test_all_metrics_of_training_are_there(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    path = tmp_path / "log-pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256_1.out"
    path.write_text(
        "".join(
            f"Training epoch 0, iteration {n}/49 | train_step_timing in s: {2.6 if n % 2 else 2.8}"
            " | TFLOPS_per_GPU: 571.8\n"
            for n in range(50)
        )
    )
    metrics = result_of_log(
        path, LogReader(), workloads=workloads, overrides=Settings(gpu_type="h100")
    ).metrics
    assert set(metrics.measured) == {spec.name for spec in TRAINING}
    assert metrics.headline == STEP_TIME
    # 256 sequences of 4096 tokens in 2.7 s, on 64 GPUs; the deviation of each rate is that of the
    # time, 0.1 of 2.7.
    rate = metrics.measured["tokens_per_second"]
    assert [rate.mean, rate.std, rate.n] == pytest.approx([388361.5, 388361.5 / 27, 34], abs=1)
    assert metrics.measured["tokens_per_second_per_gpu"].mean == pytest.approx(
        388361.5 / 64, abs=0.1
    )


@pytest.mark.parametrize(
    ("window", "counted"),
    [((11, 44), (11, 44)), ((11, -1), (11, 50)), ((-10, 44), (41, 44)), ((-1, -1), (50, 50))],
)
def test_negative_ends_of_a_window_count_from_the_last_of_50_steps(
    window: tuple[int, int], counted: tuple[int, int]
) -> None:
    assert Window(*window).of(50, first=1) == counted  # numbered from 1
