# SPDX-License-Identifier: Apache-2.0
"""A process beside the ranks, with an output file and a process group of its own."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmb.kit.beside import beside

# It begins another process, and both end on SIGTERM, which each writes down.
PAIR = """\
import os, signal, sys, time

def end(number, frame):
    print(f"{name} ended", flush=True)
    sys.exit()

name = "other" if os.fork() else "child"
signal.signal(signal.SIGTERM, end)
print(f"{name} begun in {os.getpgrp()}", flush=True)
time.sleep(60)
"""
WAITS = "until [[ $(grep -c begun beside-side-*.out) == 2 ]]; do sleep 0.1; done 2> /dev/null; "


def rank(folder: Path, script: str, *argv: str, **variables: str) -> tuple[int, str]:
    """Run a rank with ``argv`` beside it; return its exit code and output."""
    done = subprocess.run(
        [*beside("side", argv).argv, "bash", "-c", script],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def test_all_that_it_starts_ends_with_the_rank_in_a_group_of_its_own(tmp_path: Path) -> None:
    script = f"{WAITS}ps -o pgid= -p $$; exit 5"
    code, output = rank(tmp_path, script, sys.executable, "-c", PAIR, LLMB_NODE_RANK="3")
    lines = (tmp_path / "beside-side-3.out").read_text().splitlines()
    assert code == 5
    assert {"other ended", "child ended"} <= set(lines)
    groups = {line.split()[-1] for line in lines if " begun in " in line}
    assert len(groups) == 1
    assert groups.isdisjoint(output.split())


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    program = "trap '' TERM; echo $$; echo begun; echo begun; while :; do sleep 0.1; done"
    assert rank(tmp_path, f"{WAITS}echo done", "bash", "-c", program) == (0, "done\n")
    pid = (tmp_path / "beside-side-0.out").read_text().splitlines()[0]
    while is_running(pid):
        time.sleep(0.1)


def is_running(pid: str) -> bool:
    """Return True unless the process has ended, also if nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("argv", [("/nowhere/program",), ("false",)])
def test_its_failure_changes_nothing(tmp_path: Path, argv: tuple[str, ...]) -> None:
    assert rank(tmp_path, "echo ran", *argv) == (0, "ran\n")


def test_the_other_ranks_of_a_node_have_none(tmp_path: Path) -> None:
    assert rank(tmp_path, "echo ran", "echo", "x", LLMB_LOCAL_RANK="1") == (0, "ran\n")
    assert not [*tmp_path.glob("beside-*")]
