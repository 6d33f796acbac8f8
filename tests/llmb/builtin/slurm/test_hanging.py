# SPDX-License-Identifier: Apache-2.0
"""Test of Ctrl-C while sbatch hangs: the first one waits for it, the second one does not, and
nothing is lost.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.fault("sbatch-hangs")

Start = Callable[..., "subprocess.Popen[str]"]
PATIENCE = 180.0  # seconds until the test gives up


def test_a_second_ctrl_c_does_not_wait_for_sbatch(
    tmp_path: Path, cluster: Callable[..., Path], llmb_start: Start
) -> None:
    install, programs, pids = cluster("slurm"), tmp_path / "bin", tmp_path / "pids"
    programs.mkdir()
    for name, text in {
        "sbatch": f'echo $$ >> "{pids}"; exec sleep 600',
        "scontrol": "exit 1",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    one = (
        "single",
        "-w",
        "nemotron4",
        "-s",
        "15b",
        "--dtype",
        "bf16",
        "--scale",
        16,
        "--no-preflight",
    )
    process = llmb_start(*one, "--install", install, PATH=f"{programs}:{os.environ['PATH']}")
    deadline = time.monotonic() + PATIENCE
    while not pids.exists() or not pids.read_text().strip():
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.05)
    hanging = psutil.Process(int(pids.read_text().split()[0]))
    assert process.stdout is not None
    try:
        process.send_signal(signal.SIGINT)
        printed = ""
        while "Ctrl-C again" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE)  # sbatch would take 600 s
    finally:
        hanging.kill()
    assert (process.returncode, rest) == (130, "\ninterrupted\n")
