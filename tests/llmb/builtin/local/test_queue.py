# SPDX-License-Identifier: Apache-2.0
"""Tests of the supervisor and its queue: order, exactly once, replacement, and what must not stop
it.
"""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

import llmb
from llmb.builtin.local import journal, queue
from llmb.builtin.local.queue import LOCK, LOG, ensure_supervisor
from llmb.core import files, locks, permissions, shell
from llmb.core.process import ProcessId
from llmb.errors import LlmbError

Machine = Any  # the class is in conftest.py

WAIT_FOR_GO = (
    "import os, time\nopen('started', 'w').close()\nwhile not os.path.exists('go'):"
    " time.sleep(0.02)"
)
SLEEP = "import time\nopen('started', 'w').close()\ntime.sleep(600)"


def append(path: Path, word: str) -> str:
    """A program that adds its word to a file, and fails if another job runs beside it."""
    return (
        f"import os, time\nlock = os.open({str(path)!r} + '.lock', os.O_CREAT |"
        f" os.O_EXCL)\nopen({str(path)!r},"
        f" 'a').write('{word}\\n')\ntime.sleep(0.05)\nos.unlink({str(path)!r} + '.lock')\n"
    )


def test_jobs_run_one_after_another_across_installs(machine: Machine) -> None:
    installs = [machine.cluster("install"), machine.cluster("other")]
    order = machine.root / "order"
    runs = [machine.submit(append(order, str(i)), cluster=installs[i % 2]) for i in range(4)]
    for run in runs:
        machine.ends(run)
    assert order.read_text().split() == [str(i) for i in range(4)]


def test_a_waiting_run_says_how_many_are_before_it(
    machine: Machine, wording: Callable[..., None]
) -> None:
    runs = [machine.submit(SLEEP) for _ in range(3)]
    machine.text(runs[0], "started")
    states = machine.cluster().poll(runs)
    assert [states[run.id].state for run in runs] == ["RUNNING", "PENDING", "PENDING"]
    assert states[runs[0].id].reason == ""
    wording("jobs list", "\n".join(states[run.id].reason for run in runs[1:]))


def test_cancelling_a_waiting_one(machine: Machine) -> None:
    first, second, third = machine.submit(SLEEP), machine.submit(SLEEP), machine.submit("")
    machine.text(first, "started")
    machine.cluster().cancel([second])
    machine.cluster().cancel([second])
    assert machine.poll(second).state == "CANCELLED"
    assert second.id not in [queue.run_id(path) for path in queue.entries(machine.state)]
    machine.cluster().cancel([first])
    machine.ends(third)
    assert machine.poll(second).state == "CANCELLED"
    assert not (second.work / "started").exists()


def test_the_supervisor_minds_the_mark_too(machine: Machine) -> None:
    first, second = machine.submit(SLEEP), machine.submit(SLEEP)
    journal.ask_to_cancel(second.directory, "alice")
    machine.cluster().cancel([first])
    state = machine.end(second)
    assert (state.state, state.reason) == ("CANCELLED", "by alice")
    assert not (second.work / "started").exists()


def test_submitting_twice_runs_once(machine: Machine) -> None:
    blocker = machine.submit(SLEEP)
    order = machine.root / "order"
    run = machine.submit(append(order, "once"))
    assert machine.cluster().submit(run) == run.id
    assert len([path for path in queue.entries(machine.state) if queue.run_id(path) == run.id]) == 1
    machine.cluster().cancel([blocker])
    machine.ends(run)
    assert machine.cluster().submit(run) == run.id
    machine.ends(machine.submit(""))
    assert order.read_text().split() == ["once"]


def test_two_runners_of_one_run_start_it_once(
    machine: Machine, wording: Callable[..., None]
) -> None:
    order = machine.root / "order"
    run = machine.record(machine.launch(append(order, "once")))
    argv = [sys.executable, "-P", "-m", "llmb.builtin.local.runner", str(run.directory)]
    log = machine.root / "runners.log"
    started = [shell.spawn(argv, env=machine.environ, cwd=Path("/"), log=log) for _ in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    assert order.read_text().split() == ["once"]
    lines = [line for line in log.read_text().splitlines() if run.id in line]
    assert len(lines) == 3
    wording("jobs list", lines[0].partition(f"{run.id} ")[2])


def test_many_submitters_at_once(machine: Machine) -> None:
    order = machine.root / "order"
    runs = [machine.record(machine.launch(append(order, str(i)))) for i in range(6)]
    submitter = (
        "import json, os, sys\nfrom pathlib import Path\nfrom llmb.builtin.local.local_cluster"
        " import create\nfrom llmb.contract.schema import ClusterConfig\nfrom llmb.contract import"
        " record\nconfig = ClusterConfig(cluster_type='local', gpu_type='cpu',"
        f" llmb_install=Path({str(machine.install)!r}))\nfor path in sys.argv[1:]:"
        " create(config).submit(record.load(Path(path)))\n"
    )
    folders = [str(run.directory) for run in runs]
    # Each run is submitted by two of the processes.
    shares = [folders[:3], folders[3:], folders[::2], folders[1::2]]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = list(
            pool.map(
                lambda share: shell.run(
                    [sys.executable, "-c", submitter, *share], env=machine.environ
                ),
                shares,
            )
        )
    assert [one.err for one in done if one.code] == []
    for run in runs:
        machine.ends(run)
    assert sorted(order.read_text().split()) == [str(i) for i in range(6)]


def test_a_killed_supervisor_is_replaced(machine: Machine) -> None:
    first, second = machine.submit(WAIT_FOR_GO), machine.submit("")
    machine.text(first, "started")
    before = machine.supervisor()
    before.kill()
    before.wait()
    assert machine.poll(first).state == "RUNNING"
    assert machine.supervisor().pid != before.pid
    assert machine.poll(second).state == "PENDING"
    (first.work / "go").touch()
    machine.ends(second)
    assert machine.poll(first).state == "COMPLETED"
    assert machine.poll(first).ended <= machine.poll(second).started
    assert f"{first.id} was active" in machine.log


def test_the_end_of_a_job_is_known_whose_supervisor_was_killed(machine: Machine) -> None:
    run = machine.submit(WAIT_FOR_GO)
    machine.text(run, "started")
    machine.supervisor().kill()
    runner = machine.runner(run)
    (run.work / "go").touch()
    machine.gone(runner.pid)
    assert machine.poll(run).state == "COMPLETED", machine.all_of(run)


def test_a_supervisor_killed_before_its_entry_went_starts_nothing_twice(machine: Machine) -> None:
    order = machine.root / "order"
    run = machine.submit(append(order, "once"))
    machine.ends(run)
    machine.supervisor_gone()
    entry = queue.WaitingRun(
        id=run.id, directory=run.directory, argv=("/nowhere",), environment={}, umask=0o22
    )
    queue.add(machine.state, entry)
    queue.set_running(machine.state, queue.Running(id=run.id, directory=run.directory))
    assert machine.poll(run).state == "COMPLETED"
    machine.ends(machine.submit(""))
    machine.wait_until(
        lambda: not queue.entries(machine.state), "the removal of the entries of what has ended"
    )
    assert order.read_text().split() == ["once"]


def test_idle_exit_strands_no_submission(machine: Machine) -> None:
    cluster = machine.cluster(idle=0.0)
    cluster.submit(machine.record(machine.launch("")))
    for number in range(20):
        run = machine.record(machine.launch(""))
        # A runner that is over at once, so that the supervisor leaves at about the time of the next
        # submission.
        entry = queue.WaitingRun(
            id=run.id, directory=run.directory, argv=("/bin/true",), environment={}, umask=0o22
        )
        time.sleep(0.01 * (number % 10))
        queue.add(machine.state, entry)
        ensure_supervisor(machine.state, machine.environ, idle=0.0)
    # Nothing is polled, so that no further supervisor is started.
    machine.wait_until(
        lambda: all(journal.read(run.directory) for run in machine.runs), "the end of every run"
    )


def test_a_supervisor_looks_again_after_it_has_released_its_lock(
    machine: Machine, monkeypatch: Any
) -> None:
    """The submission that comes between the last look at the queue and the release is seen after
    the release.
    """
    from llmb.builtin.local import supervisor

    run = machine.record(machine.launch(""))
    queue.make_folder(machine.state)
    serve = supervisor._serve
    came: list[bool] = []

    def serve_and_be_late(folder: Path, idle: float) -> None:
        serve(folder, idle)
        if not came:
            came.append(True)
            assert locks.holder(folder, LOCK) == ProcessId.current()
            machine.cluster().submit(run)

    monkeypatch.setattr(supervisor, "_serve", serve_and_be_late)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with contextlib.chdir("/"):
        assert supervisor.main([str(machine.state), "0"]) == 0
    assert machine.poll(run).state == "COMPLETED"


def test_the_supervisor_leaves_when_idle(machine: Machine) -> None:
    machine.ends(machine.submit(""))
    machine.supervisor_gone()
    machine.ends(machine.submit(""))


def test_jobs_outlive_the_submitter_and_its_terminal(machine: Machine) -> None:
    first, second = (machine.record(machine.launch(WAIT_FOR_GO)) for _ in range(2))
    submitter = (
        "import sys\nfrom pathlib import Path\nfrom llmb.builtin.local.local_cluster import"
        " create\nfrom llmb.contract.schema import ClusterConfig\nfrom llmb.contract import"
        " record\nconfig = ClusterConfig(cluster_type='local', gpu_type='cpu',"
        f" llmb_install=Path({str(machine.install)!r}))\nfor path in sys.argv[1:]:"
        " print(create(config).submit(record.load(Path(path))))\nprint('submitted',"
        " flush=True)\nimport time\ntime.sleep(600)\n"
    )
    argv = ["-c", submitter, str(first.directory), str(second.directory)]
    terminal = pexpect.spawn(sys.executable, argv, env=machine.environ, timeout=180)
    terminal.expect("submitted")
    supervisor = machine.supervisor()
    assert os.getsid(supervisor.pid) == supervisor.pid
    terminal.close(force=True)  # the terminal goes: SIGHUP to all that belong to it
    os.kill(supervisor.pid, signal.SIGHUP)
    (first.work / "go").touch()
    machine.ends(first)
    machine.text(second, "started")
    assert supervisor.pid == machine.supervisor().pid
    (second.work / "go").touch()
    machine.ends(second)


def test_what_is_broken_is_set_aside(machine: Machine, wording: Callable[..., None]) -> None:
    blocker = machine.submit(SLEEP)
    machine.text(blocker, "started")
    (machine.state / "queue" / "00000000000000000001-broken.json").write_text(
        '{"id": "broken", "environment": "s3"'
    )
    gone, orphan, good = machine.submit(""), machine.submit(""), machine.submit("")
    shutil.rmtree(gone.directory)
    (path,) = (path for path in queue.entries(machine.state) if queue.run_id(path) == orphan.id)
    files.write_json(path, {**json.loads(path.read_text()), "argv": ["/nowhere/python"]})
    machine.cluster().cancel([blocker])
    machine.ends(good)
    wording("jobs list", machine.poll(orphan).reason)
    assert not gone.directory.exists()
    assert [path.name for path in (machine.state / "broken").iterdir()] == [
        "00000000000000000001-broken.json"
    ]
    assert "broken.json" in machine.log
    assert str(gone.directory) in machine.log


def test_a_runner_that_does_not_start_is_an_end(
    machine: Machine, wording: Callable[..., None]
) -> None:
    blocker = machine.submit(SLEEP)
    run = machine.submit("")
    (path,) = (path for path in queue.entries(machine.state) if queue.run_id(path) == run.id)
    files.write_json(path, {**json.loads(path.read_text()), "argv": ["/bin/false"]})
    machine.cluster().cancel([blocker])
    state = machine.end(run)
    assert state.state == "FAILED"
    wording("jobs list", state.reason, {str(machine.state): "<state>"})


def test_the_environment_of_the_supervisor_may_be_removed_under_it(
    machine: Machine, wording: Callable[..., None]
) -> None:
    home = machine.root / "doomed"
    venv.create(home, symlinks=True)
    shutil.copytree(
        Path(llmb.__file__).parent, home / "copy/llmb", ignore=shutil.ignore_patterns("__pycache__")
    )
    (site,) = home.glob("lib/python*/site-packages")
    (site / "found.pth").write_text(f"{home / 'copy'}\n{Path(psutil.__file__).parent.parent}\n")
    queue.make_folder(machine.state)
    argv = [
        str(home / "bin/python"),
        "-P",
        "-m",
        "llmb.builtin.local.supervisor",
        str(machine.state),
        "3600",
    ]
    supervisor = shell.spawn(argv, env=machine.environ, cwd=Path("/"), log=machine.state / LOG)
    assert machine.supervisor().pid == supervisor.pid
    shutil.rmtree(home)
    runs = [machine.submit(""), machine.submit("", venv="/nowhere"), machine.submit(SLEEP)]
    assert [machine.end(run).state for run in runs[:2]] == ["COMPLETED", "FAILED"]
    machine.runner(runs[2]).kill()
    wording("jobs list", machine.end(runs[2]).reason)
    assert machine.supervisor().pid == supervisor.pid
    supervisor.kill()
    supervisor.wait()


def test_a_restart_of_the_machine_loses_what_ran(
    machine: Machine, wording: Callable[..., None]
) -> None:
    run = machine.record(machine.launch(""))
    before = replace(ProcessId.current(), boot="another boot")
    journal.create(
        run.directory, journal.Journal(id=run.id, runner=before, ranks=(before,), started=1.0)
    )
    state = machine.poll(run)
    assert (state.state, state.certain) == ("LOST", True)
    wording("jobs list", state.reason)
    assert machine.poll(run) == state


def test_a_run_of_another_host_cannot_be_judged(machine: Machine) -> None:
    elsewhere = replace(ProcessId.current(), host="node7")
    running = machine.record(machine.launch(""))
    journal.create(running.directory, journal.Journal(id=running.id, runner=elsewhere))
    waiting = machine.record(machine.launch(""), submitter=elsewhere)
    states = [machine.poll(run) for run in (running, waiting)]
    assert [state.state for state in states] == ["UNKNOWN"] * 2
    assert all("node7" in state.reason for state in states)


def test_a_run_that_was_never_queued(machine: Machine) -> None:
    dead = shell.spawn(["sleep", "600"], env={}, cwd=Path("/"), log=machine.root / "log")
    submitter = ProcessId.of(dead.pid)
    run = machine.record(machine.launch(""), submitter=submitter)
    assert machine.poll(run).state == "PENDING"
    dead.kill()
    dead.wait()
    state = machine.poll(run)
    assert state == journal.NEVER_QUEUED
    machine.cluster().submit(run)  # reconciled
    machine.ends(run)


def test_a_run_in_the_queue_of_another_user(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, wording: Callable[..., None]
) -> None:
    before = replace(ProcessId.current(), boot="another boot")
    run = machine.record(machine.launch(""), submitter=before)
    owner = run.directory.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert machine.poll(run).state == "UNKNOWN"
    wording("jobs list", machine.poll(run).reason)


def test_a_supervisor_that_does_not_start_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, wording: Callable[..., None]
) -> None:
    run = machine.record(machine.launch(""))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LlmbError) as raised:
        machine.cluster().submit(run)
    assert raised.value.code == "supervisor-failed"
    state = machine.poll(run)
    assert state.state == "PENDING"
    wording("jobs list", state.reason, {str(machine.state): "<state>"})


def test_a_damaged_journal_is_no_end(machine: Machine) -> None:
    run = machine.record(machine.launch(""))
    (run.directory / journal.SCHEDULER).write_text("{")
    assert machine.poll(run).state == "UNKNOWN"
    assert "cannot be read" in machine.poll(run).reason


def test_the_queue_keeps_its_order_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: Any
) -> None:
    queue.make_folder(tmp_path)
    for number, now in enumerate((50, 60, 10, 10)):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        queue.add(
            tmp_path,
            queue.WaitingRun(
                id=f"r{number}", directory=tmp_path, argv=("x",), environment={}, umask=0o22
            ),
        )
    assert [queue.run_id(path) for path in queue.entries(tmp_path)] == ["r0", "r1", "r2", "r3"]


def test_a_run_has_the_umask_of_its_submitter_not_of_the_supervisor(machine: Machine) -> None:
    first = machine.submit("", cluster=machine.cluster(idle=30.0))
    machine.ends(first)
    supervisor = machine.supervisor().pid
    machine.install.chmod(0o700)
    permissions.mode_of_install.cache_clear()
    second = machine.submit("open('made', 'w')")
    machine.ends(second)
    assert machine.supervisor().pid == supervisor
    modes = [
        path.stat().st_mode & 0o077 for path in (second.log, second.batch_log, second.work / "made")
    ]
    assert modes == [0, 0, 0]
    assert first.log.stat().st_mode & 0o077 == 0o044
