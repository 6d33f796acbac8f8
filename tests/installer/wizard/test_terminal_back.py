# SPDX-License-Identifier: Apache-2.0
"""Tests in a real terminal: Escape and back, how to find out, refused texts, narrow terminals,
continuing, Ctrl-C.
"""

import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from llmb.contract.needs import Task
from llmb_installer.cluster_types import all_types

pytestmark = pytest.mark.slow

ENTER, ESCAPE, UP, DOWN, CTRL_C, CLEAR = "\r", "\x1b", "\x1b[A", "\x1b[B", "\x03", "\x15"
TYPE, FOLDER, GPUS, WORKLOADS = (
    "Which scheduler?",
    "Install folder:",
    "Which GPUs?",
    "Which workloads?",
)
REVIEW, CONFIRM, VENVS = "Choose one to change it:", "Continue?", "creates the Python environments?"
URL, PROJECT, VOLUME, APP = "Run:ai's API", "Run:ai project:", "name:path:claim:", "signs in"
RUNAI = {
    "BASE_URL": "https://localhost/api/v1",
    "PROJECT_NAME": "team",
    "CUSTOM_MOUNT": "w:/work:claim",
    "APP_ID": "me",
}
PROGRAM = Path(sys.executable).with_name("llmb-install")
Open = Callable[..., Any]


def test_escape_and_the_choice_go_back_and_keep_the_answers(talk: Open) -> None:
    """Arrow keys begin with Escape, and do not go back. A lone Escape does, in lists and in typed
    answers.
    """
    user = talk(APP_SECRET="x", **RUNAI)
    user.chooses(TYPE, "runai").reads(FOLDER, ENTER).reads(
        URL, CLEAR, "https://127.0.0.1/api/v1", ENTER
    )
    user.reads(PROJECT, ESCAPE).reads(URL).reads("https://127.0.0.1/api/v1")
    user.reads("goes back", CLEAR, "back", ENTER)
    user.reads(FOLDER).reads("goes back", ENTER).reads(URL).reads("https://127.0.0.1/api/v1").reads(
        "goes back", ENTER
    )
    user.reads(PROJECT, UP, DOWN, "1", ENTER).reads(VOLUME, ENTER).reads(APP, CLEAR, "none", ENTER)
    user.reads(GPUS, UP, DOWN, DOWN, ENTER).reads(WORKLOADS, UP, ENTER)  # "Back" is the last choice
    user.reads(GPUS, UP, ENTER)  # the default is h200, below h100
    user.reads(WORKLOADS, ENTER).reads("Stop: nothing", UP, ENTER)
    user.reads(WORKLOADS, ENTER).reads(REVIEW, ENTER).reads(CONFIRM, ESCAPE).reads(
        REVIEW, ENTER
    ).reads(CONFIRM, ENTER)
    user.reads("AGREED install")
    assert user.ends() == 0
    given = yaml.safe_load((user.folder / "answers.yaml").read_text())
    assert given["gpu_type"] == "h100"
    assert given["runai"] == {
        "base_url": "https://127.0.0.1/api/v1",
        "project": "team1",
        "pvc": {"name": "w", "path": "/work", "claim": "claim"},
    }


def test_how_to_find_out_and_why_a_text_is_refused(terminal: Open) -> None:
    user = terminal(PROGRAM)
    user.chooses(TYPE, "I don't know").reads("sinfo").reads(TYPE, "?").reads("sinfo").chooses(
        TYPE, "runai"
    )
    user.reads(FOLDER, "?").reads("df -hT").reads(FOLDER, ENTER).reads(URL, "http:/")
    user.reads("a URL starts with", CLEAR, "https://local_host").reads(
        "'local_host' cannot be", ENTER
    )
    user.child.send("\x7f" * 5 + "host" + ENTER)
    user.reads("Run:ai project:", "a b").reads("a blank cannot be in", CTRL_C)
    assert user.ends() == 130


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_nothing_is_cut(terminal: Open, columns: str, tmp_path: Path) -> None:
    """Every word of every question, choice and answer is on the screen, in a terminal of any
    width.
    """
    user = terminal(PROGRAM, APP_SECRET="x", columns=columns, **RUNAI)
    with (tmp_path / "screen").open("w", encoding="utf-8") as screen:
        user.child.logfile_read = screen
        user.chooses(TYPE, "I don't know").chooses(TYPE, "runai").reads("Install", ENTER).reads(
            "URL", ENTER
        )
        user.reads("project:", "?").reads("runai project", ENTER).reads("Persistent", ENTER).reads(
            "ID of", ENTER
        )
        user.reads("GPUs?", ENTER).reads("workloads?", ENTER).reads("Your answers", CTRL_C)
        assert user.ends() == 130
    lines = (
        re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", (tmp_path / "screen").read_text())
        .replace("\r", "\n")
        .splitlines()
    )
    text = " ".join(" ".join(lines).split())
    shown = [
        "Press Enter to accept the default, Esc to go back, Ctrl-C to stop.",
        "until you confirm the plan.",
    ]
    shown += [question.text for question in all_types()["runai"].questions]
    shown += [
        "local: only this machine, without a scheduler",
        "I don't know: show how to find out (?)",
    ]
    shown += ["Back to the previous question (Esc)", "host_to_device, launch, storage on h100"]
    shown += [
        "'?' shows how to find out; Esc or 'back' goes back",
        "pretrain_nemotron4, pretrain_nemotronh",
    ]
    assert [words for words in shown if words not in text] == []


def waiting(command: str) -> Task:
    return Task(name="wait", argv=("sh", "-c", command))


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_installation_continues_by_enter(terminal: Open, site: Any) -> None:
    """From its folder, and from any other, with its own answers; headless too."""
    note, go_on = site.folder / "pid", site.folder / "go"
    site.workload(
        "pretrain_a", waiting(f"echo $$ > {note}; until [ -e {go_on} ]; do sleep 0.1; done")
    )
    variables = {
        name: value
        for name, value in site.environ.items()
        if name.startswith(("PIP_", "PYTHONPATH"))
    }
    first = terminal(*site.argv(), **variables)
    wait_until(
        lambda: (
            note.exists()
            and note.read_text().strip()
            and (site.install / ".llmb" / "install.json").exists()
        )
    )
    first.child.kill(signal.SIGKILL)
    elsewhere = terminal(PROGRAM, **variables)
    elsewhere.reads("todo").reads("1 of 2 steps is done").reads("continue it", CTRL_C)
    assert elsewhere.ends() == 130
    go_on.write_text("")
    user = terminal(PROGRAM, "--install", site.install, **variables)
    user.reads("has an unfinished installation").reads("continue it", ENTER).reads("Installed in")
    assert user.ends() == 0
    assert {*site.record()["steps"]} == {"task wait", "programs of compute nodes"}
    after = terminal(PROGRAM, "--install", site.install, **variables)
    after.reads("What do you want to do?").reads("add workloads", CTRL_C)
    assert after.ends() == 130


def test_a_second_ctrl_c_ends_at_once(terminal: Open, site: Any) -> None:
    """The first names what is stopping. After the second nothing runs, and the next installation is
    complete.
    """
    note = site.folder / "pid"
    site.workload(
        "pretrain_a", waiting(f"trap '' TERM; echo $$ > {note}; while true; do sleep 600; done")
    )
    variables = {
        name: value
        for name, value in site.environ.items()
        if name.startswith(("PIP_", "PYTHONPATH"))
    }
    user = terminal(*site.argv(), **variables)
    wait_until(lambda: note.exists() and note.read_text().strip())
    child = psutil.Process(int(note.read_text()))
    user.child.send(CTRL_C)
    user.reads("Stopping task wait").reads("Press Ctrl-C again to end at once.", CTRL_C)
    user.reads("To continue: llmb-install --install").reads("--yes")
    assert user.ends() == 130
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    site.workload("pretrain_a", waiting("true"))
    again = site.run("--install", site.install, "--yes", "--set", "versions={}")
    assert again.returncode == 0, again.stderr
    assert site.leftovers() == []
