# SPDX-License-Identifier: Apache-2.0
"""Tests of jobs of sbatch that are stopped: they are cancelled, unless scancel fails or hangs."""

import os
import threading
from pathlib import Path

import pytest

from llmb.core import shell
from llmb_installer.execution import runner


@pytest.mark.parametrize("scancel", ["exit 1", "exec sleep 600", "#!/no/such/program"])
def test_stopping_is_not_held_up_by_scancel(
    scancel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_PATIENCE", 0.3)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    called = tmp_path / "called"
    for name, text in (("sbatch", "exec sleep 600"), ("scancel", f"echo $@ >{called}\n{scancel}")):
        first = "" if scancel.startswith("#!") and name == "scancel" else "#!/bin/bash\n"
        (bin_ / name).write_text(f"{first}{scancel if not first else text}\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    stop = threading.Event()
    stop.set()
    own = runner.Sbatch(options=("--clusters=far",), folder=tmp_path / "jobs")
    with pytest.raises(shell.StoppedError):
        own.run(["true"], tmp_path / "log", env=dict(os.environ), cwd=None, stop=stop)
    if scancel.startswith("#!"):
        assert not called.exists()
    else:
        assert called.read_text().split()[0] == "--clusters=far"
    runner.cancel_jobs()
