# SPDX-License-Identifier: Apache-2.0
"""Old results keep the unit, the direction and the verdict of their submission when their plugin
is upgraded.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.metrics import MetricSpec
from llmb.contract.record import RunRecord
from llmb.contract.samples import Samples
from llmb.contract.spec import read_workload
from llmb.measure.reader import (
    READER,
    LogReader,
    as_submitted,
    keep_reader,
    reader_of,
    submitted_metrics,
)
from llmb_testing.plugin_writer import write_benchmark

Command = Callable[..., "subprocess.CompletedProcess[str]"]
PUBLISHED = """
tables:
  - {release: "1.0", source: acme's notes 1.0, window: 4-18, steps: 20, size: all_reduce, dtype: bf16, gpu: h100,
     metric: busbw, values: {8: VALUE}}
"""
LOG = "".join(f"llmb step {number}/19 busbw=550 algbw=1 latency=9\n" for number in range(20))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The plugin as it was when the run was submitted, with a published figure of 500 GB/s."""
    write_benchmark(tmp_path / "plugins", "netbench")
    folder = tmp_path / "plugins" / "netbench"
    table = folder / "workload.yaml"
    table.write_text(table.read_text() + "published: published.yaml\n")
    (folder / "published.yaml").write_text(PUBLISHED.replace("VALUE", "500"))
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    importlib.invalidate_caches()
    yield folder
    sys.modules.pop("netbench", None)


@pytest.fixture
def upgrade(plugin: Path) -> Callable[[str, str, str], None]:
    """Changes the workload, and the published figure."""

    def change(old: str, new: str, value: str) -> None:
        table = plugin / "workload.yaml"
        text = table.read_text()
        assert old in text
        table.write_text(text.replace(old, new))
        (plugin / "published.yaml").write_text(PUBLISHED.replace("VALUE", value))
        sys.modules.pop("netbench", None)

    return change


@pytest.fixture(params=["read before", "kept at submission", "metrics kept at submission"])
def done(request: pytest.FixtureRequest, plugin: Path, install: Any, run: Command) -> RunRecord:
    """A run of 550 GB/s, and how its metrics are known: by a result, or by the submission."""
    workload = read_workload(plugin / "workload.yaml")
    own = replace(install, workloads={**install.workloads, "netbench": workload})
    made: RunRecord = own.run("a1", own.job("netbench_all_reduce", "bf16", 8), LOG)
    reader = reader_of(workload, "all_reduce", None)
    if request.param == "read before":
        run("results")
    elif request.param == "kept at submission":
        keep_reader(made, reader)
    else:
        own_samples = replace(reader, spec=replace(reader.spec, samples=Samples()))
        keep_reader(made, own_samples)
    return made


def one(run: Command, *words: object) -> dict[str, Any]:
    (found,) = json.loads(run("results", "--format", "json", *words).stdout)["results"]
    return dict(found)


@pytest.mark.parametrize("words", [(), ("--window", "5-18")])
def test_another_unit_is_not_the_run_s(
    words: tuple[str, ...], done: RunRecord, upgrade: Any, run: Command
) -> None:
    upgrade("unit: GB/s", "unit: kGB/s", "0.5")
    now = one(run, *words)
    assert (now["metrics"]["busbw"]["mean"], now["metrics"]["busbw"]["unit"]) == (550, "GB/s")
    assert (now["ratio"], now["verdict"]) == (None, "NO_REFERENCE")
    assert now["verdict_reason"] == "busbw is published in kGB/s, and the run measured GB/s"
    assert "GB/s" in run("explain", "a1").stdout


def test_another_direction_is_not_the_run_s(done: RunRecord, upgrade: Any, run: Command) -> None:
    upgrade("{name: busbw, unit: GB/s}", "{name: busbw, unit: GB/s, better: lower}", "500")
    now = one(run)
    assert (now["metrics"]["busbw"]["better"], now["ratio"]) == ("higher", pytest.approx(1.1))
    assert now["verdict"] == "SUSPICIOUS"


def test_the_reader_of_a_submission_is_read_back(plugin: Path, done: RunRecord) -> None:
    reader = reader_of(read_workload(plugin / "workload.yaml"), "all_reduce", None)
    kept = submitted_metrics(done)
    if kept is None:
        assert not (done.directory / READER).exists()
    else:
        assert isinstance(kept, LogReader)
        assert (kept.metrics, kept.headline) == (reader.metrics, reader.headline)


def test_runs_that_measured_other_units_have_no_ratio(
    plugin: Path, install: Any, upgrade: Any, run: Command
) -> None:
    old = read_workload(plugin / "workload.yaml")
    own = replace(install, workloads={**install.workloads, "netbench": old})
    first = own.run("a1", own.job("netbench_all_reduce", "bf16", 8), LOG)
    keep_reader(first, reader_of(old, "all_reduce", None))
    upgrade("unit: GB/s", "unit: kGB/s", "0.5")
    second = own.run("b1", own.job("netbench_all_reduce", "bf16", 8), LOG.replace("550", "0.55"))
    new = read_workload(plugin / "workload.yaml")
    keep_reader(second, reader_of(new, "all_reduce", None))
    (row,) = json.loads(run("compare", "b1", "a1", "--format", "json").stdout)["comparisons"]
    assert (row["verdict"], row["ratio"]) == ("NO_REFERENCE", None)
    assert row["verdict_reason"] == "a1 measured busbw in GB/s, not kGB/s"
    found = json.loads(run("results", "--format", "json").stdout)["results"]
    assert {result["run"]: result["repeats"] for result in found}["b1"] == 1


@pytest.mark.parametrize("way", ["keys", "patterns", "samples", "name"])
def test_a_metric_that_has_another_name_now_is_not_missing(way: str) -> None:
    bandwidth, old = MetricSpec(name="busbw"), MetricSpec(name="queue", unit="ms")
    new = replace(old, name="depth")

    def reader(metric: MetricSpec) -> LogReader:
        ways: dict[str, dict[str, Any]] = {
            "keys": {"keys": {metric.name: "queue"}},
            "patterns": {"patterns": {metric.name: r"queue (?P<value>[0-9.]+)"}},
            "samples": {"samples": Samples()},
            "name": {},
        }
        metrics = (bandwidth, metric)
        names = tuple(metric.name for metric in metrics)
        spec = ParseSpec(needle="it", metrics=names, metric_units={metric.name: "ms"}, **ways[way])
        return LogReader(spec=spec, metrics=metrics, headline="busbw")

    names = {"busbw", "depth", *(["queue"] if way == "name" else [])}
    chosen = as_submitted(reader(new), reader(old))
    assert {metric.name for metric in chosen.metrics} == set(chosen.spec.metrics) == names
    assert chosen.headline == "busbw"
    headline = replace(reader(old), headline="queue")
    assert "queue" in as_submitted(reader(new), headline).spec.metrics
