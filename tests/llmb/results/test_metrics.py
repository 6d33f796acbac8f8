# SPDX-License-Identifier: Apache-2.0
"""Tests of metrics in results: training's derived ones, declared ones in JSON and CSV, and exports of any release."""

import csv
import io
import json
from pathlib import Path

import pytest

from llmb.results.columns import csv_columns, csv_rows, report
from llmb.results.result import SUCCESS, Identity, Metrics, Result, from_json
from llmb.stats.measure import Window
from llmb.stats.metrics import STEP_TIME, Measured
from llmb.text.tables import render, to_json
from llmb.verdict.export import read_export

BUSBW = Measured(mean=480.2, std=1.5, n=9, unit="GB/s", better="higher")
LATENCY = Measured(mean=35.1, std=0.2, n=9, unit="us", better="lower")


def collective() -> Result:
    metrics = Metrics(window=Window(4, 12), steps=20, measured={"busbw": BUSBW, "latency": LATENCY}, headline="busbw")
    return Result(identity=Identity(experiment="bench", path="log-bench.out"), status=SUCCESS, metrics=metrics)


def trained() -> Result:
    return from_json(
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
    assert row["metrics"]["busbw"] == {"mean": 480.2, "std": 1.5, "n": 9, "unit": "GB/s", "better": "higher"}
    assert row["metrics"]["latency"]["better"] == "lower"
    assert {row[key] for key in ("time_mean_seconds", "tokens_per_second", "mfu", "model_flops")} == {None}
    assert collective().metrics.value == BUSBW


def test_csv_has_the_declared_metrics_once_and_those_of_training_in_their_columns() -> None:
    results = [collective(), trained()]
    first, second = csv.DictReader(io.StringIO(render(csv_columns(results), csv_rows(results), "csv")))
    assert (first["busbw_mean"], first["busbw_std"], first["latency_mean"]) == ("480.2", "1.5", "35.1")
    assert (second["busbw_mean"], second["time_mean_seconds"], second["tokens_per_second"]) == ("", "2.5", "4096.0")
    assert (first["headline"], second["headline"]) == ("busbw", STEP_TIME)
    assert "metrics" not in first
    assert not [key for key in first if key.startswith(("step_time_", "tokens_per_second_mean"))]


def test_an_export_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(to_json(report([collective(), trained()])))
    first, second = read_export(path)
    assert (first.metrics.measured, first.metrics.headline) == (collective().metrics.measured, "busbw")
    assert second.metrics.value == Measured(mean=2.5, std=0.1, n=34, unit="s", better="lower")


@pytest.mark.parametrize("window", [[11, 44], None])
def test_an_export_of_an_earlier_release_has_no_metrics(tmp_path: Path, window: list[int] | None) -> None:
    row = {"experiment": "e", "status": "Success", "window": window, "time_mean_seconds": 2.0}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"results": [row]}))
    (found,) = read_export(path)
    assert found.metrics.value == Measured(mean=2.0, std=0.0, n=34 if window else 0, unit="s", better="lower")


def test_an_export_of_a_later_release_may_know_more_of_a_metric(tmp_path: Path) -> None:
    document = json.loads(to_json(report([collective()])))
    document["results"][0]["metrics"]["busbw"]["median"] = 481.0
    path = tmp_path / "new.json"
    path.write_text(json.dumps(document))
    (found,) = read_export(path)
    assert found.metrics.value == BUSBW
