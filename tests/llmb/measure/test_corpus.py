# SPDX-License-Identifier: Apache-2.0
"""Every format that llmb reads, in one corpus: each log has the figures that were computed by hand.

``corpus/index.yaml`` says of each log what is to be read, ``corpus/golden.json`` everything that is
read. A change of the golden file is a change of what users see.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract import formats
from llmb.contract.formats import ParseSpec
from llmb.contract.metrics import MetricSpec
from llmb.judge.judge import judge
from llmb.measure import find_logs
from llmb.measure.log_result import result_of_log
from llmb.measure.result import Result
from llmb.measure.run_result import LogReader

CORPUS = Path(__file__).with_name("corpus")
GOLDEN = CORPUS / "golden.json"
LOGS: list[dict[str, Any]] = yaml.safe_load((CORPUS / "index.yaml").read_text())["logs"]
BESIDE = {"stderr.txt", "rfm_job.err", "test-run.toml", "cloudai_sbatch_script.sh"}
SUITES = ("cloudai", "superbench", "reframe")


def read(log: dict[str, Any]) -> Result:
    """The verdict of a log, which no reference is for."""
    declared = log.get("declared", {})
    metrics = tuple(MetricSpec(name=name, unit=unit) for name, unit in declared.items())
    reader = LogReader()
    if metrics:
        spec = ParseSpec(metrics=tuple(declared), metric_units=declared)
        reader = LogReader(spec=spec, metrics=metrics, headline=metrics[0].name)
    (result,) = judge([result_of_log(CORPUS / log["file"], reader, workloads={})], [])
    return result


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["file"])
def test_each_log_has_the_figures_that_were_computed_by_hand(log: dict[str, Any]) -> None:
    got = read(log)
    metrics = got.metrics
    assert got.status == log["status"], got.reason
    window = None if metrics.window is None else [metrics.window.first, metrics.window.last]
    assert window == log["window"]
    figures = {name: metrics.mean(name) for name in log["figures"]}
    assert figures == pytest.approx(log["figures"], rel=1e-6)
    assert log["figures"] or metrics.value is None
    assert (None if got.cause is None else got.cause.kind) == log.get("cause")
    if log["status"] == "Success":
        assert got.verdict.word == log.get("verdict", "NO_REFERENCE")
    stragglers = () if got.log is None else got.log.stragglers
    found = [[one.detector, one.rank, one.host] for one in stragglers]
    assert found == log.get("stragglers", [])
    if "name" in log:
        assert got.identity.experiment == log["name"]


def everything(result: Result) -> dict[str, Any]:
    """All that is read from a log, as JSON data."""
    metrics, facts = result.metrics, result.log
    return {
        "status": result.status,
        "reason": result.reason,
        "verdict": result.verdict.word,
        "framework": None if facts is None else facts.framework,
        "window": None if metrics.window is None else list(metrics.window),
        "max_iteration": metrics.max_iteration,
        "headline": metrics.headline,
        "metrics": {
            name: [float(f"{value.mean:.8g}"), float(f"{value.std:.6g}"), value.n, value.unit]
            for name, value in metrics.measured.items()
        },
        "invalid": list(metrics.invalid),
        "hosts": [] if facts is None else list(facts.hosts),
        "memory": None if facts is None else facts.peak_memory_bytes,
    }


def test_nothing_is_read_otherwise_than_before() -> None:
    got = {log["file"]: everything(read(log)) for log in LOGS}
    if os.environ.get("LLMB_TEST_ACCEPT"):
        GOLDEN.write_text(json.dumps(got, indent=1, sort_keys=True) + "\n")
    assert got == json.loads(GOLDEN.read_text()), "LLMB_TEST_ACCEPT=1 accepts it"


def test_every_file_is_in_the_index() -> None:
    """Those of further ranks, and what lies beside a log, belong to one that is."""
    files = {
        str(path.relative_to(CORPUS))
        for path in CORPUS.rglob("*")
        if path.is_file() and path.name not in {"index.yaml", "golden.json", *BESIDE}
    }
    ranks = {name for name in files if "/rank" in name and "/rank0/" not in name}
    assert files - ranks == {log["file"] for log in LOGS}


def test_a_tree_of_all_suites_is_found_by_their_own_names() -> None:
    found = {str(path.relative_to(CORPUS)) for path in find_logs.find_logs(CORPUS)}
    assert found == {log["file"] for log in LOGS if log["file"].split("/")[0] in SUITES}


def test_every_format_of_llmb_is_in_the_corpus() -> None:
    programs = {everything(read(log))["framework"] for log in LOGS}
    names = {name for key, name in vars(formats).items() if key.endswith("_NAME")}
    assert names <= programs
    other = {"MLPerf Training", "nccl-tests", "rccl-tests", "lines `llmb step`"}
    assert other <= {log["format"] for log in LOGS}
    assert {log["source"] for log in LOGS if len(log["source"].split()) < 2} == set()
