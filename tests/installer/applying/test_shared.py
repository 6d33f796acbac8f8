# SPDX-License-Identifier: Apache-2.0
"""Tests of an installation that its users can only read: their runs go to a folder of their own."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.needs import Venv
from llmb.kit import programs
from llmb_installer import record
from llmb_installer.steps.kinds import is_finished
from llmb_installer.venv import venv_step
from llmb_installer.venv.lock import TorchSource

JOB = ("single", "-w", "nemotron4", "-s", "tiny", "--dtype", "bf16", "--scale", "1")
User = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def as_user(home: Path, tmp_path: Path) -> User:
    """Runs a program as a user whom permissions stop: root too, without root's powers."""
    powerless: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip(
                "nothing is read-only for root, and there is no setpriv (util-linux) to be less"
            )
        powerless = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--"]

    def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name(name)
        environ = {**os.environ, "LLMB_STATE_DIR": str(tmp_path / "state")}
        return subprocess.run(
            [*powerless, str(program), *map(str, arguments)],
            env=environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture
def shared(cluster: Callable[..., Path]) -> Iterator[Path]:
    """An administrator's installation, its programs staged, with a stand-in for the environment's
    Python.
    """
    names = {"installed": ["pretrain_nemotron4"]}
    folder = cluster("local", "cpu", workloads=names)
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho trained\n")
    python.chmod(0o755)
    # nothing is lacking there
    (folder / "venv" / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    config = folder / "cluster_config.yaml"
    config.write_text(
        config.read_text() + f"  config: {{pretrain_nemotron4: {{venv_path: {folder}/venv}}}}\n"
    )
    programs.stage(folder)
    everything = [folder, *folder.rglob("*")]
    for path in everything:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield folder
    for path in everything:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def own_runs(home: Path) -> Path:
    config = home / ".config" / "llmb" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"experiments_root: {home}/runs\n")
    return home / "runs"


def test_a_user_runs_jobs_of_her_own(as_user: User, shared: Path, home: Path) -> None:
    runs, before = own_runs(home), sorted(shared.rglob("*"))
    done = as_user("llmb-run", *JOB, "--install", shared, "--wait")
    assert "COMPLETED" in done.stderr, done.stderr
    listed = as_user("llmb-run", "jobs", "--format", "json", "--install", shared)
    assert json.loads(listed.stdout)[0]["state"] == "COMPLETED", listed.stdout
    logs = [path.read_text() for path in runs.rglob("log-*.out")]
    assert len(logs) == 1
    assert "trained" in logs[0]
    assert sorted(shared.rglob("*")) == before


def test_without_a_folder_of_her_own_the_error_names_the_key(
    as_user: User, shared: Path, wording: Callable[..., None]
) -> None:
    done = as_user("llmb-run", *JOB, "--install", shared)
    assert done.returncode == 1
    assert "experiments_root" in done.stderr
    wording("single", done.stderr)


def test_the_doctor_knows_a_shared_installation(as_user: User, shared: Path, home: Path) -> None:
    lacking = as_user("llmb-install", "doctor", "--install", shared, "--format", "json")
    assert lacking.returncode == 1
    assert json.loads(lacking.stdout)["lacking"] == ["install folder"]
    runs = own_runs(home)
    well = as_user("llmb-install", "doctor", "--install", shared, "--format", "json")
    assert well.returncode == 0, well.stdout
    found = {one["check"]: one for one in json.loads(well.stdout)["findings"]}["install folder"]
    assert (found["state"], str(runs) in found["found"]) == ("ok", True)


def test_its_user_cannot_change_it(as_user: User, shared: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(f"cluster_type: local\ninstall: {shared}\ngpu_type: cpu\nvenv_type: venv\n")
    for how in ("--yes", "--dry-run"):
        done = as_user("llmb-install", "--config", answers, how)
        assert done.returncode == 1
        assert f"error: {shared}: " in done.stderr


def test_a_python_in_its_owners_home(
    as_user: User, cluster: Callable[..., Path], tmp_path: Path, wording: Callable[..., None]
) -> None:
    """An environment that uses it is reported as not readable, and not rebuilt."""
    folder, private = cluster("local", "cpu"), tmp_path / "private"
    (private / "bin").mkdir(parents=True)
    (private / "bin" / "python").touch()
    (folder / "venvs" / ".small.1" / "bin").mkdir(parents=True)
    (folder / "venvs" / ".small.1" / "pyvenv.cfg").touch()
    (folder / "venvs" / ".small.1" / "bin" / "python").symlink_to(private / "bin" / "python")
    (folder / "venvs" / "small").symlink_to(".small.1")
    done = record.FinishedStep(
        digest="x", facts={"folder": ".small.1"}, workloads=("pretrain_nemotron4",)
    )
    (folder / ".llmb").mkdir(exist_ok=True)
    record.save(folder, record.InstallRecord(steps={"venv small": done}))
    private.chmod(0)
    try:
        status = as_user("llmb-install", "status", "--format", "json", "--install", folder)
        verify = as_user("llmb-install", "verify", "--format", "json", "--install", folder)
    finally:
        private.chmod(0o755)
    assert status.returncode == 0
    assert [row["there"] for row in json.loads(status.stdout)["steps"]] == [False]
    assert verify.returncode == 1
    (fault,) = [row for row in json.loads(verify.stdout)["faults"] if row["step"] == "venv small"]
    assert (fault["code"], fault["value"]) == ("not-readable", f"{private}/bin/python")
    wording("llmb-install verify", fault["hint"])


def test_an_environment_of_another_user_is_not_installed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = venv_step.VenvStep(
        need=Venv(name="small", requirements=("torch",)),
        folder=tmp_path / "venvs" / "small",
        python=None,
        torch=TorchSource(),
        workloads=("w",),
    )
    finished = record.FinishedStep(digest=step.digest, facts={}, workloads=("w",))

    def is_there(*_: object) -> bool:
        raise PermissionError

    monkeypatch.setattr(venv_step, "is_there", is_there)
    assert is_finished(step, record.InstallRecord(steps={step.key: finished}), tmp_path)
    damaged = replace(finished, damaged=True)
    assert not is_finished(step, record.InstallRecord(steps={step.key: damaged}), tmp_path)
    other = replace(finished, digest="other")
    assert not is_finished(step, record.InstallRecord(steps={step.key: other}), tmp_path)


@pytest.mark.parametrize("name", ["cluster_config.yaml", ".llmb/install.json"])
def test_what_its_owner_keeps_to_himself(
    as_user: User, cluster: Callable[..., Path], name: str, wording: Callable[..., None]
) -> None:
    folder = cluster("local", "cpu")
    (folder / ".llmb").mkdir(exist_ok=True)
    record.save(folder, record.InstallRecord())
    (folder / name).chmod(0)
    for command in ("status", "verify", "doctor"):
        done = as_user("llmb-install", command, "--install", folder)
        assert done.returncode in (1, 2), command
        printed = done.stdout + done.stderr
        assert (str(folder / name) in printed, "Permission denied" in printed) == (True, True), (
            command
        )
        assert "Traceback" not in done.stderr
        if command == "status":
            wording("llmb-install status", done.stderr)


@pytest.fixture
def others(cluster: Callable[..., Path], tmp_path: Path) -> Iterator[Path]:
    """An installation whose folder its second administrator may write, and not all that is in
    it.
    """
    folder = cluster(
        "local", "cpu", workloads={"installed": ["pretrain_nemotron4", "pretrain_llama3.1"]}
    )
    closed = folder / "datasets" / "team"
    (closed / "model").mkdir(parents=True)
    (closed / "model" / "vocab.json").touch()
    facts = {"folder": str(closed / "model"), "files": {"vocab.json": ""}}
    done = record.FinishedStep(digest="x", facts=facts, workloads=("pretrain_llama3.1",))
    (folder / ".llmb").mkdir(exist_ok=True)
    record.save(folder, record.InstallRecord(steps={"asset team/model": done}))
    (folder / "venvs").mkdir()
    for path in (closed, folder / "venvs"):
        path.chmod(0o555)
    yield folder
    for path in (closed, folder / "venvs"):
        if path.exists():
            path.chmod(0o755)


def test_the_plan_names_a_folder_that_she_may_not_write(
    as_user: User, others: Path, tmp_path: Path
) -> None:
    """Before anything is fetched for it."""
    answers = tmp_path / "answers.yaml"
    answers.write_text(f"cluster_type: local\ninstall: {others}\ngpu_type: cpu\nvenv_type: venv\n")
    done = as_user("llmb-install", "--config", answers, "--dry-run", "--format", "json")
    assert done.returncode == 1
    faults = [(fault["code"], fault["value"]) for fault in json.loads(done.stdout)["faults"]]
    assert faults == [("not-writable", f"{others}/venvs")]


def test_what_she_may_not_remove_is_not_called_removed(as_user: User, others: Path) -> None:
    done = as_user("llmb-install", "remove", "llama3.1", "--yes", "--install", others)
    assert done.returncode == 1
    assert "error: asset team/model:" in done.stderr
    assert "Permission denied" in done.stderr
    assert "asset team/model" in record.load(others).steps, "the same command continues from here"
    (others / "datasets" / "team").chmod(0o755)
    again = as_user("llmb-install", "remove", "llama3.1", "--yes", "--install", others)
    assert again.returncode == 0, again.stderr
    assert not (others / "datasets" / "team" / "model").exists()


def test_a_repair_by_another_user_is_left_to_the_owner(
    as_user: User, cluster: Callable[..., Path]
) -> None:
    folder = cluster("local", "cpu")
    done = record.FinishedStep(
        digest="x", facts={"folder": ".small.1"}, workloads=("pretrain_nemotron4",)
    )
    (folder / ".llmb").mkdir(exist_ok=True)
    record.save(folder, record.InstallRecord(steps={"venv small": done}))
    by_owner = "--yes (as its owner: you may not write there)"
    for word in ("verify", "status"):
        found = as_user("llmb-install", word, "--install", folder).stderr
        assert "--repair" in found
        assert by_owner not in found
    folder.chmod(0o555)
    try:
        for word in ("verify", "status"):
            found = as_user("llmb-install", word, "--install", folder).stderr
            assert by_owner in found
    finally:
        folder.chmod(0o755)
