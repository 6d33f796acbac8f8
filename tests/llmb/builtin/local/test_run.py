# SPDX-License-Identifier: Apache-2.0
"""Tests of one local run from submission to end: its environment, its logs, and how it can fail."""

import errno
import itertools
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
import pytest

from llmb.builtin.local import journal, queue
from llmb.builtin.local.ranks import Exit, Ranks, free_port, read_script, sweep
from llmb.contract.launch import Program, StagedFile, Wrapper
from llmb.core import shell
from llmb.kit import programs

Machine = Any  # the class is in conftest.py

TELL = """
import json, os
from collections.abc import Callable
from pathlib import Path
Path(f"environment{os.environ['RANK']}.json").write_text(json.dumps(dict(os.environ)))
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
"""
SLEEP = """
import os, time
from pathlib import Path
Path(f"pid{os.environ['RANK']}.part").write_text(str(os.getpid()))
Path(f"pid{os.environ['RANK']}.part").rename(f"pid{os.environ['RANK']}")
time.sleep(600)
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
GIVEN = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "LLMB_RANK",
    "LLMB_NODE_RANK",
    "LLMB_LOCAL_RANK",
    "LLMB_RUN_ID",
    "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED",
    "PYTHONPATH",
}
LEAKS = {
    "PYTHONPATH": "/nowhere",
    "SLURM_JOB_ID": "7",
    "SBATCH_QOS": "x",
    "LLMB_INSTALL": "/x",
    "RANK": "9",
    "X": "1",
}


def environments(machine: Machine, run: Any) -> list[dict[str, str]]:
    return [
        json.loads((run.work / f"environment{rank}.json").read_text())
        for rank in range(run.launch.ranks_per_node)
    ]


def test_ranks_know_their_place(machine: Machine) -> None:
    run = machine.submit(TELL, ranks=2, environment={"NCCL_DEBUG": "WARN"})
    state = machine.end(run)
    assert (state.state, state.reason, state.exit_code) == ("COMPLETED", "", 0)
    assert state.started <= state.ended
    first, second = environments(machine, run)
    assert [first[name] for name in ("RANK", "LOCAL_RANK", "LLMB_RANK", "LLMB_LOCAL_RANK")] == [
        "0"
    ] * 4
    assert [second[name] for name in ("RANK", "LOCAL_RANK", "LLMB_RANK", "LLMB_LOCAL_RANK")] == [
        "1"
    ] * 4
    assert {env["MASTER_PORT"] for env in (first, second)} == {first["MASTER_PORT"]}
    assert first["WORLD_SIZE"] == first["LOCAL_WORLD_SIZE"] == "2"
    assert first["OMP_NUM_THREADS"] == "2"  # of the 4 CPUs
    assert first["MASTER_ADDR"] == "127.0.0.1"
    assert first["NCCL_DEBUG"] == "WARN"
    assert first["PYTHONPATH"] == str(programs.path(machine.install, programs.digest()))
    ranks = [f"rank {rank} of 2" for rank in range(2)]
    assert sorted(run.log.read_text().splitlines()) == ranks


def test_a_variable_that_is_not_utf_8_reaches_the_rank(machine: Machine) -> None:
    run = machine.submit(
        "import os\nprint(os.environb[b'ODD'].hex())", environment={"ODD": os.fsdecode(b"a\xff")}
    )
    assert machine.end(run).state == "COMPLETED"
    assert run.log.read_text() == "61ff\n"


def test_nothing_of_the_submitting_shell_leaks(machine: Machine) -> None:
    machine.environ |= LEAKS
    run = machine.submit(TELL)
    machine.end(run)
    (environment,) = environments(machine, run)
    assert set(environment) - {"PATH", "HOME", "LANG", "LC_CTYPE"} == GIVEN
    assert environment["RANK"] == "0"
    assert environment["PYTHONPATH"] != "/nowhere"


def test_a_secret_reaches_the_rank_and_no_file(machine: Machine) -> None:
    secret = "s3cret-value-of-the-test"
    machine.environ |= {"HF_TOKEN": secret, "WANDB_MODE": "off"}
    cluster = machine.cluster()
    config = replace(cluster.config, pass_environment=("WANDB_MODE",))
    look = (
        "import os\nassert len(os.environ['HF_TOKEN']) == 24 and os.environ['WANDB_MODE'] == 'off'"
    )
    run = machine.submit(
        look, cluster=machine.cluster(config=config), secrets=("HF_TOKEN", "NOT_SET")
    )
    machine.ends(run)
    # it removes the entry, which held the secret, at some time after the run has started
    machine.supervisor_gone()
    texts = [
        path.read_bytes()
        for path in machine.root.rglob("*")
        if path.is_file() and path.name != "python"
    ]
    assert len(texts) > 10
    assert not [text for text in texts if secret.encode() in text]


def test_a_waiting_entry_is_for_its_user_alone(machine: Machine) -> None:
    machine.text(machine.submit(SLEEP), "pid0")
    waiting = machine.submit(SLEEP)
    machine.wait_until(
        lambda: len(queue.entries(machine.state)) == 1, "the removal of the entry that has started"
    )
    (entry,) = queue.entries(machine.state)
    assert queue.run_id(entry) == waiting.id
    assert (entry.stat().st_mode & 0o777, machine.state.stat().st_mode & 0o777) == (0o600, 0o700)


def test_staged_files_and_wrappers(machine: Machine) -> None:
    wrapper = Wrapper(
        name="numa", argv=("bash", "-c", 'export WRAPPED=$LLMB_LOCAL_RANK; exec "$@"', "_")
    )
    text = "import os, sys\nassert os.environ['WRAPPED'] == '0'\nprint(open(sys.argv[1]).read())"
    run = machine.submit(
        text,
        wrappers=(wrapper,),
        files=(StagedFile(name="recipe.json", text="{größe}"),),
        args=("recipe.json",),
    )
    machine.ends(run)
    assert run.log.read_text() == "{größe}\n"


def test_a_module_is_found_on_the_staged_programs(machine: Machine) -> None:
    launch = replace(machine.launch(""), program=Program(module="llmb_workloads.torch_pretrain"))
    run = machine.record(launch)
    machine.cluster().submit(run)
    state = machine.end(run)
    assert (state.state, state.exit_code) == ("FAILED", 2)
    assert re.search(r"^usage: .*llmb_workloads\.torch_pretrain", run.log.read_text(), re.MULTILINE)


def test_the_first_rank_that_fails_is_the_reason(
    machine: Machine, wording: Callable[..., None]
) -> None:
    run = machine.submit(
        "import os, time\nif os.environ['RANK'] == '1': os._exit(3)\ntime.sleep(600)", ranks=2
    )
    state = machine.end(run)
    assert (state.state, state.exit_code) == ("FAILED", 3)
    wording("jobs list", state.reason)
    seen = journal.read(run.directory)
    assert seen is not None
    assert seen.end is not None
    assert seen.end.exit_codes == (-signal.SIGTERM, 3)
    assert state.reason in run.batch_log.read_text()


def test_a_killed_rank_fails_the_run_and_the_next_one_runs(
    machine: Machine, wording: Callable[..., None]
) -> None:
    run = machine.submit(STUBBORN, ranks=2)
    after = machine.submit("print('after')")
    victims = [int(machine.text(run, f"pid{rank}")) for rank in (0, 1)]
    assert machine.ranks(run) == victims
    os.kill(victims[1], signal.SIGKILL)
    state = machine.end(run)
    assert state.state == "FAILED"
    wording("jobs list", state.reason)
    assert state.exit_code == 137
    machine.gone(victims[0])
    machine.ends(after)


def test_children_end_with_their_rank(machine: Machine) -> None:
    child = (
        "import subprocess, sys\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    )
    run = machine.submit(f"{child}open('child', 'w').write(str(p.pid))")
    machine.ends(run)
    machine.gone(int((run.work / "child").read_text()))


def test_what_a_rank_has_just_started_ends_with_it_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system shows neither its words nor its environment for a moment."""
    run = machine.record(machine.launch(""))
    child = shell.spawn(
        ["sleep", "600"], env={"LLMB_RUN_ID": run.id}, cwd=machine.root, log=machine.root / "log"
    )
    looks, environ, words = itertools.count(), psutil.Process.environ, psutil.Process.cmdline
    loaded: list[bool] = []

    def environ_of(process: psutil.Process) -> dict[str, str]:
        if process.pid == child.pid and not loaded:
            if next(looks) == 3:
                loaded.append(True)
            return {}
        return environ(process)

    monkeypatch.setattr(psutil.Process, "environ", environ_of)

    def words_of(process: psutil.Process) -> list[str]:
        return words(process) if process.pid != child.pid or loaded else []

    monkeypatch.setattr(psutil.Process, "cmdline", words_of)
    try:
        sweep(run.id)
        machine.gone(child.pid)
    finally:
        child.kill()
        child.wait()


def test_a_run_ends_at_its_time_limit(machine: Machine, wording: Callable[..., None]) -> None:
    run = machine.submit(SLEEP, limit=1)
    wording("jobs list", machine.ends(run, "TIMEOUT").reason)
    machine.gone(*machine.ranks(run))  # it may have had no time to write anything itself


def test_a_program_that_is_not_there(machine: Machine) -> None:
    run = machine.submit("", venv="/nowhere")
    assert machine.end(run).exit_code == 127
    log = run.log.read_text()
    assert ("/nowhere/bin/python" in log, os.strerror(errno.ENOENT) in log) == (True, True)


def test_cancelling_a_running_one(machine: Machine) -> None:
    run = machine.submit(SLEEP, ranks=2)
    victims = [int(machine.text(run, f"pid{rank}")) for rank in (0, 1)]
    cluster = machine.cluster()
    cluster.cancel([run])
    state = machine.end(run)
    assert state.state == "CANCELLED", machine.all_of(run)
    assert state.reason.startswith("by ")
    machine.gone(*victims)
    cluster.cancel([run])
    assert machine.poll(run) == state


def test_a_runner_that_is_terminated_writes_an_end(
    machine: Machine, wording: Callable[..., None]
) -> None:
    run = machine.submit(SLEEP)
    victim = int(machine.text(run, "pid0"))
    machine.runner(run).terminate()
    wording("jobs list", machine.end(run).reason)
    machine.gone(victim)


@pytest.mark.parametrize("with_supervisor", [True, False])
def test_a_killed_runner(
    machine: Machine, with_supervisor: bool, wording: Callable[..., None]
) -> None:
    run = machine.submit(SLEEP, ranks=2)
    victims = [int(machine.text(run, f"pid{rank}")) for rank in (0, 1)]
    runner = machine.runner(run)
    if not with_supervisor:
        machine.supervisor().kill()
    runner.kill()
    state = machine.end(run)
    assert state.state == "FAILED"
    wording("jobs list", state.reason)
    machine.gone(*victims)
    machine.ends(machine.submit(""))


def test_ranks_end_with_their_runner_though_nobody_looks(machine: Machine) -> None:
    run = machine.submit(STUBBORN, ranks=2)
    victims = [int(machine.text(run, f"pid{rank}")) for rank in (0, 1)]
    machine.supervisor().kill()
    machine.runner(run).kill()
    machine.gone(*victims)


def test_a_rank_that_was_killed_is_the_cause_though_it_is_reported_last(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, the thread that waits for it may come after that of a rank that failed
    because of it.
    """
    reported, wait = threading.Event(), Ranks._wait

    def wait_late(self: Ranks, rank: int, process: Any) -> None:
        if rank == 1:
            reported.wait()
        wait(self, rank, process)

    monkeypatch.setattr(Ranks, "_wait", wait_late)
    program = "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nsys.exit(1)"
    run = machine.record(machine.launch(program, ranks=2))
    ranks = Ranks(read_script(run.script))
    try:
        victim = ranks.start(os.environ)[1].pid
        os.kill(victim, signal.SIGKILL)
        os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
        (run.work / "go").touch()
        first = machine.wait_until(lambda: ranks.next_exit(0.1), "the end of rank 0")
        assert first == Exit(rank=0, code=1)
        assert ranks.cause(first) == Exit(rank=1, code=-signal.SIGKILL)
    finally:
        reported.set()
        ranks.end(0.5)
    assert ranks.codes == [1, -signal.SIGKILL]


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ([(0, 1), (2, -9)], "rank 2 was killed by signal 9 (SIGKILL)"),
        ([(2, -11), (0, -9)], "rank 2 was killed by signal 11 (SIGSEGV)"),
        ([(1, 1), (0, -6)], "rank 1 ended with exit code 1"),
        ([(1, -6), (0, 0), (2, 1)], "rank 1 was killed by signal 6 (SIGABRT)"),
    ],
)
def test_ranks_that_fail_together(
    machine: Machine, ends: list[tuple[int, int]], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was killed takes the others along, and they may be reported first; however late it
    is when one looks.
    """
    ranks = Ranks(read_script(machine.record(machine.launch("", ranks=3)).script))
    for rank, code in ends:
        ranks._ended.put(Exit(rank=rank, code=code))
    first = ranks.next_exit(0.0)
    assert first is not None
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    assert str(ranks.cause(first)) == cause


def test_an_end_stays(machine: Machine) -> None:
    run = machine.submit("")
    state = machine.end(run)
    journal.conclude(run.directory, run.id, journal.end_now("FAILED", "too late"))
    machine.cluster().cancel([run])
    machine.cluster().submit(run)
    assert machine.poll(run) == state
    assert not (run.directory / journal.CANCEL).exists()


def test_the_ranks_meet_at_a_port_that_nobody_else_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that nobody has now, and none of those that the system gives to whoever connects before
    the ranks listen.
    """
    assert free_port() in range(20000, 30000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        monkeypatch.setattr("llmb.builtin.local.ranks._PORTS", [number])
        monkeypatch.setattr("llmb.builtin.local.ranks._TRIES", 1)
        assert free_port() not in {0, number}
