# SPDX-License-Identifier: Apache-2.0
"""Asks in the terminal, with questionary. Ctrl-C raises KeyboardInterrupt."""

from collections.abc import Callable, Sequence
from typing import Any

import questionary

from llmb.errors import LlmbError
from llmb.system import console
from llmb_installer.wizard.question import Option, Question, View

_MANY = 15  # from this number of choices on, typing filters them


def ask(question: Question, view: View, default: Any) -> Any:
    """The user's answer to ``question``. Raises LlmbError where nothing can be chosen."""

    def check(value: Any) -> str | None:
        return question.check(view, value)

    if question.kind == "one":
        value = one(question.text, question.options(view), default)
    elif question.kind == "many":
        value = many(question.text, question.options(view), default, check)
    else:
        value = line(question.text, str(default or ""), check, question.kind == "folder")
    if (note := question.note(view, value)) is not None:
        console.echo(f"  {note}")
    return value


def one(text: str, options: Sequence[Option], default: Any) -> Any:
    """One of ``options``; the cursor starts at ``default``."""
    available = [option.value for option in _available(text, options)]
    first = default if default in available else available[0]
    choices = _choices(options, ())
    start = next(choice for choice in choices if choice.value == first and not choice.disabled)
    searched = len(choices) > _MANY
    return _answer(
        questionary.select(text, choices=choices, default=start, use_search_filter=searched, use_jk_keys=not searched)
    )


def many(text: str, options: Sequence[Option], default: Sequence[Any], check: Callable[[Any], str | None]) -> Any:
    """Any of ``options``; those of ``default`` are selected."""
    _available(text, options)
    return _answer(
        questionary.checkbox(
            text,
            choices=_choices(options, default),
            validate=lambda value: check(value) or True,
            instruction="(space bar selects, Enter confirms)",
        )
    )


def line(text: str, default: str, check: Callable[[str], str | None], folder: bool = False) -> str:
    """A line of text; Tab completes the name of a ``folder``."""
    kind = questionary.path if folder else questionary.text
    more = {"only_directories": True} if folder else {}
    asked = kind(text, default=default, validate=lambda value: check(value) or True, **more)  # type: ignore[arg-type]
    return str(_answer(asked)).strip()


def hidden(text: str) -> str:
    """A secret, which is not shown."""
    return str(_answer(questionary.password(text))).strip()


def _answer(question: questionary.Question) -> Any:
    """The answer. Unlike ``unsafe_ask``, a signal from outside ends the question too, as Python handles it."""
    return question.application.run(handle_sigint=False)


def _available(text: str, options: Sequence[Option]) -> list[Option]:
    found = [option for option in options if not option.refused]
    if not found:
        reasons = "; ".join(f"{option.value}: {option.refused}" for option in options)
        hint = "choose other GPUs, or another cluster type"
        raise LlmbError(f"{text} Nothing can be chosen: {reasons}", hint=hint, code="nothing-to-choose")
    return found


def _choices(options: Sequence[Option], selected: Sequence[Any]) -> list[Any]:
    return [
        questionary.Choice(
            option.title,
            value=option.value,
            disabled=option.refused or None,
            checked=option.value in selected and not option.refused,
        )
        for option in options
    ]
