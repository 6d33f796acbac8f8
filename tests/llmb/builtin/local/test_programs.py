# SPDX-License-Identifier: Apache-2.0
"""Tests of programs of any kind on this machine: commands, bash, servers with clients, what runs
after them.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmb.builtin.local.local_cluster import faults_of_launch
from llmb.contract.launch import Launch, Program, Server, StagedFile
from llmb.kit.rank_command import rank_words

Machine = Any  # the class is in conftest.py
Run = Callable[..., Any]

# Answers with its rank; notes its process id, and that it got SIGTERM.
SERVER = """\
import http.server, os, signal, sys
rank = os.environ["LLMB_RANK"]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"rank {rank}".encode())
def end(number, frame):
    open(f"ended-{rank}", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(f"pid-{rank}", "w").write(str(os.getpid()))
print("serves", flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["LLMB_SERVER_PORT"])), Handler).serve_forever()
"""
CLIENT = """\
import glob, os, urllib.request
print("got", urllib.request.urlopen(f"http://127.0.0.1:{os.environ['LLMB_SERVER_PORT']}").read().decode(), flush=True)
"""
PYTHON = sys.executable


@pytest.fixture
def run(machine: Machine) -> Run:
    """Submits a run of a program without any Python environment of llmb's."""

    def submit(program: Program, **changes: Any) -> Any:
        return machine.submit("", program=program, venv=None, **changes)

    return submit


def client(text: str = CLIENT) -> Program:
    return Program(argv=(PYTHON, "-c", text))


def serve(text: str = SERVER, **changes: Any) -> Server:
    return Server(program=Program(argv=(PYTHON, "-c", text)), **{"ready_seconds": 120, **changes})


def lines(run: Any) -> list[str]:
    text: str = run.log.read_text()
    return text.splitlines()


def test_a_command_runs_in_the_run_s_folder_with_its_arguments(machine: Machine, run: Run) -> None:
    done = run(Program(argv=("printf", "%s|")), args=("two words", "$HOME", "it's\n", ""))
    machine.ends(done)
    assert done.log.read_text() == "two words|$HOME|it's\n||"
    machine.ends(made := run(Program(argv=("touch", "made"))))
    assert (made.work / "made").exists()


def test_lines_of_bash_have_arguments_and_an_exit_code(machine: Machine, run: Run) -> None:
    failed = run(
        Program(shell='for word in "$@"; do echo "<$word>"; done\nexit 7'), args=("a b", "*")
    )
    assert machine.ends(failed, "FAILED").exit_code == 7
    assert lines(failed) == ["<a b>", "<*>"]


def test_a_command_that_does_not_exist_is_named(machine: Machine, run: Run) -> None:
    failed = run(Program(argv=("no-such-command",)))
    assert machine.ends(failed, "FAILED").exit_code == 127
    assert "no-such-command" in failed.log.read_text()


def test_commands_of_the_environment_come_first(machine: Machine) -> None:
    command = machine.root / "venv/bin/own-command"
    command.write_text("#!/bin/sh\necho own\n")
    command.chmod(0o755)
    done = machine.submit("", program=Program(argv=("own-command",)))
    machine.ends(done)
    assert lines(done) == ["own"]


def test_files_that_run(machine: Machine, run: Run) -> None:
    staged = (
        StagedFile(name="bin/go", text="#!/bin/sh\ncat ../data\n", executable=True),
        StagedFile(name="data", text="x"),
    )
    done = run(Program(shell="cd bin && ./go"), files=staged)
    machine.ends(done)
    assert lines(done) == ["x"]
    assert (done.work / "data").stat().st_mode & 0o111 == 0


def test_a_program_that_starts_others_itself(machine: Machine, run: Run) -> None:
    """One process, which knows how many the job has GPUs for."""
    done = run(
        Program(shell='echo "$LLMB_RANK $RANK of $WORLD_SIZE, $LOCAL_WORLD_SIZE here"'),
        ranks=3,
        start="once",
    )
    machine.ends(done)
    assert lines(done) == ["0 0 of 3, 3 here"]


def test_every_rank_runs_a_command(machine: Machine, run: Run) -> None:
    done = run(Program(shell='echo "$RANK of $WORLD_SIZE"'), ranks=3)
    machine.ends(done)
    assert sorted(lines(done)) == ["0 of 3", "1 of 3", "2 of 3"]


def test_what_runs_after_sees_what_the_program_wrote_once(machine: Machine, run: Run) -> None:
    done = run(
        Program(shell="echo $RANK > wrote-$RANK; echo main"),
        ranks=2,
        after=Program(shell="cat wrote-0; echo after"),
    )
    machine.ends(done)
    assert sorted(lines(done)) == ["0", "after", "main", "main"]


def test_nothing_runs_after_a_failure(machine: Machine, run: Run) -> None:
    failed = run(Program(shell="exit 5"), after=Program(shell="touch after"))
    assert machine.ends(failed, "FAILED").exit_code == 5
    assert not (failed.work / "after").exists()
    broken = run(Program(argv=("true",)), after=Program(shell="exit 6"))
    assert machine.ends(broken, "FAILED").exit_code == 6


def test_a_client_meets_its_server_which_ends_after_it(machine: Machine, run: Run) -> None:
    done = run(client(), server=serve(), after=Program(shell="[[ -e ended-0 ]] && echo after"))
    machine.ends(done)
    assert lines(done) == ["got rank 0", "after"]
    assert "serves" in (done.work / "server-0.out").read_text()
    assert not psutil.pid_exists(int((done.work / "pid-0").read_text()))


def test_only_the_first_rank_has_server_and_client(machine: Machine, run: Run) -> None:
    done = run(client(), server=serve(), ranks=2)
    machine.ends(done)
    assert lines(done) == ["got rank 0"]
    assert [path.name for path in done.work.glob("pid-*")] == ["pid-0"]


ALL_SERVERS = """\
import glob, urllib.request
for path in sorted(glob.glob("server-*.address")):
    print(urllib.request.urlopen(f"http://{open(path).read().strip()}").read().decode(), flush=True)
"""


def test_the_client_waits_for_a_server_on_every_rank(machine: Machine, run: Run) -> None:
    slow = f"import os, time\ntime.sleep(2 * int(os.environ['LLMB_RANK']))\n{SERVER}"
    done = run(client(ALL_SERVERS), server=serve(slow, on_every_rank=True), ranks=3)
    machine.ends(done)
    assert lines(done) == ["rank 0", "rank 1", "rank 2"]
    assert {path.name for path in done.work.glob("ended-*")} == {"ended-0", "ended-1", "ended-2"}


def test_a_server_is_ready_when_its_log_says_so(machine: Machine, run: Run) -> None:
    server = Server(
        program=Program(shell="echo starts; sleep 1; echo 'I am [ready]'; sleep 600"),
        ready_text="[ready]",
    )
    done = run(Program(shell="grep -c ready server-0.out"), server=server)
    machine.ends(done)
    assert lines(done) == ["1"]


def _listener(ports: range) -> socket.socket:
    for port in ports:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    pytest.fail(f"every port of {ports} is in use")


def test_a_server_s_port_is_not_in_use(machine: Machine) -> None:
    """Otherwise the client would talk to a stranger."""
    launch = machine.launch(
        "",
        program=Program(shell="echo $LLMB_SERVER_PORT"),
        server=Server(program=Program(shell="echo ready; sleep 600"), ready_text="ready"),
        venv=None,
    )
    with _listener(range(10000, 20000)) as stranger:
        taken = stranger.getsockname()[1]
        own = {
            "MASTER_PORT": str(taken + 10000),
            "LLMB_RANK": "0",
            "LLMB_LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
        }
        environ = {**machine.environ, **own}
        words = rank_words(launch, "python3")
        done = subprocess.run(words, env=environ, cwd=machine.root, capture_output=True, check=True)
    assert int(done.stdout) == taken + 64


@pytest.mark.parametrize("code", [0, 3])
def test_a_server_that_ends_before_it_is_ready_fails_the_run(
    machine: Machine, run: Run, code: int
) -> None:
    failed = run(
        Program(argv=("touch", "client")),
        server=serve(f"print('no weights'); raise SystemExit({code})"),
    )
    assert machine.ends(failed, "FAILED").exit_code == (code or 1)
    assert "no weights" in failed.log.read_text()
    assert not (failed.work / "client").exists()


def test_a_server_that_is_never_ready_fails_the_run(machine: Machine, run: Run) -> None:
    server = Server(program=Program(shell="echo loads; exec sleep 600"), ready_seconds=1)
    failed = run(Program(argv=("touch", "client")), server=server)
    assert machine.ends(failed, "FAILED").exit_code == 1
    assert "loads" in failed.log.read_text()
    assert not (failed.work / "client").exists()


def test_a_server_that_ends_before_its_client_fails_the_run(machine: Machine, run: Run) -> None:
    server = Server(program=Program(shell="echo ready; sleep 1; exit 9"), ready_text="ready")
    failed = run(Program(shell="echo $$ > pid-client; exec sleep 600"), server=server, ranks=2)
    assert machine.ends(failed, "FAILED").exit_code == 9
    machine.gone(int((failed.work / "pid-client").read_text()))


def test_the_client_s_exit_code_is_the_run_s(machine: Machine, run: Run) -> None:
    failed = run(Program(shell="exit 4"), server=serve(on_every_rank=True), ranks=2)
    assert machine.ends(failed, "FAILED").exit_code == 4


@pytest.mark.parametrize("victim", ["pid-0", "pid-client"])
def test_a_server_or_client_that_is_killed_fails_the_run(
    machine: Machine, run: Run, victim: str
) -> None:
    failed = run(Program(shell="echo $$ > pid-client; exec sleep 600"), server=serve(), ranks=2)
    pids = {name: int(machine.text(failed, name).strip() or 0) for name in ("pid-client", "pid-0")}
    psutil.Process(pids[victim]).kill()
    assert machine.ends(failed, "FAILED").exit_code == 137
    machine.gone(*pids.values())


@pytest.mark.parametrize("after", [None, Program(argv=("touch", "after"))])
@pytest.mark.parametrize("ends", ["TIMEOUT", "CANCELLED"])
def test_the_end_of_a_run_is_the_end_of_all_its_processes(
    machine: Machine, run: Run, ends: str, after: Program | None
) -> None:
    limit = {"limit": 3} if ends == "TIMEOUT" else {}
    cluster = machine.cluster(grace=30.0)  # the server has time to end by itself
    started = Program(shell="sleep 600 & echo $! > pid-child; echo $$ > pid-client; wait")
    stopped = run(started, server=serve(), after=after, cluster=cluster, **limit)
    pids = [
        int(machine.text(stopped, name).strip() or 0)
        for name in ("pid-0", "pid-client", "pid-child")
    ]
    if ends == "CANCELLED":
        machine.cluster().cancel([stopped])
    machine.ends(stopped, ends)
    machine.gone(*pids)
    assert (stopped.work / "ended-0").exists()
    assert not (stopped.work / "after").exists()


def test_mpirun_that_is_missing_is_a_fault(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    launch: Launch = machine.launch("", program=Program(argv=("true",)), start="mpi", venv=None)
    cluster = machine.cluster()
    assert [fault.code for fault in faults_of_launch(launch, cluster.config, cluster.found)] == [
        "no-mpi"
    ]


MPIRUN = """\
#!/bin/sh
# A stand-in with the variables of MPICH: mpirun -np N command...
shift; ranks=$1; shift
for rank in $(seq 0 $((ranks - 1))); do
    PMI_RANK=$rank PMI_SIZE=$ranks MPI_LOCALRANKID=$rank "$@" &
done
wait
"""


def test_mpirun_of_the_environment_starts_the_ranks(machine: Machine) -> None:
    """tests/llmb/builtin/local/test_mpi.py runs a real one."""
    path = Path(machine.root) / "venv/bin/mpirun"
    path.write_text(MPIRUN)
    path.chmod(0o755)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LLMB_RANK", "LLMB_LOCAL_RANK")
    dump = (
        "import os; open('rank' + os.environ['RANK'], 'w').write(' '.join(map(os.environ.get, "
        + repr(names)
        + ")))"
    )
    done = machine.submit(dump, ranks=3, start="mpi", after=Program(shell="echo after $LLMB_RANK"))
    machine.ends(done)
    assert [(done.work / f"rank{rank}").read_text() for rank in range(3)] == [
        f"{rank} 3 {rank} 3 {rank} {rank}" for rank in range(3)
    ]
    assert lines(done) == ["after 0"]
