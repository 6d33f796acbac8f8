# SPDX-License-Identifier: Apache-2.0
"""`llmb-run export` on an install directory: what it writes, its exit codes, its refusals."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from llmb.judge.export import junit_case
from llmb.measure.result import PENDING, RUNNING
from llmb_testing.results import result_of

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Wording = Callable[..., None]


@pytest.fixture
def night(install: Any) -> Any:
    """A good run, a slow one and a failed one."""
    install.measured("a1", 2.7)
    install.measured("b1", 4.0, dtype="fp8")
    install.run("c1", install.job("nemotron4_15b", "bf16", 32), None, "FAILED")
    return install


def exported(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run("results", "--format", "json").stdout)["results"]
    return rows


def test_openmetrics_has_the_values_of_results(night: Any, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "llmb.prom"
    path.write_text("old")
    done = run("export", "openmetrics", "-o", path)
    assert done.returncode == run("results").returncode == 3
    assert [*tmp_path.glob("*.prom*"), *tmp_path.glob(".*prom*")] == [path]
    assert path.stat().st_mode & 0o044 == 0o044  # node_exporter is another user
    families = {family.name: family for family in text_string_to_metric_families(path.read_text())}  # type: ignore[no-untyped-call]
    for row in exported(run):
        for name, key in (
            ("llmb_step_time_seconds", "time_mean_seconds"),
            ("llmb_tokens_per_second_per_gpu", "tokens_per_second_per_gpu"),
            ("llmb_model_tflops_per_gpu", "model_tflops_per_gpu"),
            ("llmb_mfu_ratio", "mfu"),
            ("llmb_ratio", "ratio"),
        ):
            values = [
                sample.value
                for sample in families[name].samples
                if sample.labels["experiment"] == row["experiment"]
            ]
            assert values == ([] if row[key] is None else [pytest.approx(row[key])])
    times = families["llmb_run_timestamp_seconds"].samples
    assert {sample.value for sample in times} >= {1000.0}


def test_ctrf_has_the_time_of_runs(night: Any, run: Run) -> None:
    done = run("export", "ctrf", "a1")
    (test,) = json.loads(done.stdout)["results"]["tests"]
    assert (done.returncode, test["status"], test["executionId"]) == (0, "passed", "a1")
    assert test["duration"] == 900_000
    assert test["start"] == 1_000_000  # as its record has it
    assert test["stop"] == 1_000_000  # as its state has it: the fixture's runs started at 100 s


def test_the_sessions_are_named_once(install: Any, run: Run) -> None:
    install.measured("a1", 2.7)
    record = install.measured("b1", 2.7).directory / "llmb-run.json"
    later = json.loads(record.read_text())
    record.write_text(json.dumps({**later, "created": later["created"] + 5 * 86400}))
    assert run("export", "openmetrics").stderr.count("1 other") == 1


def test_options_select_as_in_results(night: Any, run: Run) -> None:
    done = run("export", "ctrf", "-w", "nemotron4_15b", "--session", "all", "--window", "20-30")
    assert json.loads(done.stdout)["results"]["summary"]["tests"] == 3
    assert run("export", "ctrf", "--session", "nope").returncode == 2
    assert run("export", "ctrf", "nope").returncode == 2


def test_names_that_are_not_utf8_stay_apart(
    night: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.loads(run("results", "a1", "--format", "json").stdout)
    (row,) = data["results"]
    names = ["log-\udcfe", "log-\udcff"]
    data["results"] = [{**row, "experiment": name, "path": f"{name}.out"} for name in names]
    path, summary = tmp_path / "results.json", tmp_path / "summary.md"
    path.write_text(json.dumps(data))
    done = run("export", "openmetrics", "--from", path)
    families = {own.name: own for own in text_string_to_metric_families(done.stdout)}  # type: ignore[no-untyped-call]
    experiments = [own.labels["experiment"] for own in families["llmb_runs"].samples]
    assert experiments == ["log-\\udcfe", "log-\\udcff"]
    output = tmp_path / "ctrf.json"
    assert run("export", "ctrf", "--from", path, "-o", output).returncode == 0
    tests = json.loads(output.read_text("utf-8"))["results"]["tests"]
    assert [own["testId"] for own in tests] == experiments
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run("export", "github", "--from", path).returncode == 0
    html = MarkdownIt("commonmark").enable("table").render(summary.read_text("utf-8"))
    assert [name for name in experiments if name not in html] == []


def test_results_of_a_file_and_of_stdin(night: Any, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(run("results", "--format", "json").stdout)
    done = run("export", "github", "--from", path)
    assert done.returncode == 3
    assert done.stdout.count("::error ") == 2
    assert done.stdout == run("export", "github").stdout


_FEW_KEYS = '{"results": [{"experiment": "e", "status": "Success", "verdict": null}]}'


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"results": 1}', '{"results": [1]}', '{"results": [{}]}', _FEW_KEYS],
)
def test_a_file_without_results(content: str, run: Run, tmp_path: Path, wording: Wording) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    done = run("export", "ctrf", "--from", path)
    assert done.returncode == 2
    wording("export", done.stderr)


def test_the_summary_is_added(
    night: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# Before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    run("export", "github")
    text = path.read_text()
    assert text.startswith("# Before\n")
    assert text.count("\n| ") == 1 + 3


def test_a_summary_that_cannot_be_written_changes_nothing_else(
    night: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    expected = run("export", "github")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "missing" / "summary.md"))
    done = run("export", "github")
    assert (done.returncode, done.stdout) == (3, expected.stdout)
    wording("export", done.stderr)


def test_refusals(night: Any, run: Run, tmp_path: Path, wording: Wording) -> None:
    for words in (
        ("openmetrics", "-o", tmp_path / "missing" / "llmb.prom"),
        ("ctrf", "--from", tmp_path / "missing.json"),
        ("ctrf", "--from", "-", "a1"),
        ("webhook",),
        ("webhook", "--url", "host/path"),
        ("webhook", "--url", "https://user:word@host/"),
    ):
        done = run("export", *words)
        assert done.returncode == 2
        assert "word@" not in done.stderr
        wording("export", done.stderr)


class Receiver(HTTPServer):
    """Keeps the objects and tokens that are posted; answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keep)
        self.status = 200
        self.posted: list[tuple[dict[str, Any], str | None]] = []


class _Keep(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((json.loads(body), self.headers["Authorization"]))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_webhook_of_the_configuration(
    make_install: Any, llmb_here: Run, receiver: Receiver, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    url = f"http://127.0.0.1:{receiver.server_port}/hidden"
    section = {"webhook_url": url, "webhook_token_file": str(token)}
    install = make_install(plugins={"llmb-export": section})
    install.measured("a1", 2.7)
    done = llmb_here("export", "webhook", "--install", install.folder)
    data = json.loads(llmb_here("results", "--format", "json", "--install", install.folder).stdout)
    assert (done.returncode, receiver.posted) == (0, [(data, "Bearer s3cret")])
    assert "hidden" not in done.stderr
    written = [path for path in install.folder.rglob("*") if path.is_file()]
    assert not any(b"s3cret" in path.read_bytes() for path in written)


def test_a_webhook_never_changes_the_exit_code(
    night: Any, run: Run, receiver: Receiver, wording: Wording
) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/hidden"
    assert run("export", "webhook", "a1", "--url", url).returncode == 0
    assert run("export", "webhook", "--url", url).returncode == 3
    receiver.status = 503
    done = run("export", "webhook", "a1", "--url", url, "--attempts", "1")
    assert done.returncode == 0
    wording("export", done.stderr, {str(receiver.server_port): "<port>"})


def test_the_dashboard_is_a_file(run: Run, tmp_path: Path) -> None:
    assert run("export", "dashboard", "-o", tmp_path / "d.json").returncode == 0
    assert json.loads((tmp_path / "d.json").read_text())["uid"] == "llmb-results"


@pytest.mark.parametrize("status", [PENDING, RUNNING])
@pytest.mark.parametrize("reason", ["waiting: Priority", None])
def test_a_run_that_has_not_ended_is_skipped_in_junit_and_says_why(
    status: str, reason: str | None
) -> None:
    values = {"experiment": "e", "path": "e.out", "status": status, "reason": reason}
    case = junit_case(result_of(values))
    assert (case.outcome, case.message) == ("skipped", reason or status)


def test_junit_as_its_readers_see_it(night: Any, run: Run) -> None:
    done = run("results", "--format", "junit")
    suite = next(iter(JUnitXml.fromstring(done.stdout.encode())))
    counts = suite.tests, suite.failures, suite.errors, suite.skipped
    suite.update_statistics()  # type: ignore[no-untyped-call]
    assert counts == (suite.tests, suite.failures, suite.errors, suite.skipped) == (3, 2, 0, 0)
    assert ElementTree.fromstring(done.stdout).tag in ("testsuite", "testsuites")
