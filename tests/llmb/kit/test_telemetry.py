# SPDX-License-Identifier: Apache-2.0
"""The process beside the ranks changes nothing about them: their end, their signals, their files."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from llmb.contract.launch import Launch, Program, Wrapper
from llmb.kit.telemetry import with_telemetry
from llmb_testing import nvml
from llmb_testing.nvml import Change

WORKLOADS = Path(__file__).parents[3] / "workloads"
LAUNCH = Launch(name="x", nodes=1, ranks_per_node=1, time_limit=60, program=Program(argv=("true",)))


def start(
    folder: Path,
    *program: str,
    launch: Launch = LAUNCH,
    variables: Mapping[str, str] | None = None,
    files: Sequence[int] = (),
) -> subprocess.Popen[str]:
    """A rank as a cluster type starts it: a process group of its own, with its wrappers."""
    words = [word for wrapper in with_telemetry(launch).wrappers for word in wrapper.argv]
    return subprocess.Popen(
        [*words, *program],
        env={**os.environ, "PYTHONPATH": str(WORKLOADS), **(variables or {})},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        pass_fds=files,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


def test_it_is_the_outermost_wrapper() -> None:
    numa = Wrapper(name="numa", argv=("numactl",))
    launch = Launch(
        name="x",
        nodes=1,
        ranks_per_node=1,
        time_limit=60,
        program=Program(argv=("true",)),
        wrappers=(numa,),
        venv="/v",
    )
    changed = with_telemetry(launch)
    assert [wrapper.name for wrapper in changed.wrappers] == ["telemetry", "numa"]
    # what an environment has, and an image's own Python otherwise
    words = ("-S", "-m", "llmb_workloads.telemetry", "log-x.out")
    assert changed.wrappers[0].argv[-5:] == ("/v/bin/python", *words)
    assert with_telemetry(LAUNCH).wrappers[0].argv[-5:] == ("python3", *words)


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        ("echo out; echo err >&2", 0, "out\nerr\n"),
        ("exit 7", 7, ""),
        ("kill -9 $$", -signal.SIGKILL, ""),
        ("kill -11 $$", -signal.SIGSEGV, ""),
    ],
)
def test_a_rank_ends_as_its_program(tmp_path: Path, script: str, code: int, output: str) -> None:
    assert end(start(tmp_path, "bash", "-c", script)) == (code, output)


def test_a_program_that_does_not_exist_is_an_error_of_the_rank(tmp_path: Path) -> None:
    assert end(start(tmp_path, "no-such-program"))[0] == 127


@pytest.mark.parametrize("python", ["/nowhere/bin/python", "/bin/false"])
def test_no_python_is_no_telemetry_and_no_error(tmp_path: Path, python: str) -> None:
    launch = Launch(
        name="x",
        nodes=1,
        ranks_per_node=1,
        time_limit=60,
        program=Program(argv=("true",)),
        venv=python.removesuffix("/bin/python"),
    )
    assert end(start(tmp_path, "echo", "ran", launch=launch)) == (0, "ran\n")


def test_other_ranks_of_a_node_become_their_program(tmp_path: Path) -> None:
    process = start(tmp_path, "bash", "-c", "echo $$", variables={"LLMB_LOCAL_RANK": "3"})
    assert end(process) == (0, f"{process.pid}\n")


def test_a_program_may_end_its_work_after_a_signal_to_its_group(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "def save(number, frame):\n"
        "    print('saved')\n"
        "    sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = start(tmp_path, sys.executable, "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert end(process) == (3, "saved\n")


def test_a_program_gets_no_ignored_signal_and_no_further_file(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "ignored = [n for n in (1, 2, 3, 10, 12, 15) if signal.getsignal(n) is signal.SIG_IGN]\n"
        "print(ignored, sorted(map(int, os.listdir('/proc/self/fd')))[:-1])\n"
    )
    plain = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert end(start(tmp_path, sys.executable, "-c", script)) == (0, plain.stdout)


@pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler")
def test_the_line_comes_after_the_program_s_last(tmp_path: Path) -> None:
    library = nvml.build(tmp_path / "lib")
    changes = [Change(key="gpus", value=1)]
    variables = nvml.environment(library, tmp_path / "script", changes)
    (tmp_path / "log-x.out").write_text("")
    process = start(
        tmp_path,
        "bash",
        "-c",
        "until [[ -e $(echo telemetry-*.jsonl) ]]; do sleep 0.1; done; sleep 0.5; echo last",
        variables=variables,
    )
    code, out = end(process)
    last, line = out.splitlines()
    assert (code, last) == (0, "last")
    assert line.startswith("llmb telemetry ")


@pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler")
def test_it_holds_no_connection_of_the_rank_open(tmp_path: Path) -> None:
    library = nvml.build(tmp_path / "lib")
    variables = nvml.environment(library, tmp_path / "script", [Change(key="gpus", value=1)])
    (tmp_path / "log-x.out").write_text("")
    reading, writing = os.pipe()
    process = start(tmp_path, "sleep", "60", variables=variables, files=[writing])
    while not [*tmp_path.glob("telemetry-*.jsonl")]:
        time.sleep(0.1)
    (beside,) = _processes(process.pid, "llmb_workloads.telemetry")
    open_files = [str(link.readlink()) for link in Path(f"/proc/{beside}/fd").iterdir()]
    assert str(Path(f"/proc/self/fd/{writing}").readlink()) not in open_files
    os.killpg(process.pid, signal.SIGKILL)
    end(process)
    os.close(reading)
    os.close(writing)


@pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler")
def test_a_killed_rank_leaves_no_process(tmp_path: Path) -> None:
    library = nvml.build(tmp_path / "lib")
    variables = nvml.environment(library, tmp_path / "script", [Change(key="gpus", value=1)])
    (tmp_path / "log-x.out").write_text("")
    process = start(tmp_path, "sleep", "60", variables=variables)
    while not [*tmp_path.glob("telemetry-*.jsonl")]:
        time.sleep(0.1)
    process.kill()  # the shell alone
    process.wait()
    while beside := _processes(process.pid, "llmb_workloads.telemetry"):
        time.sleep(0.1)
    assert not beside
    os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout is not None
    process.stdout.close()


def _processes(group: int, word: str) -> Sequence[int]:
    """The processes of a group whose command has this word, without the shell that begins them."""
    matches = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            if os.getpgid(int(folder.name)) == group and word in words and words[0] != "bash":
                matches.append(int(folder.name))
        except OSError:
            continue
    return matches
