# SPDX-License-Identifier: Apache-2.0
"""Tests of `llmb-run compare` with benchmarks that train nothing: two files of results, and their
scaling.
"""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

Run = Callable[..., Any]
Wording = Callable[..., None]


def result(run: str, size: str, metric: dict[str, Any], value: float, scale: int) -> dict[str, Any]:
    """A result as `results --format json` prints it, with the fields that a comparison needs."""
    configuration = {
        "workload": "microbench",
        "model_size": size,
        "dtype": "bf16",
        "gpu_type": "h100",
        "scale": scale,
        "parameters": {"message_size": "16M"},
    }
    return {
        "experiment": f"microbench_{size}_bf16_gpus{scale}",
        "path": f"{run}.out",
        "status": "Success",
        "window": [4, 17],
        "max_iteration": 19,
        "steps": 20,
        "run": run,
        "configuration": configuration,
        "metrics": {metric["name"]: {"mean": value, "std": 0.0, "n": 14, **metric["how"]}},
        "headline": metric["name"],
    }


BUSBW = {"name": "busbw", "how": {"unit": "GB/s", "better": "higher"}}
LATENCY = {"name": "latency", "how": {"unit": "us", "better": "lower"}}


@pytest.fixture
def files(tmp_path: Path, install: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ours and theirs: busbw 0.9375 of theirs on 8 GPUs, as much on 16; latency 1.25 times as
    long.
    """
    ours = [("a1", BUSBW, 450.0, 8), ("a2", BUSBW, 432.0, 16), ("a3", LATENCY, 50.0, 16)]
    theirs = [("b1", BUSBW, 480.0, 8), ("b2", BUSBW, 432.0, 16), ("b3", LATENCY, 40.0, 16)]
    for name, side in (("ours", ours), ("theirs", theirs)):
        rows = [
            result(run, "send" if metric is LATENCY else "all_reduce", metric, value, scale)
            for run, metric, value, scale in side
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": rows}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_either_direction(files: Path, run: Run, wording: Wording) -> None:
    done = run("compare", "ours.json", "theirs.json")
    assert done.returncode == 3
    wording("compare", done.stdout)
    found = json.loads(run("compare", "ours.json", "theirs.json", "--format", "json").stdout)[
        "comparisons"
    ]
    assert [(row["metric"], row["unit"], row["verdict"]) for row in found] == [
        ("busbw", "GB/s", "FAIL"),
        ("busbw", "GB/s", "PASS"),
        ("latency", "us", "FAIL"),
    ]
    assert [row["ratio"] for row in found] == pytest.approx([450 / 480, 1.0, 40 / 50])
    assert [row["reference"]["value"] for row in found] == [480.0, 432.0, 40.0]
    assert [(row["step_time_s"], row["reference"]["step_time_s"]) for row in found] == [
        (None, None)
    ] * 3


def test_for_programs(files: Path, run: Run) -> None:
    rows = list(
        csv.DictReader(
            io.StringIO(run("compare", "ours.json", "theirs.json", "--format", "csv").stdout)
        )
    )
    assert [(row["metric"], row["value"], row["unit"], row["reference_value"]) for row in rows] == [
        ("busbw", "450.0", "GB/s", "480.0"),
        ("busbw", "432.0", "GB/s", "432.0"),
        ("latency", "50.0", "us", "40.0"),
    ]
    suite = ElementTree.fromstring(
        run("compare", "ours.json", "theirs.json", "--format", "junit").stdout
    )
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")


def test_one_metric_has_its_unit_in_the_heading(files: Path, run: Run, wording: Wording) -> None:
    for name in ("ours", "theirs"):
        path = files / f"{name}.json"
        path.write_text(json.dumps({"results": json.loads(path.read_text())["results"][:2]}))
    wording("compare", run("compare", "ours.json", "theirs.json").stdout)


def test_scaling(files: Path, run: Run, wording: Wording) -> None:
    done = run("compare", "ours.json", "--scaling")
    assert done.returncode == 0
    wording("compare", done.stdout)
    found = json.loads(run("compare", "ours.json", "--scaling", "--format", "json").stdout)
    assert [(row["scale"], row["value"], row["relative"], row["efficiency"]) for row in found] == [
        (8, 450.0, 1.0, None),
        (16, 432.0, pytest.approx(0.96), None),
    ]
