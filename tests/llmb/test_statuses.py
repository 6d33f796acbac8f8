# SPDX-License-Identifier: Apache-2.0
"""Tests of the six statuses: the same words in every format, and a rate of those that succeeded or
failed alone.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from llmb.contract import record
from llmb.contract.state import JobState
from llmb.judge.export import read_export

from .conftest import HandMade, steps

Command = Callable[..., "subprocess.CompletedProcess[str]"]
OTHER = 65534  # a user's number
# Of the local cluster, whose states are journals in the runs' folders; an end that is kept is not
# asked for again.
STATES = {
    "aa": ("COMPLETED", 50, "Success"),
    "ab": ("FAILED", 3, "Failed"),
    "ac": ("CANCELLED", 50, "Cancelled"),
    "ad": ("NODE_FAIL", 50, "Failed"),
    "ae": ("LOST", 50, "Unknown"),
    "af": ("UNKNOWN", 0, "Unknown"),
    "ag": ("PENDING", 0, "Pending"),
    "ah": ("RUNNING", 13, "Running"),
    "ai": ("TIMEOUT", 50, "Success"),
}

RUNAI = """
runai:
  base_url: https://localhost/api/v1
  project: team
  pvc: {name: work, path: /work, claim: work}
"""


@pytest.fixture
def every(install: HandMade) -> dict[str, Path]:
    """A run in each state, by id, with its log; cluster type fake, which nobody can ask: what was
    seen last counts.
    """
    config = install.folder / "cluster_config.yaml"
    text = config.read_text().replace("cluster_type: local", "cluster_type: runai")
    config.write_text(f"{text}\n{RUNAI}")
    job = install.job("nemotron4_15b", "bf16", 16)
    logs = {}
    for run_id, (state, count, _) in STATES.items():
        made = install.run(
            run_id, job, steps(2.0, count), JobState(state=state, reason="why", certain=True)
        )
        record.save(replace(made, scheduler_id=f"workload-{run_id}"))
        logs[run_id] = made.log
    return logs


def statuses(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {row["run"]: row["status"] for row in json.loads(done.stdout)["results"]}


def test_one_word_for_each_state_in_every_format(
    run: Command, every: dict[str, Path], tmp_path: Path, wording: Callable[..., None]
) -> None:
    expected = {run_id: status for run_id, (_, _, status) in STATES.items()}
    done = run("results", "--format", "json")
    assert statuses(done) == expected
    assert done.returncode == 3
    summary = json.loads(done.stdout)["summary"]
    # Of the nine, two succeeded and two failed: the others say nothing about what they were to
    # measure.
    assert summary == {"success_experiments": 2, "failed_experiments": 2, "success_rate": 50}
    rows = csv.DictReader(io.StringIO(run("results", "--format", "csv").stdout))
    assert sorted(row["status"] for row in rows) == sorted(expected.values())
    suite = ElementTree.fromstring(run("results", "--format", "junit").stdout)
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("3", "1", "3")
    shown = run("results", "--full-names", "--format", "md").stdout
    assert all(status in shown for status in ("Cancelled", "Running", "Pending", "Unknown"))
    export = tmp_path / "results.json"
    export.write_text(done.stdout)
    assert {result.identity.run: result.status for result in read_export(export)} == expected
    page = run("report", "-o", str(tmp_path / "r.md"))
    assert page.returncode == 3, page.stderr
    text = (tmp_path / "r.md").read_text()
    wording("report", next(line for line in text.splitlines() if "succeeded" in line))


def test_a_run_that_completed_without_a_word_has_an_exit_code(
    run: Command, install: HandMade
) -> None:
    """Else a CI would be content without a number."""
    made = install.run("aa", install.job("nemotron4_15b", "bf16", 16), "hello\n", "COMPLETED")
    done = run("results")
    assert "Unknown" in done.stdout
    assert done.returncode == 1
    assert run("report").returncode == 1
    made.log.write_text(steps(2.7))
    assert run("results").returncode == 0


def test_a_damaged_record_is_one_row(
    run: Command, install: HandMade, every: dict[str, Path]
) -> None:
    damaged = every["aa"].parent.parent / record.RECORD
    damaged.write_text("{")
    done = run("results", "--format", "json")
    rows = [
        row
        for row in json.loads(done.stdout)["results"]
        if row["status"] == "Unknown" and row["run"] is None
    ]
    assert [row["path"] for row in rows] == [str(damaged.parent)]
    assert str(damaged) in rows[0]["reason"]
    assert len(json.loads(done.stdout)["results"]) == len(STATES)
    assert done.stderr.count(f"warning: {damaged}") == 1
    listed = json.loads(run("jobs", "list", "--format", "json").stdout)
    assert [row["state"] for row in listed if row["id"] is None] == ["UNKNOWN"]
    assert run("jobs", "list").returncode == 0


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None,
    reason=(
        "needs root, to give files to another user, and setpriv of util-linux, to be kept from"
        " reading them"
    ),
)
@pytest.mark.parametrize(
    ("part", "mode"), [("log", 0o600), ("folder", 0o700), ("record", 0o600), ("run", 0o700)]
)
def test_what_another_user_may_not_read_is_unknown(
    part: str, mode: int, install: HandMade, every: dict[str, Path]
) -> None:
    log = every["aa"]
    closed = {
        "log": log,
        "folder": log.parent,
        "record": log.parents[1] / record.RECORD,
        "run": log.parents[1],
    }[part]
    closed.chmod(mode)
    os.chown(closed, OTHER, OTHER)
    done = without_privileges("results", "--format", "json", "--install", install.folder)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"] if done.stdout else []
    assert len(rows) == len(STATES), done.stderr
    (row,) = [one for one in rows if one["run"] == "aa" or one["run"] is None]
    assert (row["status"], "Permission denied" in row["reason"]) == ("Unknown", True), row
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root, to give files to another user, and setpriv of util-linux",
)
def test_a_user_of_anothers_installation_is_not_sent_to_its_baselines(install: HandMade) -> None:
    for run in ("a1", "a2"):
        install.measured(run, 2.75, scale=24)
    own = without_privileges("results", "--install", install.folder)
    assert "llmb-run baseline accept" in own.stderr
    (install.folder / ".llmb").mkdir(exist_ok=True)
    (install.folder / ".llmb").chmod(0o500)
    done = without_privileges("baseline", "accept", "mine", "a1", "--install", install.folder)
    assert "cannot be written" in done.stderr
    assert "another user's" not in done.stderr  # their own
    for path in (install.folder, *install.folder.rglob("*")):
        os.chown(path, OTHER, OTHER)
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = without_privileges("results", "--install", install.folder)
    assert "no verdicts" in done.stderr
    assert "baseline" not in done.stderr
    done = without_privileges("baseline", "accept", "mine", "a1", "--install", install.folder)
    assert done.returncode == 1
    assert "another user's" in done.stderr
    assert "Permission denied" in done.stderr
    assert "--format json > FILE" in done.stderr
    done = without_privileges("baseline", "accept", "a/b", "a1", "--install", install.folder)
    assert (done.returncode, "another user's" in done.stderr) == (2, False)
    kept = without_privileges("results", "a1", "--format", "json", "--install", install.folder)
    file = install.folder.parent / "kept.json"
    file.write_text(kept.stdout)
    words = ("compare", "a2", file, "--format", "json", "--install", install.folder)
    assert json.loads(without_privileges(*words).stdout)["comparisons"]


def without_privileges(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The real llmb-run without root's right to read what others have closed."""
    llmb_run = Path(sys.executable).with_name("llmb-run")
    argv = [
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        str(llmb_run),
        *map(str, arguments),
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
