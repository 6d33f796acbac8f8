# SPDX-License-Identifier: Apache-2.0
"""Tests of the wizard in a real terminal: the three cluster types, changes, Ctrl-C, secrets,
continuing.
"""

import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_testing.slurm import SlurmKit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
ENTER, UP, CTRL_C, SPACE = "\r", "\x1b[A", "\x03", " "
Open = Callable[..., Any]

TYPE, FOLDER, GPUS, WORKLOADS = (
    "Which scheduler?",
    "Install folder:",
    "Which GPUs?",
    "Which workloads?",
)
REVIEW, CONFIRM, VENVS = "Choose one to change it:", "Continue?", "creates the Python environments?"
RUNAI = {
    "BASE_URL": "https://localhost/api/v1",
    "PROJECT_NAME": "team",
    "CUSTOM_MOUNT": "w:/work:claim",
    "APP_ID": "me",
}


def answers(terminal: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((terminal.folder / "answers.yaml").read_text())
    return found


def test_a_slurm_cluster(talk: Open, slurm: SlurmKit) -> None:
    user = talk(**slurm.environ)
    user.reads(TYPE, ENTER).reads(FOLDER, ENTER).reads("Compute nodes must see it too")
    user.reads("Partition for GPU jobs:", ENTER).chooses("Account for jobs:", "second")
    user.chooses("images and environments be built", "srun").chooses(VENVS, "venv:").reads(
        WORKLOADS, SPACE, ENTER
    )
    user.reads(REVIEW, ENTER).reads("THE PLAN").reads(CONFIRM, ENTER).reads("AGREED install")
    assert user.ends() == 0
    given = answers(user)
    assert given["cluster_type"] == "slurm"
    assert given["install"] == str(user.folder)
    assert (given["gpu_type"], given["method"], given["venv_type"]) == ("h100", "srun", "venv")
    assert given["slurm"]["account"] == "second"
    assert given["slurm"]["gpu"] == {"partition": "gpu", "gres": 8}
    assert given["slurm"]["container"] == "none", "this Slurm has no pyxis"
    assert given["workloads"] == [
        "node_check",
        "pretrain_deepseek",
        "pretrain_gpt_oss",
        "pretrain_kimi",
        "pretrain_llama3.1",
        "pretrain_nemotron3",
        "pretrain_nemotron4",
        "pretrain_nemotronh",
        "pretrain_qwen3",
    ]


def test_runai_and_its_secret(talk: Open, home: Path, tmp_path: Path) -> None:
    user = talk(**RUNAI)
    user.child.logfile_read = (tmp_path / "screen").open("w", encoding="utf-8")
    user.chooses(TYPE, "runai").reads(FOLDER, ENTER).reads("Run:ai's API", ENTER).reads(
        "Run:ai project", ENTER
    )
    user.reads("name:path:claim", ENTER).reads("signs in", ENTER).reads(GPUS, ENTER).reads(
        WORKLOADS, ENTER
    )
    user.reads("APP_SECRET, for Run:ai", "s3cr3t-word", ENTER)
    user.reads("APP_SECRET: will be saved in").reads("Stop: nothing", ENTER).reads(CONFIRM)
    secrets = home / ".config" / "llmb" / "secrets"
    assert not secrets.exists(), "nothing is written before the plan is confirmed"
    user.child.send(ENTER)
    user.reads("AGREED install")
    assert user.ends() == 0
    user.child.logfile_read.close()
    assert "s3cr" not in (tmp_path / "screen").read_text(), "the secret is not shown"
    assert answers(user)["runai"] == {
        "base_url": "https://localhost/api/v1",
        "project": "team",
        "app_id": "me",
        "pvc": {"name": "w", "path": "/work", "claim": "claim"},
    }
    assert "s3cr3t" not in (user.folder / "answers.yaml").read_text()
    assert secrets.read_text() == "APP_SECRET=s3cr3t-word\n"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600


def test_a_host_that_is_not_found_is_asked_for_again(talk: Open) -> None:
    user = talk(**RUNAI)
    user.chooses(TYPE, "runai").reads(FOLDER, ENTER)
    user.reads("Run:ai's API", "\x15", "http://localhost", ENTER).reads("starts with https://")
    user.child.send("\x15https://nowhere.invalid/api/v1\r")
    user.reads("check its name")
    user.child.send("\x15https://localhost/api/v1\r")
    user.reads("Run:ai project", CTRL_C)


def test_a_typed_slash_begins_another_folder(talk: Open, tmp_path: Path) -> None:
    user = talk()
    user.chooses(TYPE, "local").reads(FOLDER, str(tmp_path / "other"), ENTER)
    user.reads(VENVS, ENTER).reads(WORKLOADS, ENTER).reads(REVIEW, ENTER).reads(CONFIRM, ENTER)
    user.reads("AGREED install")
    assert user.ends() == 0
    assert answers(user)["install"] == str(tmp_path / "other")


def test_a_secret_of_the_environment_is_not_asked(talk: Open) -> None:
    user = talk(APP_SECRET="x", **RUNAI)
    user.chooses(TYPE, "runai").reads(FOLDER, ENTER).reads("Run:ai's API", ENTER).reads(
        "Run:ai project", ENTER
    )
    user.reads("name:path:claim", ENTER).reads("signs in", ENTER).reads(GPUS, ENTER).reads(
        WORKLOADS, ENTER
    )
    user.reads("APP_SECRET: from the environment", UP, UP, ENTER)
    user.reads("Stopped: nothing was installed or changed.")
    assert user.ends() == 0


def test_an_answer_is_changed_at_the_review(talk: Open) -> None:
    user = talk()
    user.chooses(TYPE, "local").reads(FOLDER, ENTER).reads(VENVS, ENTER).reads(WORKLOADS, ENTER)
    user.chooses(REVIEW, "cluster name").reads("Name of the cluster", "\x15", "impossible", ENTER)
    user.reads(REVIEW, ENTER).reads("error: this cannot be installed").reads(
        "hint: choose another name"
    )
    user.chooses(REVIEW, "cluster name").reads("Name of the cluster", "\x15", "mine", ENTER)
    user.reads(REVIEW, ENTER).reads("THE PLAN").chooses(CONFIRM, "no, change")
    user.chooses(REVIEW, "workloads").reads(WORKLOADS, SPACE, ENTER).reads(REVIEW, ENTER).reads(
        CONFIRM, ENTER
    )
    user.reads("AGREED install")
    assert user.ends() == 0
    given = answers(user)
    assert (given["cluster_name"], len(given["workloads"])) == ("mine", 4)


def test_a_question_mark_shows_help_in_a_filled_field_and_may_be_in_a_name(talk: Open) -> None:
    name, help_text = "Name of the cluster", "Any name will do"
    user = talk()
    user.chooses(TYPE, "local").reads(FOLDER, ENTER).reads(VENVS, ENTER).reads(WORKLOADS, ENTER)
    user.chooses(REVIEW, "cluster name").reads(name, "?").reads(help_text)
    user.reads(name, "\x15", " ", ENTER).reads("write any name", "?").reads(help_text)
    user.reads(name, "\x15", "ours?", ENTER).reads(REVIEW, ENTER).reads(CONFIRM, ENTER)
    user.reads("AGREED install")
    assert user.ends() == 0
    assert answers(user)["cluster_name"] == "ours?"


def test_answers_of_a_file_are_not_asked_for(talk: Open, tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(
        "cluster_type: local\nworkloads: [nemotron4]\nvenv_type: venv\ncluster_name: x\n"
    )
    user = talk(file)
    user.reads(FOLDER, ENTER).reads(REVIEW, ENTER).reads(CONFIRM, ENTER).reads("AGREED install")
    assert user.ends() == 0
    assert answers(user)["workloads"] == ["pretrain_nemotron4"]


def test_ctrl_c_leaves_nothing_and_keeps_the_answers(terminal: Open, home: Path) -> None:
    """The real command; the second time, the answers of the first are the defaults."""
    program = Path(sys.executable).with_name("llmb-install")
    user = terminal(program)
    user.chooses(TYPE, "local").reads(FOLDER, "-elsewhere", ENTER).reads(VENVS, CTRL_C)
    user.reads("Stopped: nothing was installed or changed. When you run the same command again")
    assert user.ends() == 130
    assert [*user.folder.iterdir()] == []
    assert not Path(f"{user.folder}-elsewhere").exists()
    again = terminal(program)
    again.reads("your answers of last time").reads(TYPE, ENTER).reads(
        f"{user.folder}-elsewhere", CTRL_C
    )
    assert again.ends() == 130


def test_ctrl_c_at_the_first_question(terminal: Open, home: Path) -> None:
    user = terminal(Path(sys.executable).with_name("llmb-install"))
    user.reads(TYPE, CTRL_C).reads("Stopped: nothing was installed or changed.")
    assert user.ends() == 130
    assert not (home / ".local").exists()


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_a_question(terminal: Open, home: Path, number: int) -> None:
    """From outside, not by a key: from a batch system or a lost connection."""
    user = terminal(Path(sys.executable).with_name("llmb-install"))
    user.reads(TYPE).reads("local: only this machine")
    user.child.kill(number)
    user.reads("Stopped: nothing was installed or changed.")
    assert user.ends() == 130


def test_a_damaged_installation_is_reported_with_its_repair(
    terminal: Open, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "work" / "cluster_config.yaml").write_text("gpu_type: [\n")
    user = terminal(Path(sys.executable).with_name("llmb-install"))
    user.reads("cluster_config.yaml:2: ").reads("llmb-install verify --repair --install ")
    assert user.ends() == 2


def test_an_existing_installation(talk: Open, cluster: Callable[..., Path]) -> None:
    folder = cluster("local", "cpu", workloads={"installed": ["pretrain_nemotron4"]})
    user = talk(LLMB_INSTALL=str(folder))
    user.chooses("What do you want to do?", "add workloads").reads(
        "Which workloads to add?", SPACE, ENTER
    )
    user.reads(REVIEW, ENTER).reads(CONFIRM, ENTER).reads("AGREED install")
    assert user.ends() == 0
    given = answers(user)
    assert given["workloads"] == ["pretrain_nemotron4", "microbench"]
    assert given["install"] == str(folder)


def test_removal_and_repair_are_for_other_commands(
    talk: Open, cluster: Callable[..., Path]
) -> None:
    folder = cluster("local", "cpu", workloads={"installed": ["pretrain_nemotron4"]})
    user = talk(LLMB_INSTALL=str(folder))
    user.chooses("What do you want to do?", "remove").reads(
        "Which workloads to remove?", SPACE, ENTER
    )
    user.reads("AGREED remove pretrain_nemotron4")
    assert user.ends() == 0
    user = talk(LLMB_INSTALL=str(folder))
    user.chooses("What do you want to do?", "repair").reads("AGREED repair")
    assert user.ends() == 0


def test_from_an_empty_folder_to_an_installation(
    terminal: Open,
    environ: dict[str, str],
    home: Path,
    run_install: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The real command to its end; its recorded answers give the same installation again."""
    pip = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    program = Path(sys.executable).with_name("llmb-install")
    user = terminal(program, "--record", "recorded.yaml", **pip)
    user.chooses(TYPE, "local").reads(FOLDER, "\x15", "llmb", ENTER).chooses(VENVS, "uv:").reads(
        WORKLOADS, ENTER
    )
    user.reads(REVIEW, ENTER).reads("To fetch:").reads(CONFIRM, ENTER).reads("Installed in")
    assert user.ends() == 0
    install = user.folder / "llmb"
    config = yaml.safe_load((install / "cluster_config.yaml").read_text())
    assert config["workloads"]["installed"][0] == "microbench"
    again = run_install("--config", user.folder / "recorded.yaml", "--yes", HOME=str(home))
    assert (again.returncode, again.stderr) == (0, "")
    assert "Nothing to do:" in again.stdout
    inside = terminal(program, LLMB_INSTALL=str(install), **pip)
    inside.chooses("What do you want to do?", "repair").reads("is complete")
    assert inside.ends() == 0
    leaving = terminal(program, "--install", install, **pip)
    leaving.chooses("What do you want to do?", "remove").reads(
        "Which workloads to remove?", SPACE, ENTER
    )
    leaving.reads("To remove from").reads("[y/N]", "y", ENTER).reads("Installed now: node_check")
    assert leaving.ends() == 0
    config = yaml.safe_load((install / "cluster_config.yaml").read_text())
    assert "microbench" not in config["workloads"]["installed"]


def test_the_tutorial_is_typed_line_by_line(
    terminal: Open, environ: dict[str, str], tmp_path: Path
) -> None:
    """The tutorial's commands for the wizard, in a shell of their own, up to a list of workloads."""
    page = (ROOT / "docs/tutorial-first-night.md").read_text("utf-8")
    section = page.partition("## Install the workloads")[2].partition("## Start with one GPU")[0]
    block = section.partition("```console\n")[2].partition("```")[0]
    lines = [line.removeprefix("$ ") for line in block.splitlines()]
    assert lines[-1] == "llmb-install"
    (tmp_path / "shared").mkdir()
    pip = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    shell = terminal("/bin/bash", "--norc", "--noediting", PS1="READY: ", **pip)
    for line in lines:
        shell.reads("READY: ", line.replace("/shared/", f"{tmp_path}/shared/"), "\n")
    shell.chooses(TYPE, "local").reads(FOLDER, ENTER).chooses(VENVS, "uv:").reads(WORKLOADS, ENTER)
    shell.reads(REVIEW, ENTER).reads("To fetch:").reads(CONFIRM, ENTER).reads("Installed in")
    shell.reads("READY: ", "llmb-run list\n").reads("microbench")
    shell.reads("READY: ", "exit\n")
    assert shell.ends() == 0
    assert (tmp_path / "shared/llmb/cluster_config.yaml").is_file()
