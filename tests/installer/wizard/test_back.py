# SPDX-License-Identifier: Apache-2.0
"""Tests of going back, of empty answers and of the GPUs that Slurm shows, without a terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm.partitions import read
from llmb.contract.spec import Workload
from llmb_installer.detect.detected import Detected
from llmb_installer.detect.machine import MachineFound
from llmb_installer.detect.scheduler import SlurmFound
from llmb_installer.wizard import slurm
from llmb_installer.wizard.question import Back, Question, WizardView
from llmb_installer.wizard.walk import QUESTIONS, Replies, ask_questions

SILENT = SlurmFound(fault="Slurm does not answer")


@pytest.fixture
def base(tmp_path: Path, workloads: dict[str, Workload]) -> WizardView:
    """Slurm's commands are there, and Slurm does not answer."""
    machine = MachineFound(architecture="x86_64", pythons={}, venv_types=("uv",))
    return WizardView(
        detected=Detected(home=tmp_path, cwd=tmp_path, machine=machine, slurm=SILENT),
        workloads=workloads,
    )


class Script:
    """Answers by keys in order: each entry is (key, value); the default for keys that it does not
    name.
    """

    def __init__(self, *steps: tuple[str, Any]) -> None:
        self.steps, self.asked = [*steps], list[tuple[str, Any]]()

    def __call__(
        self, question: Question, view: WizardView, default: Any, can_go_back: bool
    ) -> Any:
        self.asked.append((question.key, default))
        assert can_go_back == (len(self.asked) > 1)
        if self.steps and self.steps[0][0] == question.key:
            return self.steps.pop(0)[1]
        return default


def test_back_asks_the_question_before_with_its_answer(base: WizardView) -> None:
    script = Script(
        ("slurm.partition", "batch"),
        ("gpu_type", Back()),
        ("slurm.partition", "other"),
        ("gpu_type", "h200"),
        ("like", Back()),
        ("gpu_type", Back()),
        ("slurm.partition", "third"),
    )
    memory = Replies()
    layer = ask_questions(base, memory, script)
    assert layer is not None
    keys = [key for key, _ in script.asked]
    first = keys.index("slurm.partition")
    assert keys[first : first + 7] == [
        "slurm.partition", "gpu_type", "slurm.partition", "gpu_type", "like", "gpu_type", "slurm.partition",
    ]  # fmt: skip
    assert [default for key, default in script.asked if key == "slurm.partition"] == [
        "",
        "batch",
        "other",
    ]
    assert [default for key, default in script.asked if key == "gpu_type"][2:] == ["h200", "h200"]
    assert layer["slurm"]["partition"] == "third"


def test_back_keeps_what_was_typed(base: WizardView) -> None:
    script = Script(("slurm.account", Back("half")))
    ask_questions(base, Replies(), script)
    assert [default for key, default in script.asked if key == "slurm.account"] == ["", "half"]


def test_back_at_the_review_asks_the_last_question(base: WizardView) -> None:
    memory = Replies()
    assert ask_questions(base, memory, Script()) is not None
    again = Replies(chosen=memory.chosen, asked=memory.asked)
    asked: list[str] = []

    def prompt(question: Question, view: WizardView, default: Any, can_go_back: bool) -> Any:
        asked.append(question.key)
        return default

    assert ask_questions(base, again, prompt, back=True) is not None
    assert asked == ["workloads"]


def test_back_from_the_first_question_leaves(base: WizardView) -> None:
    assert ask_questions(base, Replies(), lambda *_: Back(), can_leave=True) is None


def test_a_change_that_brings_questions_back_is_undone_one_by_one(base: WizardView) -> None:
    """Answers of questions that do not apply any more are kept for when they do again."""
    memory = Replies()
    ask_questions(base, memory, Script(("slurm.account", "team")))
    memory.choose("cluster_type", "local")
    local = ask_questions(base, memory, Script())
    assert local is not None
    assert "slurm" not in local
    memory.choose("cluster_type", "slurm")
    again = ask_questions(base, memory, Script())
    assert again is not None
    assert again["slurm"]["account"] == "team"


@pytest.mark.parametrize("word", ["none", "None", " none ", "-", "null", ""])
def test_none_means_none_where_an_answer_may_be_empty(base: WizardView, word: str) -> None:
    view = base.over({"cluster_type": "slurm", "gpu_type": "h100"})
    optional = [question for question in QUESTIONS if question.optional]
    assert {question.key for question in optional} == {
        "slurm.partition", "slurm.account", "slurm.qos", "slurm.gpu.gres", "slurm.mpi",
    }  # fmt: skip
    for question in optional:
        value = question.typed(word)
        assert question.fault(view, value) is None
        answers = question.answers(view, value)
        for part in question.key.split("."):
            answers = answers[part]
        assert answers is None


def test_a_name_is_not_none(base: WizardView) -> None:
    name = next(question for question in QUESTIONS if question.key == "cluster_name")
    assert name.typed("none") == "none"


@pytest.mark.parametrize(
    ("gpu_type", "typed", "own", "noted"),
    [("gb300", "8", 8, True), ("gb300", "4", None, False), ("h100", "2", 2, True)],
)
def test_gpus_of_a_node(
    base: WizardView, gpu_type: str, typed: str, own: int | None, noted: bool
) -> None:
    """gb300 has 4 in NVIDIA's reference architecture, h100 has 8."""
    view = base.over({"cluster_type": "slurm", "gpu_type": gpu_type})
    question = slurm.GPUS_PER_NODE
    assert question.applies(view)
    assert question.fault(view, typed) is None
    assert (question.note(view, typed) is not None) == noted
    after = view.over(question.answers(view, typed))
    assert after.at(f"gpu_types.{gpu_type}.gpus_per_node") == own
    assert slurm.GRES.default(after) == typed, "what is requested follows"


@pytest.mark.parametrize("typed", ["0", "eight", "-1", "", "1e1"])
def test_what_is_no_number_of_gpus(base: WizardView, typed: str) -> None:
    assert slurm.GPUS_PER_NODE.fault(base, typed) is not None


def test_gpus_that_slurm_shows_are_not_asked_for(base: WizardView) -> None:
    shown = SlurmFound(
        partitions=read("batch*|up|infinite|1-infinite|4|idle|gpu:gb300:8|a[1-4]|none\n")
    )
    detected = Detected(
        home=base.detected.home, cwd=base.detected.cwd, machine=base.detected.machine, slurm=shown
    )
    view = WizardView(
        detected=detected,
        workloads=base.workloads,
        data={
            "cluster_type": "slurm",
            "gpu_type": "gb300",
            "slurm": {"gpu": {"partition": "batch"}},
        },
    )
    assert not slurm.GPUS_PER_NODE.applies(view)
    assert not slurm.GRES.applies(view)
    gpu_type = next(question for question in QUESTIONS if question.key == "gpu_type")
    assert gpu_type.note(view, "gb300") is not None, "8 of a node, and llmb knows 4"


def test_every_question_that_needs_the_site_says_how_to_find_out(
    wording: Callable[..., None],
) -> None:
    without = {question.key for question in QUESTIONS if not question.find_out}
    assert without == {"like", "gpu_types"}
    text = "\n\n".join(
        f"{question.text}\n{question.find_out}" for question in QUESTIONS if question.find_out
    )
    commands = [line for line in text.splitlines() if line.startswith("  ")]
    assert max(map(len, commands)) < 78, "a command fits in a line, behind two more blanks"
    wording("llmb-install find-out", text)
