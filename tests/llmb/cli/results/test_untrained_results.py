# SPDX-License-Identifier: Apache-2.0
"""Tests of results, verdicts, scaling and the report of a plugin's benchmark that trains nothing,
from its log.
"""

import csv
import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import read_workload
from llmb.measure.reader import LogReader, keep_reader
from llmb.run import store
from llmb_testing.plugin_writer import write_benchmark

Wording = Callable[..., None]
Run = Callable[..., Any]
PUBLISHED = """
tables:
  - {release: "1.0", source: acme's notes 1.0, window: 4-18, steps: 20, size: all_reduce, dtype: bf16, gpu: h100,
     metric: busbw, values: {8: 500, 16: 480}}
  - {release: "1.0", source: acme's notes 1.0, window: 4-18, steps: 20, size: send_receive, dtype: bf16, gpu: h100,
     parameters: {algorithm: ring}, metric: latency, values: {16: 36}}
"""
OF_TRAINING = ("step time", "token", "mfu", "tflops", "batch", "gbs", "flops", "layers")


class HandMade(Protocol):
    """The fixture of conftest.py."""

    folder: Path
    config: ClusterConfig

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(
        self, run_id: str, job: Job, log: str | None, state: Any = ..., **how: Any
    ) -> RunRecord: ...


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The plugin with published figures, installed for this test; its module is forgotten
    afterwards.
    """
    write_benchmark(tmp_path / "plugins", "netbench")
    folder = tmp_path / "plugins" / "netbench"
    table = folder / "workload.yaml"
    table.write_text(table.read_text() + "published: published.yaml\n")
    (folder / "published.yaml").write_text(PUBLISHED)
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    importlib.invalidate_caches()
    yield folder
    sys.modules.pop("netbench", None)


@pytest.fixture
def filled(plugin: Path, install: Any) -> HandMade:
    """Runs whose windows measured: busbw 481 on 8 GPUs, 480 on 16, 449 of another message size;
    latency 40 on 16.
    """
    key = "netbench"
    own = replace(
        install, workloads={**install.workloads, key: read_workload(plugin / "workload.yaml")}
    )
    for run_id, what, scale, params, busbw, latency in (
        ("a1", "netbench_all_reduce", 8, {}, 480.0, 30.0),
        ("a2", "netbench_all_reduce", 8, {}, 482.0, 30.0),
        ("b1", "netbench_all_reduce", 16, {}, 480.0, 31.0),
        ("c1", "netbench_all_reduce", 16, {"message_size": "256M"}, 449.0, 99.0),
        ("d1", "netbench_send_receive", 16, {"algorithm": "ring"}, 20.0, 40.0),
    ):
        lines = [
            f"llmb step {i}/19 busbw={busbw if i > 3 else busbw / 9} algbw={busbw / 2}"
            f" latency={latency}\n"
            for i in range(20)
        ]
        job = own.job(what, "bf16", scale)
        job = replace(
            job,
            parameters={**job.parameters, **params},
            experiment_name=f"{what}_bf16_gpus{scale}_{run_id[0]}",
        )
        own.run(run_id, job, "".join(lines))
    made: HandMade = own
    return made


def test_results(filled: HandMade, run: Run, wording: Wording) -> None:
    done = run("results")
    assert done.returncode == 3  # one of them is FAIL
    wording("results", done.stdout + done.stderr)
    found = {
        row["run"]: row for row in json.loads(run("results", "--format", "json").stdout)["results"]
    }
    assert {name: row["headline"] for name, row in found.items()} == {
        **dict.fromkeys(("a1", "a2", "b1", "c1"), "busbw"),
        "d1": "latency",
    }
    assert {name: row["verdict"] for name, row in found.items()} == {
        "a1": "INCONCLUSIVE",  # 481 / 500 of two repeats
        "a2": "INCONCLUSIVE",
        "b1": "PASS",
        "c1": "NO_REFERENCE",  # another message size
        "d1": "FAIL",  # 36 / 40
    }
    assert (found["a1"]["pooled_ratio"], found["a1"]["repeats"]) == (pytest.approx(481 / 500), 2)
    assert found["d1"]["ratio"] == pytest.approx(0.9)
    assert found["b1"]["metrics"]["algbw"]["mean"] == 240.0
    trained = ("time_mean_seconds", "tokens_per_second", "mfu", "model_flops", "days_per_1t_tokens")
    assert {found["b1"][name] for name in trained} == {None}
    assert not any(word in done.stdout.lower() for word in OF_TRAINING)
    rows = list(csv.DictReader(io.StringIO(run("results", "--format", "csv").stdout)))
    assert {row["run"]: row["reference_value"] for row in rows}["d1"] == "36.0"


def test_compare(filled: HandMade, run: Run, wording: Wording) -> None:
    done = run("compare")
    assert done.returncode == 3
    wording("compare", done.stdout + done.stderr)
    assert not any(word in done.stdout.lower() for word in OF_TRAINING)
    (row,) = json.loads(run("compare", "a1,a2", "b1", "--format", "json").stdout)["comparisons"]
    assert row["verdict"] == "NO_REFERENCE"  # 8 GPUs, not 16
    (row,) = json.loads(run("compare", "c1", "b1", "--format", "json").stdout)["comparisons"]
    assert "message_size=16M" in row["verdict_reason"]


def test_scaling(filled: HandMade, run: Run, wording: Wording) -> None:
    wording("compare", run("compare", "--scaling").stdout)
    found = json.loads(run("compare", "--scaling", "--format", "json").stdout)
    assert [
        (row["scale"], row["n"], row["metric"], round(row["relative"], 4)) for row in found
    ] == [
        (8, 2, "busbw", 1.0),
        (16, 1, "busbw", round(480 / 481, 4)),
    ]


def test_a_baseline(filled: HandMade, run: Run) -> None:
    assert run("baseline", "accept", "good", "a1", "a2", "d1").returncode == 0
    found = json.loads(run("compare", "a1,a2,d1", "--baseline", "good", "--format", "json").stdout)[
        "comparisons"
    ]
    assert [(row["metric"], row["ratio"]) for row in found if row["ratio"]] == [
        ("busbw", 1.0),
        ("latency", 1.0),
    ]


def test_explain(filled: HandMade, run: Run, wording: Wording) -> None:
    text = run("explain", "d1").stdout
    wording("explain", text)
    assert "36 us / 40 us = 0.9000" in text
    assert not any(word in text.lower() for word in OF_TRAINING)


def test_a_report(filled: HandMade, run: Run) -> None:
    for fmt in ("md", "html"):
        text = run("report", "--format", fmt).stdout
        assert "40.00 us" in text
        assert [word for word in OF_TRAINING if word in text.lower().replace("sequence", "")] == []


@pytest.mark.parametrize(
    ("kept", "pattern"), [(False, ""), (True, r"step (?:(?P<i>\d)x|\d/)"), (True, r"st(?P<i>\w+)")]
)
@pytest.mark.parametrize(
    "command", [("results",), ("compare",), ("report",), ("jobs", "list"), ("explain", "c1")]
)
def test_a_pattern_that_finds_no_number_costs_its_own_runs_alone(
    command: tuple[str, ...], kept: bool, pattern: str, filled: HandMade, plugin: Path, run: Run
) -> None:
    other = filled.job("nemotron4_15b", "bf16", 16)
    filled.run(
        "n1", other, "".join(f"iteration {i}/49 | train_step_timing in s: 2 |\n" for i in range(50))
    )
    (module,) = (path for path in plugin.rglob("*.py") if "llmb_workload" in path.read_text())
    module.write_text(
        module.read_text()
        + "\nfrom llmb.api import ParseSpec, hookimpl\n\n@hookimpl\ndef llmb_parse(run):\n   "
        " return ParseSpec(needle='busbw', iteration=r'step (?:(?P<i>\\d)x|\\d/)', keys={'busbw':"
        " 'busbw'})\n"
    )
    sys.modules.pop("netbench", None)  # the install directory's cluster types loaded the one before
    # when the runs were submitted, with the same pattern and with another one that matches no
    # number
    if kept:
        spec = ParseSpec(
            needle="busbw", iteration=pattern, keys={"busbw": "busbw"}, source="netbench:netbench"
        )
        for record in store.all_runs(filled.config)[0]:
            keep_reader(record, LogReader(spec=spec, metrics=(), headline="busbw"))
    done = run(*command, *(() if command[0] == "jobs" else ("--window", "4-18")))
    # 1: results could not be read
    ends = (1,) if command[0] in ("results", "compare", "report") else (0, 3)
    assert done.returncode in ends, done.stderr
    assert "Traceback" not in done.stderr
    if command == ("results",):
        assert "'iteration' of plugin" in done.stderr
        assert "llmb step 0/19" in done.stderr
        assert "n1" in done.stdout


@pytest.mark.parametrize(("argument", "asked_for"), [("size", "size"), ("run", "run.id")])
def test_a_hook_that_takes_no_run_answers_for_all_runs_of_a_size(
    argument: str, asked_for: str, filled: HandMade, plugin: Path, run: Run, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    (module,) = (path for path in plugin.rglob("*.py") if "llmb_workload" in path.read_text())
    module.write_text(
        module.read_text()
        + f"\nfrom llmb.api import hookimpl\n\n@hookimpl\ndef llmb_parse({argument}):\n"
        f"    with open({str(calls)!r}, 'a') as file:\n"
        f"        print({asked_for}, file=file)\n"
    )
    sys.modules.pop("netbench", None)
    records = [
        record for record in store.all_runs(filled.config)[0] if record.job.workload == "netbench"
    ]
    assert run("results").returncode == 3  # a verdict is FAIL
    asked = calls.read_text().split()
    if argument == "size":
        assert sorted(asked) == sorted({record.job.model_size for record in records})
        assert len(asked) < len(records)
    else:
        assert set(asked) == {record.id for record in records}


def test_one_metric_alone(filled: HandMade, run: Run) -> None:
    rows = json.loads(run("results", "--metric", "latency", "--format", "json").stdout)["results"]
    shown = {row["run"]: row for row in rows if "latency" in row["metrics"]}
    assert shown
    assert {row["headline"] for row in shown.values()} == {"latency"}
    assert "latency (us)" in run("results", "--metric", "latency").stdout
    for words in (("results",), ("compare",), ("report",)):
        done = run(*words, "--metric", "latenzy")
        assert done.returncode == 2
        assert "did you mean 'latency'?" in done.stderr
