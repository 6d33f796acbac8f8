# SPDX-License-Identifier: Apache-2.0
"""Every format that llmb reads, in one corpus: each log has the figures that were computed by hand.

``corpus/index.yaml`` says of each log what is to be read, ``corpus/golden.json`` everything that is
read. A change of the golden file is a change of what users see.
"""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.contract import formats
from llmb.contract.formats import ParseSpec
from llmb.contract.metrics import MetricSpec
from llmb.judge.judge import judge
from llmb.measure import find_logs
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result
from llmb.plugins.loader import load_plugins

CORPUS = Path(__file__).with_name("corpus")
WINDOWS = load_plugins(builtin_plugins()).windows
GOLDEN = CORPUS / "golden.json"
LOGS: list[dict[str, Any]] = yaml.safe_load((CORPUS / "index.yaml").read_text())["logs"]
BESIDE = {"stderr.txt", "rfm_job.err", "test-run.toml", "cloudai_sbatch_script.sh"}
SUITES = ("cloudai", "superbench", "reframe")


def read(log: dict[str, Any], folder: Path = CORPUS) -> Result:
    """The verdict of a log below ``folder``, which no reference is for."""
    declared = log.get("declared", {})
    metrics = tuple(MetricSpec(name=name, unit=unit) for name, unit in declared.items())
    reader = LogReader()
    if metrics:
        spec = ParseSpec(metrics=tuple(declared), metric_units=declared)
        reader = LogReader(spec=spec, metrics=metrics, headline=metrics[0].name)
    found = result_of_log(folder / log["file"], reader, workloads={}, windows=WINDOWS)
    (result,) = judge([found], [])
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


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


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
            name: [rounded(value.mean, 8), rounded(value.std, 6), value.n, value.unit]
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


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def of_windows(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def with_hole(data: bytes) -> bytes:
    """With the zeros that a file has if two programs write to it, at the begin of a line."""
    at = data.find(b"\n", len(data) // 2) + 1
    return data[:at] + bytes(4096) + data[at:]


def with_endless_line(data: bytes) -> bytes:
    """With a line of 1 MB before the first one."""
    return b"x" * (1 << 20) + b"\n" + data


def copied(folder: Path, change: Callable[[bytes], bytes]) -> Path:
    """The corpus in ``folder``, each log changed."""
    for path in CORPUS.rglob("*"):
        if path.is_file() and path.parent != CORPUS:
            copy = folder / path.relative_to(CORPUS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            is_log = path.name not in {"test-run.toml", "cloudai_sbatch_script.sh"}
            copy.write_bytes(change(path.read_bytes()) if is_log else path.read_bytes())
    return folder


JSON = (".json", ".jsonl")


@pytest.mark.parametrize("change", [packed, of_windows, with_hole, with_endless_line])
def test_the_figures_survive_what_happens_to_files(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    folder = copied(tmp_path, change)
    for log in LOGS:
        if change in (with_hole, with_endless_line) and log["file"].endswith(JSON):
            continue  # no JSON any more
        got = read(log, folder)
        figures = {name: got.metrics.mean(name) for name in log["figures"]}
        assert figures == pytest.approx(log["figures"], rel=1e-6), log["file"]
        assert got.status == log["status"], log["file"]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_part_of_a_log_has_no_wrong_figure(part: float, tmp_path: Path) -> None:
    """Cut in the middle of a line too: what is measured is what complete lines say."""
    folder = copied(tmp_path, lambda data: data[: int(part * len(data))])
    for log in LOGS:
        got = read(log, folder)
        time = got.metrics.step_time
        if time is not None and log["status"] == "Success" and got.metrics.window is not None:
            first, last = got.metrics.window
            each = log["figures"].get("step_time")
            # the mean of 2 + n/100 over a window is between those of its ends
            is_steady = log["format"].startswith("Trainer") or each is None
            assert is_steady or 2 + (first - 1) / 100 <= time <= 2 + last / 100, log["file"]
        if part == 0:
            assert got.metrics.value is None, log["file"]


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
