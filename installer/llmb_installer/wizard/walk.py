# SPDX-License-Identifier: Apache-2.0
"""Asks the questions that need an answer in order, and goes back to earlier ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb_installer.answers.layers import join
from llmb_installer.wizard import common, slurm
from llmb_installer.wizard.question import Back, Question, WizardView, make_type_questions

QUESTIONS: tuple[Question, ...] = (
    common.CLUSTER_TYPE,
    common.FOLDER,
    slurm.PARTITION,
    slurm.PARTITION_OF_ALL,
    slurm.NAMED_PARTITION,
    common.GPU_TYPE,
    common.LIKE,
    slurm.OTHERS,
    slurm.GPUS_PER_NODE,
    slurm.GRES,
    slurm.ACCOUNT,
    slurm.NAMED_ACCOUNT,
    slurm.QOS,
    slurm.CPU_PARTITION,
    common.ARCHITECTURE,
    slurm.CONTAINER,
    slurm.MPI,
    slurm.METHOD,
    common.VENV_TYPE,
    common.FRAMEWORK,
    common.WORKLOADS,
    common.NAME,
)

_FIRST = QUESTIONS.index(common.FOLDER) + 1  # the questions of the cluster types come after these


def list_questions(view: WizardView) -> Iterator[Question]:
    """Yield every question in order. A cluster type's questions need that type to be chosen."""
    yield from QUESTIONS[:_FIRST]
    for kind in view.types.values():
        yield from make_type_questions(kind)
    yield from QUESTIONS[_FIRST:]


# Question, view, default, and whether there is a question to go back to.
Prompt = Callable[[Question, WizardView, Any, bool], Any]


@dataclass(slots=True, kw_only=True)
class Replies:
    """The answers of a conversation by the keys of their questions.

    ``chosen`` has the user's answers, and ``asked`` the keys of the questions on the screen so far.
    ``earlier`` answers are defaults, of an interrupted conversation or from before the user went
    back.
    """

    chosen: dict[str, Any] = field(default_factory=dict)
    earlier: dict[str, Any] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def choose(self, key: str, value: Any) -> None:
        self.chosen[key] = value
        self.asked.add(key)


def ask_questions(
    base: WizardView,
    memory: Replies,
    prompt: Prompt,
    *,
    can_leave: bool = False,
    back: bool = False,
) -> dict[str, Any] | None:
    """Ask by ``prompt`` what neither ``base`` nor ``memory`` answers, and return the new layer.

    Each answer goes into ``memory``, so that a second walk, after a change, asks only questions
    that are new or whose answer no longer fits. With ``back`` the last question is asked again.
    Going back from the first question gives None, and is offered with ``can_leave``.
    """
    while True:
        view, layer, trail = base, dict[str, Any](), list[str]()
        for question in list_questions(base):
            if not question.applies(view) or (
                question.key not in memory.chosen and question.is_given(base)
            ):
                continue
            value = find_value(question, view, memory, prompt, can_leave or bool(trail))
            if isinstance(value, Back):
                if value.value is not None and question.fault(view, value.value) is None:
                    memory.earlier[question.key] = value.value
                break
            if question.key in memory.asked and question.key in memory.chosen:
                trail.append(question.key)
            answers = question.answers(view, value)
            view, layer = view.over(answers), join(layer, answers)
        else:
            if not back:
                return layer
            back = False
        if not trail:
            return None
        # the default of its question, which is asked again
        memory.earlier[trail[-1]] = memory.chosen.pop(trail[-1])


def find_value(
    question: Question, view: WizardView, memory: Replies, prompt: Prompt, can_go_back: bool
) -> Any:
    """The value of a question: chosen before, or clear, or asked for.

    Back if the user went back.
    """
    if question.key in memory.chosen and question.fault(view, memory.chosen[question.key]) is None:
        return memory.chosen[question.key]
    # although its answer is clear
    went_back = question.key in memory.asked and question.key in memory.earlier
    if question.key not in memory.chosen and question.clear(view) and not went_back:
        return question.default(view)
    value = prompt(question, view, suggest_default(question, view, memory.earlier), can_go_back)
    if not isinstance(value, Back):
        memory.choose(question.key, value)
    return value


def suggest_default(question: Question, view: WizardView, earlier: dict[str, Any]) -> Any:
    """The default shown with a question."""
    before = earlier.get(question.key)
    if before is not None and question.fault(view, before) is None:
        return before
    return question.default(view)


def list_current_values(
    base: WizardView, chosen: dict[str, Any]
) -> Sequence[tuple[Question, WizardView, Any]]:
    """Every question that applies, with its view and its current value. For the review."""
    view, rows = base, []
    for question in list_questions(base):
        if not question.applies(view):
            continue
        if question.key not in chosen and question.is_given(base):
            answer = next(view.at(key) for key in (question.key, *question.also) if view.has(key))
            rows.append((question, view, question.value(answer)))
            continue
        value = chosen[question.key] if question.key in chosen else question.default(view)
        rows.append((question, view, value))
        view = view.over(question.answers(view, value))
    return rows
