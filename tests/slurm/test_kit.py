# SPDX-License-Identifier: Apache-2.0
"""Tests of the test cluster itself: it starts, stops completely, and names the packages that it
lacks.
"""

from pathlib import Path
from typing import Any

import psutil
import pytest

from llmb.errors import LlmbError
from llmb_testing.slurm import Shape, SlurmKit, daemons, missing_packages


def test_it_leaves_nothing_behind(bare_kit: Any) -> None:
    """Another cluster that runs at the same time continues."""
    with SlurmKit(Shape(nodes=1, gpus=1, accounting=False)) as kit:
        assert (
            kit.run("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES", timeout=180)
            == "0\n"
        )
        pids = [int(path.read_text()) for path in (kit.folder / "run").glob("*.pid")]
        assert len(pids) == 3
    assert not kit.folder.exists()
    assert not [pid for pid in pids if _runs(pid)]
    assert "is UP" in bare_kit.run("scontrol", "ping")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_node_that_failed_comes_back(bare_kit: Any) -> None:
    bare_kit.kill_node("n2")
    bare_kit.start_node("n2")
    assert len(bare_kit.run("srun", "--nodes=2", "hostname", timeout=180).splitlines()) == 2


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(daemons, "search_path", lambda: str(tmp_path))
    assert missing_packages(accounting=False) == ["munge", "slurmctld", "slurmd", "slurm-client"]
    assert missing_packages(accounting=True)[4:] == ["slurmdbd", "mariadb-server-core"]
    with pytest.raises(LlmbError) as raised:
        daemons.path_of("mariadbd")
    assert (raised.value.code, raised.value.value) == ("program-missing", "mariadbd")
    assert "mariadb-server-core" in (raised.value.hint or "")


def test_a_folder_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LlmbError) as raised:
        SlurmKit(folder=tmp_path / ("x" * 80))
    assert raised.value.code == "path-too-long"
