# SPDX-License-Identifier: Apache-2.0
"""Asks the questions in order, except those whose answer is given or clear."""

from collections.abc import Callable, Iterator
from typing import Any

from llmb_installer.answers import joined
from llmb_installer.wizard import common, slurm, type_questions
from llmb_installer.wizard.question import Question, View

QUESTIONS: tuple[Question, ...] = (
    common.CLUSTER_TYPE,
    common.FOLDER,
    slurm.PARTITION,
    slurm.NAMED_PARTITION,
    common.GPU_TYPE,
    common.LIKE,
    slurm.OTHERS,
    slurm.GRES,
    slurm.ACCOUNT,
    slurm.NAMED_ACCOUNT,
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


def questions(view: View) -> Iterator[Question]:
    """Every question in order; those of a cluster type only while it is the chosen one."""
    yield from QUESTIONS[:_FIRST]
    for kind in view.types.values():
        yield from type_questions.of(kind)
    yield from QUESTIONS[_FIRST:]


Prompt = Callable[[Question, View, Any], Any]


def walk(base: View, chosen: dict[str, Any], prompt: Prompt, earlier: dict[str, Any]) -> dict[str, Any]:
    """The layer of answers that overrides ``base``: asks by ``prompt`` what neither ``base`` nor ``chosen`` answers.

    Each answer goes into ``chosen``, so that a second walk, after a change, asks only the questions that are new or
    whose answer no longer fits. ``earlier`` holds answers of an interrupted conversation; they are the defaults.
    """
    view, layer = base, dict[str, Any]()
    for question in questions(base):
        if not question.applies(view):
            continue
        if question.key not in chosen and question.is_given(base):
            continue
        value = value_of(question, view, chosen, earlier, prompt)
        own = question.answers(view, value)
        view, layer = view.over(own), joined(layer, own)
    return layer


def value_of(question: Question, view: View, chosen: dict[str, Any], earlier: dict[str, Any], prompt: Prompt) -> Any:
    """The value of a question: chosen before, or clear, or asked for."""
    if question.key in chosen and question.fault(view, chosen[question.key]) is None:
        return chosen[question.key]
    if question.key not in chosen and question.clear(view):
        return question.default(view)
    chosen[question.key] = prompt(question, view, suggested(question, view, earlier))
    return chosen[question.key]


def suggested(question: Question, view: View, earlier: dict[str, Any]) -> Any:
    """The default shown with a question."""
    before = earlier.get(question.key)
    if before is not None and question.fault(view, before) is None:
        return before
    return question.default(view)


def current_values(base: View, chosen: dict[str, Any]) -> list[tuple[Question, View, Any]]:
    """Every question that applies, with its view and its current value; for the review."""
    view, found = base, []
    for question in questions(base):
        if not question.applies(view):
            continue
        if question.key not in chosen and question.is_given(base):
            answer = next(view.at(key) for key in (question.key, *question.also) if view.has(key))
            found.append((question, view, question.value(answer)))
            continue
        value = chosen[question.key] if question.key in chosen else question.default(view)
        found.append((question, view, value))
        view = view.over(question.answers(view, value))
    return found
