# SPDX-License-Identifier: Apache-2.0
"""Jobs of Slurm whose install directory is on a full disk: no log can say why they failed."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.record import RunRecord

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("mount") is None, reason="needs root, to mount a small disk"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write to ``path`` until its disk is full."""
    with path.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError:
                continue


# The Python of the ranks. It fails at once while there is a file `broken`, or waits for `go`.
PYTHON = """\
#!/bin/bash
[[ $* != *llmb_workloads.telemetry* ]] || exit 0
echo "[NeMo I 2026-11-29 12:00:00] started"
[[ ! -e {folder}/broken ]] || exit 5
while [[ ! -e {folder}/go ]]; do sleep 0.1; done
"""
TARGET = ("submit", "-w", "nemotron4", "-s", "tiny", "--dtype", "fp32", "--scale", 1)


def test_jobs_that_end_on_a_full_disk_have_it_as_their_cause(
    kit: Any, site_at: Callable[..., Any], disk: Path, tmp_path: Path
) -> None:
    site = site_at(kit, "disk/install")
    python = site.install / "venv" / "bin" / "python"
    python.unlink()
    python.write_text(PYTHON.format(folder=tmp_path))
    python.chmod(0o755)

    def submit(*words: object) -> RunRecord:
        done = site.llmb(*TARGET, "--force", *words, "--format", "json")
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)
        return record.load(Path(row["directory"]))

    (tmp_path / "broken").touch()
    other = submit()
    site.ends(other, "FAILED")
    (tmp_path / "broken").unlink()
    running = submit()
    site.says(running, "started")
    waiting = submit("--slurm-arg", "hold")
    fill(disk / "full")
    (tmp_path / "go").touch()
    kit.run("scontrol", "release", waiting.scheduler_id)
    for run in (running, waiting):
        site.reaches(run)
        assert not (run.place / "ended").exists()
    done = site.llmb("jobs", "wait", running.id, waiting.id)
    assert done.stderr.count("No space left on device. Free space there") == 1, done.stderr
    done = site.llmb("results", "--session", "all", "--format", "json")
    causes = {row["run"]: row["cause"] for row in json.loads(done.stdout)["results"]}
    for run in (running, waiting):
        assert causes[run.id]["kind"] == "disk", (site.all_of(run), causes)
        assert str(run.place) in causes[run.id]["line"]
    assert causes[other.id] is None  # it could still record its end
