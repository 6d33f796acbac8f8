# SPDX-License-Identifier: Apache-2.0
"""Asks in the terminal, with questionary. Ctrl-C comes out as KeyboardInterrupt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError
from llmb.system import console
from llmb_installer.wizard.question import Option, Question, View

if TYPE_CHECKING:
    import questionary

_MANY = 15  # choices from which on typing narrows them down


def ask(question: Question, view: View, default: Any) -> Any:
    """The user's answer to ``question``. Raises LlmbError where there is nothing to choose from."""
    value = _ask(question, view, default)
    if (told := question.note(view, value)) is not None:
        console.echo(f"  {told}")
    return value


def _ask(question: Question, view: View, default: Any) -> Any:
    if question.kind == "one":
        return one(question.text, question.options(view), default)
    if question.kind == "many":
        return many(question.text, question.options(view), default, lambda value: question.check(view, value))
    return line(question.text, str(default or ""), lambda value: question.check(view, value), question.kind == "folder")


def one(text: str, options: Sequence[Option], default: Any) -> Any:
    """One of ``options``; the cursor begins at ``default``."""
    import questionary

    open_ones = [option.value for option in _open(text, options)]
    first = default if default in open_ones else open_ones[0]
    choices = _choices(options, ())
    start = next(choice for choice in choices if choice.value == first and not choice.disabled)
    searched = len(choices) > _MANY
    return _answer(
        questionary.select(text, choices=choices, default=start, use_search_filter=searched, use_jk_keys=not searched)
    )


def many(text: str, options: Sequence[Option], default: Sequence[Any], check: Callable[[Any], str | None]) -> Any:
    """Any of ``options``; those of ``default`` are ticked."""
    import questionary

    _open(text, options)
    return _answer(
        questionary.checkbox(
            text,
            choices=_choices(options, default),
            validate=lambda value: check(value) or True,
            instruction="(space bar: yes or no; Enter: done)",
        )
    )


def line(text: str, default: str, check: Callable[[str], str | None], folder: bool = False) -> str:
    """A line of text, a folder's name completed with the tab key."""
    import questionary

    kind = questionary.path if folder else questionary.text
    more = {"only_directories": True} if folder else {}
    asked = kind(text, default=default, validate=lambda value: check(value) or True, **more)  # type: ignore[arg-type]
    return str(_answer(asked)).strip()


def hidden(text: str) -> str:
    """A secret: nothing of it is shown."""
    import questionary

    return str(_answer(questionary.password(text))).strip()


def _answer(question: questionary.Question) -> Any:
    """As its ``unsafe_ask``, but that a signal from outside ends it as well as a key: Python itself heeds those."""
    return question.application.run(handle_sigint=False)


def _open(text: str, options: Sequence[Option]) -> list[Option]:
    found = [option for option in options if not option.refused]
    if not found:
        why = "; ".join(f"{option.value}: {option.refused}" for option in options)
        raise LlmbError(
            f"{text} there is nothing to choose from. {why}", hint="choose other GPUs, or another cluster type"
        )
    return found


def _choices(options: Sequence[Option], ticked: Sequence[Any]) -> list[Any]:
    import questionary

    return [
        questionary.Choice(
            option.title,
            value=option.value,
            disabled=option.refused or None,
            checked=option.value in ticked and not option.refused,
        )
        for option in options
    ]
