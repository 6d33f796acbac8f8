# SPDX-License-Identifier: Apache-2.0
"""Tests of llmb-install's usage: options, errors and their exit codes, and what a terminal changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
import yaml

Answers = Callable[..., Path]
Install = Callable[..., "subprocess.CompletedProcess[str]"]


def test_help_imports_little() -> None:
    code = (
        "import sys; from llmb_installer.cli import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join({'yaml', 'rich', 'psutil', 'pluggy', 'llmb.plugins.loader'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--dry-run" in done.stdout


def test_version(run_install: Install) -> None:
    assert run_install("--version").stdout.startswith("llmb-install ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "'cluster_type' is missing\nerror: the answers: 'install' is missing\n"),
        (["--confg", "x"], "did you mean '--config'?"),
        (["--config", "nowhere.yaml"], "nowhere.yaml cannot be read: No such file or directory"),
        (["sttus"], "llmb-install has no command 'sttus'"),
        (["--install", ""], "it is empty: a variable that is not set?"),
        (["status", "--install", ""], "it is empty: a variable that is not set?"),
    ],
)
def test_wrong_usage(run_install: Install, arguments: list[str], said: str) -> None:
    done = run_install(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_wrong_answers(run_install: Install, answers: Answers) -> None:
    path = answers(gpu_type="h1000", workloads="[lama]")
    done = run_install("--config", path, "--yes")
    assert done.returncode == 2
    assert f"error: {path}:3: gpu_type 'h1000' is not known\nhint: did you mean 'h100'?" in done.stderr
    assert f"error: {path}:5: no workload is called 'lama'\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_shows_and_writes_nothing(run_install: Install, answers: Answers, tmp_path: Path) -> None:
    done = run_install("--config", answers(workloads="[nemotron4]"), "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Install directory {tmp_path / 'install'} (cluster type local, GPU type cpu)" in done.stdout
    assert "Python environment with torch==2.13.0, transformers==5.23.0; torch for CPUs" in done.stdout
    assert "To fetch: about " in done.stdout
    assert " needed, " in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["answers.yaml"]


def test_the_answers_in_effect_are_recorded(run_install: Install, answers: Answers, tmp_path: Path) -> None:
    recorded, there = tmp_path / "recorded.yaml", tmp_path / "there"
    done = run_install("--config", answers(), "--install", there, "--record", recorded, "--dry-run")
    again = run_install("--config", recorded, "--dry-run")
    assert (done.returncode, again.returncode) == (0, 0)
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]  # the last tells the free space
    assert yaml.safe_load(recorded.read_text())["install"] == str(there)


def test_without_a_terminal_yes_is_needed(run_install: Install, answers: Answers, tmp_path: Path) -> None:
    done = run_install("--config", answers())
    assert done.returncode == 2
    assert "hint: add --yes" in done.stderr
    assert not (tmp_path / "install").exists()


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-", ">&-"])
def test_closed_streams(command: str, environ: dict[str, str], answers: Answers, closed: str) -> None:
    """As cron and some batch systems start programs: no question is asked, and the exit code is as ever."""
    shell = ["bash", "-c", f'"$@" {closed}', "bash", command, "--config", str(answers(workloads="[nemotron4]"))]
    dry = subprocess.run([*shell, "--dry-run"], env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (dry.returncode, dry.stderr) == (0, "")
    asked = subprocess.run(
        shell, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert asked.returncode == 2
    assert ("add --yes" in asked.stderr) == ("2>" not in closed)


def test_without_a_home_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A user whom the machine does not know, as in containers."""
    from llmb_installer import cli

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr(sys, "argv", ["llmb-install", "doctor"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "your home folder is not known" in capsys.readouterr().err


def test_a_home_folder_of_nobody(run_install: Install, answers: Answers) -> None:
    done = run_install("--config", answers(), "--install", "~nobody-at-all/llmb", "--yes")
    assert done.returncode == 2
    assert "error: --install: install: nobody knows the home folder in ~nobody-at-all/llmb\nhint: " in done.stderr


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("slurm.account=team", "error: --set slurm.account: slurm is for cluster type slurm, and this one is local"),
        ("environment=[", "error: --set environment: [ is not valid YAML\nhint: put it in quotes"),
    ],
)
def test_a_setting_that_is_wrong_is_placed_there(
    run_install: Install, answers: Answers, setting: str, said: str
) -> None:
    done = run_install("--config", answers(), "--set", setting, "--dry-run")
    assert done.returncode == 2
    assert said in done.stderr


def test_a_folder_that_cannot_be_made(run_install: Install, answers: Answers, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_install("--config", answers(), "--install", tmp_path / "file" / "install", "--yes")
    assert done.returncode == 2
    assert f"/file/install cannot be a folder: {tmp_path}/file is a file\nhint: name another folder" in done.stderr


def test_a_folder_that_may_only_be_read(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since no permission stops root."""
    from llmb_installer import cli

    def refuse(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(sys, "argv", ["llmb-install", "--config", str(answers()), "--yes"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "cannot be made: Permission denied" in capsys.readouterr().err


def terminal(command: str, environ: dict[str, str], *arguments: str) -> pexpect.spawn[str]:
    return pexpect.spawn(command, list(arguments), env={**environ, "TERM": "xterm"}, encoding="utf-8", timeout=200)


@pytest.mark.parametrize(("typed", "code"), [("n\r", 1), ("\x03", 130)])
def test_a_terminal_is_asked(
    command: str, environ: dict[str, str], answers: Answers, tmp_path: Path, typed: str, code: int
) -> None:
    child = terminal(command, environ, "--config", str(answers()))
    child.expect(r"Continue\? \[y/N\]: ")
    child.send(typed)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == code
    assert not (tmp_path / "install").exists()
