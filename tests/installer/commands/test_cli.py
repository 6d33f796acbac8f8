# SPDX-License-Identifier: Apache-2.0
"""Tests of llmb-install's usage: options, errors and their exit codes, with and without a
terminal.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pexpect
import pytest
import yaml

from llmb_installer.cli import cli
from llmb_installer.commands.options import COMMANDS

Answers = Callable[..., Path]
Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("words", [[], *([str(command.name)] for command in COMMANDS)])
def test_help_imports_little(words: list[str]) -> None:
    heavy = {"yaml", "rich", "psutil", "pluggy", "httpx", "llmb.plugins.loader"}
    code = (
        "import sys; from llmb_installer.cli import cli\n"
        f"try: cli.main({[*words, '--help']})\n"
        "except SystemExit: pass\n"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout


def test_version(run_install: Install) -> None:
    assert run_install("--version").stdout.startswith("llmb-install ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "'cluster_type'"),
        (["--confg", "x"], "'--config'"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["sttus"], "'status'"),
        (["--install", ""], "--install"),
        (["status", "--install", ""], "--install"),
    ],
    ids=[
        "no answers",
        "an option",
        "no file",
        "a command",
        "an empty folder",
        "an empty folder of a command",
    ],
)
def test_wrong_usage(run_install: Install, arguments: list[str], named: str) -> None:
    done = run_install(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert named in done.stderr


def test_help(run_install: Install, wording: Callable[..., None]) -> None:
    """No summary is cut: each fits in 60 characters."""
    for words in ([], *([str(command.name)] for command in COMMANDS)):
        wording("llmb-install help", run_install(*words, "--help", COLUMNS="100").stdout)
    options = [
        option
        for command in (cli, *COMMANDS)
        for option in command.params
        if isinstance(option, click.Option)
    ]
    texts = [
        *(command.get_short_help_str(200) for command in COMMANDS),
        *(option.help or "" for option in options),
    ]
    assert [text for text in texts if len(text) > 60] == []


def test_wrong_answers(run_install: Install, answers: Answers) -> None:
    path = answers(gpu_type="h1000", workloads="[lama]")
    done = run_install("--config", path, "--yes")
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == [f"{path}:3", f"{path}:5"]
    assert "Traceback" not in done.stderr


def test_a_dry_run_shows_and_writes_nothing(
    run_install: Install, answers: Answers, tmp_path: Path
) -> None:
    done = run_install("--config", answers(workloads="[nemotron4]"), "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path / "install") in done.stdout
    assert "torch==2.13.0" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["answers.yaml"]


def test_the_answers_in_effect_are_recorded(
    run_install: Install, answers: Answers, tmp_path: Path
) -> None:
    recorded, there = tmp_path / "recorded.yaml", tmp_path / "there"
    done = run_install("--config", answers(), "--install", there, "--record", recorded, "--dry-run")
    again = run_install("--config", recorded, "--dry-run")
    assert (done.returncode, again.returncode) == (0, 0)
    # the last one has the free space
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert yaml.safe_load(recorded.read_text())["install"] == str(there)


def test_without_a_terminal_yes_is_needed(
    run_install: Install, answers: Answers, tmp_path: Path
) -> None:
    done = run_install("--config", answers())
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert not (tmp_path / "install").exists()


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-", ">&-"])
def test_closed_streams(
    command: str, environ: dict[str, str], answers: Answers, closed: str
) -> None:
    """As cron and some batch systems start programs: no question is asked, and the exit code is the
    same.
    """
    shell = [
        "bash",
        "-c",
        f'"$@" {closed}',
        "bash",
        command,
        "--config",
        str(answers(workloads="[nemotron4]")),
    ]
    dry = subprocess.run(
        [*shell, "--dry-run"], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert (dry.returncode, dry.stderr) == (0, "")
    asked = subprocess.run(
        shell,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert asked.returncode == 2
    assert ("--yes" in asked.stderr) == ("2>" not in closed)


def test_without_a_home_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user that the machine does not know, as in containers."""
    from llmb_installer import cli

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr(sys, "argv", ["llmb-install", "doctor"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "HOME" in capsys.readouterr().err


def test_the_home_folder_of_an_unknown_user(run_install: Install, answers: Answers) -> None:
    done = run_install("--config", answers(), "--install", "~nobody-at-all/llmb", "--yes")
    assert done.returncode == 2
    assert "error: --install: install:" in done.stderr
    assert "~nobody-at-all/llmb" in done.stderr


@pytest.mark.parametrize(
    "setting", ["slurm.account=team", "environment=["], ids=["misplaced", "not YAML"]
)
def test_an_invalid_setting_has_its_option_as_place(
    run_install: Install, answers: Answers, setting: str, wording: Callable[..., None]
) -> None:
    done = run_install("--config", answers(), "--set", setting, "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    wording("llmb-install", done.stderr)


def test_an_install_folder_in_a_file(
    run_install: Install, answers: Answers, tmp_path: Path, wording: Callable[..., None]
) -> None:
    (tmp_path / "file").touch()
    done = run_install("--config", answers(), "--install", tmp_path / "file" / "install", "--yes")
    assert done.returncode == 2
    wording("llmb-install", done.stderr)


def test_a_folder_without_write_permission(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since no permission stops root."""
    from llmb_installer import cli

    def refuse(
        path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False
    ) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(sys, "argv", ["llmb-install", "--config", str(answers()), "--yes"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert "Permission denied" in printed
    assert str(answers().parent / "install") in printed


def terminal(command: str, environ: dict[str, str], *arguments: str) -> pexpect.spawn[str]:
    return pexpect.spawn(
        command,
        list(arguments),
        env={**environ, "TERM": "xterm", "NO_COLOR": "1"},
        encoding="utf-8",
        timeout=200,
    )


@pytest.mark.parametrize(("typed", "code"), [("n\r", 0), ("\x03", 130)])
def test_a_terminal_is_asked(
    command: str, environ: dict[str, str], answers: Answers, tmp_path: Path, typed: str, code: int
) -> None:
    child = terminal(command, environ, "--config", str(answers()))
    child.expect(r"\? \[y/N\]: ")
    child.send(typed)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == code
    assert not (tmp_path / "install").exists()


def test_a_terminal_without_a_cursor_is_asked_nothing(
    command: str, environ: dict[str, str], tmp_path: Path
) -> None:
    child = pexpect.spawn(
        command,
        ["--install", str(tmp_path / "x")],
        env={**environ, "TERM": "dumb"},
        encoding="utf-8",
        timeout=200,
    )
    output = child.read()
    child.close()
    assert child.exitstatus == 2
    assert "\x1b" not in output
    assert "cluster_type" in output
