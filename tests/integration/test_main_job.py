# SPDX-License-Identifier: Apache-2.0
"""The main job with all real parts: a job list, the supervisor, torch training, the logs, the
results.

Torch trains where a test depends on it. Elsewhere the jobs are fakes that log steps.
"""

import csv
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

LIST = """\
pretrain_nemotron4_tiny:
('bf16', 2, 1)
pretrain_llama3.1_tiny:
('fp32', 1, 1)
nemotron-h_tiny:
('bf16', 1, 1)
"""
FAKED = ("single", "-w", "nemotron4", "-s", "tiny", "--dtype", "bf16", "--scale")
SHORT = ("single", "-w", "llama3.1", "-s", "tiny", "--dtype", "fp32", "--scale")


def test_a_job_list_becomes_a_table_of_results(
    machine_at: Callable[..., Any], tmp_path: Path
) -> None:
    """Three workloads train on one and two ranks, learn and are measured. All formats agree."""
    machine = machine_at("install")
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(LIST)
    done = machine.llmb("submit-all", jobs, "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["summary"] == {
        "success_experiments": 3,
        "failed_experiments": 0,
        "success_rate": 100,
    }
    assert report["analysis"] == {"min_iteration": 11, "max_iteration": 44}
    for result in report["results"]:
        assert (result["status"], result["steps"], result["max_iteration"]) == ("Success", 50, 49)
        _check_figures(result)
        losses = [
            float(loss)
            for loss in re.findall(r"reduced_train_loss: (\S+)", Path(result["path"]).read_text())
        ]
        assert len(losses) == 50
        assert sum(losses[-5:]) < 0.8 * sum(losses[:5])  # it learns
    again = machine.llmb("results", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(again.stdout)))
    assert [float(row["time_mean_seconds"]) for row in rows] == [
        pytest.approx(result["time_mean_seconds"]) for result in report["results"]
    ]
    parsed = json.loads(
        machine.run("parse", machine.install / "workloads", "--format", "json").stdout
    )
    by_path = {result["path"]: result["tokens_per_second"] for result in parsed["results"]}
    assert by_path == {result["path"]: result["tokens_per_second"] for result in report["results"]}


def _check_figures(result: dict[str, Any]) -> None:
    """Check that the figures of a result follow from its step time."""
    gbs, gpus = (
        int(re.findall(rf"_{name}(\d+)", result["experiment"])[0]) for name in ("gbs", "gpus")
    )
    assert result["tokens_per_second"] == pytest.approx(64 * gbs / result["time_mean_seconds"])
    assert result["tokens_per_second_per_gpu"] == pytest.approx(result["tokens_per_second"] / gpus)
    flops = result["model_flops"] * gbs / result["time_mean_seconds"] / gpus / 1e12
    assert result["model_tflops_per_gpu"] == pytest.approx(flops)
    assert result["mfu"] is None  # unknown for CPUs


def test_a_killed_rank_fails_only_its_run(
    machine_at: Callable[..., Any], wording: Callable[..., None]
) -> None:
    """kill -9 of a running rank: its run fails with that reason, and the next job runs."""
    machine = machine_at("install", trained=("pretrain_llama3.1",))
    assert machine.llmb(*SHORT, 2, "--set", "max_steps=5000").returncode == 0
    assert machine.llmb(*FAKED, 1, "--set", "max_steps=5").returncode == 0
    runs = [row["id"] for row in machine.jobs()]
    machine.wait_for(machine.trains)
    _, victim = machine.ranks()
    os.kill(victim, signal.SIGKILL)
    done = machine.llmb("jobs", "wait", *runs)  # by id: without ids, `jobs wait` skips ended runs
    assert done.returncode == 3, done.stderr
    results = json.loads(machine.llmb("results", "--session", "all", "--format", "json").stdout)[
        "results"
    ]
    assert [result["status"] for result in results] == ["Failed", "Success"]
    wording("results", results[0]["reason"].partition(";")[0])


def test_a_killed_supervisor_is_replaced_and_knows_the_running_job(machine: Any) -> None:
    """The run continues, the next command finds it, and the queue continues after it."""
    assert machine.llmb(*SHORT, 1, "--set", "max_steps=60").returncode == 0
    assert machine.llmb(*SHORT, 1, "--set", "max_steps=5").returncode == 0
    (rank,) = machine.wait_for(machine.ranks)
    os.kill(rank, signal.SIGSTOP)  # the run cannot end before the next lines
    holder = max(machine.state.glob("supervisor.lock.*"), key=lambda path: int(path.suffix[1:]))
    os.kill(json.loads(holder.read_text())["pid"], signal.SIGKILL)
    assert [row["state"] for row in machine.jobs()] == ["RUNNING", "PENDING"]
    os.kill(rank, signal.SIGCONT)
    done = machine.llmb("jobs", "wait")
    assert done.returncode == 0, done.stderr
    rows = machine.jobs()
    assert [row["state"] for row in rows] == ["COMPLETED", "COMPLETED"], rows


def test_ctrl_c_stops_waiting_and_cancel_ends_running_and_pending_jobs(machine: Any) -> None:
    """In a real terminal: the live display shows steps, Ctrl-C stops only the command, and the run
    continues.

    Then that run and a pending one are cancelled: both are CANCELLED, and Cancelled in results with
    the reason.
    """
    program = str(Path(sys.executable).with_name("llmb-run"))
    words = [
        *map(str, SHORT),
        "1",
        "--set",
        "max_steps=5000",
        "--install",
        str(machine.install),
        "--wait",
    ]
    environment = {**os.environ, "LLMB_STATE_DIR": str(machine.state), "TERM": "xterm"}
    terminal = pexpect.spawn(
        program, words, env=environment, dimensions=(30, 160), timeout=300, encoding="utf-8"
    )
    terminal.expect(r"\d+/5000")
    terminal.sendintr()
    terminal.expect("Stopped watching")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert machine.job(0)["state"] == "RUNNING"
    assert machine.llmb(*SHORT, 1, "--set", "max_steps=5000").returncode == 0
    assert machine.llmb("jobs", "cancel", "--all").returncode == 0
    assert machine.llmb("jobs", "wait").returncode in (0, 3)  # 0 if both had already ended
    rows = machine.jobs()
    assert [row["state"] for row in rows] == ["CANCELLED", "CANCELLED"], rows
    results = json.loads(machine.llmb("results", "--session", "all", "--format", "json").stdout)[
        "results"
    ]
    assert all(
        result["status"] == "Cancelled" and "CANCELLED" in result["reason"] for result in results
    )


def test_two_install_directories_share_the_machine(machine_at: Callable[..., Any]) -> None:
    """Each has its own runs. The jobs of both run one after another; `jobs logs -f` prints the log
    until its end.
    """
    one, other = machine_at("one", trained=()), machine_at("other", trained=())
    assert one.llmb(*SHORT, 1, "--set", "max_steps=30").returncode == 0
    assert other.llmb(*SHORT, 1, "--set", "max_steps=5").returncode == 0
    name = other.job(0)["id"][:4]
    followed = other.llmb("jobs", "logs", name, "-f")
    assert followed.returncode == 0
    assert "iteration 4/4" in followed.stdout
    assert "max_steps=5` reached" in followed.stdout
    shown = other.llmb("jobs", "show", name, "--format", "json")
    assert json.loads(shown.stdout)["state"] == "COMPLETED"
    assert (done := one.llmb("jobs", "wait")).returncode == 0, done.stderr
    assert (done := other.llmb("jobs", "wait")).returncode == 0, done.stderr
    assert len(one.jobs()) == len(other.jobs()) == 1
    assert one.journal(0)["end"]["ended"] <= other.journal(0)["started"]


def test_a_faulty_list_submits_nothing(machine: Any, tmp_path: Path) -> None:
    """Five different faults give five errors with their lines, and exit code 2."""
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(
        "('bf16', [1], 1)\n"
        "nemotron4_tiny:\n('bf16', [3], 1)\n('fp16', [1], 1)\nnot a task\n"
        "llama3.1_tinny:\n('bf16', [1], 1)\n"
    )
    done = machine.llmb("submit-all", jobs)
    assert done.returncode == 2
    places = re.findall(rf"^error: {re.escape(str(jobs))}:(\d+): ", done.stderr, re.MULTILINE)
    assert places == ["1", "3", "4", "5", "6"]
    assert machine.jobs() == []
