# SPDX-License-Identifier: Apache-2.0
"""Asks in the terminal, with questionary. Escape goes to the previous question; Ctrl-C raises KeyboardInterrupt."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import questionary
from prompt_toolkit.key_binding import KeyBindings

from llmb.errors import LlmbError
from llmb.system import console
from llmb.text.fold import fold
from llmb_installer.wizard.question import Back, Option, Question, View
from llmb_installer.wizard.widgets import (
    BACK_TITLE,
    FIND_OUT_TITLE,
    GO_BACK,
    SHOW_HOW,
    Boxes,
    Typed,
    answer,
    answered,
    control_of,
    width,
    with_find_out,
)

_MANY = 15  # from this number of choices on, typing filters them
_POINTER = 5  # characters before the title of a choice


def ask(question: Question, view: View, default: Any, *, back: bool = False) -> Any:
    """The user's answer to ``question``, or Back, which is offered with ``back``.

    Raises LlmbError where nothing can be chosen.
    """

    def check(value: Any) -> str | None:
        return question.check(view, value)

    if question.kind == "one":
        value = one(question.text, question.options(view), default, back=back, find_out=question.find_out)
    elif question.kind == "many":
        value = many(question.text, question.options(view), default, check, back=back, find_out=question.find_out)
    else:
        value = line(
            question.text,
            str(default if default is not None else ""),
            lambda text: question.fault(view, question.typed(text)),
            question.kind == "folder",
            back=back,
            find_out=question.find_out,
        )
        value = value if isinstance(value, Back) else question.typed(value)
    if isinstance(value, Back):
        return value
    if question.kind != "one":
        answered(question.text, question.shown(view, value))
    if (note := question.note(view, value)) is not None:
        console.echo(fold(f"  {note}", width(), "  "))
    return value


def one(
    text: str, options: Sequence[Option], default: Any, *, back: bool = False, has_esc: bool = False, find_out: str = ""
) -> Any:
    """One of ``options``, or Back; the cursor starts at ``default``.

    ``has_esc``: Escape goes back, and a title says so.
    """
    available = [option.value for option in _available(text, options)]
    first = default if default in available else available[0]
    while True:
        choices = [*_choices(options, ()), *_ways(back, find_out)]
        start = next(choice for choice in choices if choice.value == first and not choice.disabled)
        searched = len(choices) > _MANY
        asked = questionary.select(
            _question(text, f"(arrow keys{', or type to filter' if searched else ''})"),
            choices=choices,
            default=start,
            instruction=" ",
            use_search_filter=searched,
            use_jk_keys=not searched,
        )
        keys = with_find_out(KeyBindings()) if find_out and not searched else KeyBindings()
        value = answer(asked.application, keys, back=back or has_esc)
        if value is GO_BACK:
            return Back()
        if value is not SHOW_HOW:
            answered(text, next(option.title for option in options if option.value == value))
            return value
        _show_how(find_out)


def many(
    text: str,
    options: Sequence[Option],
    default: Sequence[Any],
    check: Callable[[Any], str | None],
    *,
    back: bool = False,
    find_out: str = "",
) -> Any:
    """Any of ``options``, or Back; those of ``default`` are selected."""
    _available(text, options)
    selected = list(default)
    while True:
        asked = questionary.checkbox(
            _question(text, "(space bar selects, Enter confirms)"),
            choices=[*_choices(options, selected), *_ways(back, find_out)],
            instruction=" ",
        )
        boxes = Boxes(control_of(asked.application), check)
        keys = with_find_out(boxes.keys()) if find_out else boxes.keys()
        value = answer(asked.application, keys, boxes.below, back=back)
        selected = boxes.selected
        if value is GO_BACK:
            return Back(selected)
        if value is not SHOW_HOW:
            return selected
        _show_how(find_out)


def line(
    text: str,
    default: str,
    check: Callable[[str], str | None],
    folder: bool = False,
    *,
    back: bool = False,
    find_out: str = "",
) -> Any:
    """A line of text, or Back. ``check`` gives the reason why a text is refused, which is shown while it is typed.

    Tab completes the name of a ``folder``.
    """
    while True:
        state = Typed(default, check, back=back, find_out=bool(find_out))
        more: dict[str, Any] = {"only_directories": True, "complete_while_typing": False} if folder else {}
        kind: Callable[..., questionary.Question] = questionary.path if folder else questionary.text
        asked = kind(_question(text), default=default, **more)
        value = answer(asked.application, state.keys(), state.below, back=back)
        if value is GO_BACK:
            return Back(None if state.text.strip() in state.words else state.text.strip())
        if value is not SHOW_HOW:
            return str(value)
        _show_how(find_out)


def hidden(text: str, *, back: bool = False) -> Any:
    """A secret, which is not shown, or Back."""
    keys = "(not shown; Enter skips it; Esc: back)" if back else "(not shown; Enter skips it)"
    value = answer(questionary.password(_question(text, keys)).application, KeyBindings(), back=back)
    if value is GO_BACK:
        return Back()
    answered(text, "skipped" if not str(value).strip() else "entered")
    return str(value).strip()


def _ways(back: bool, find_out: str) -> list[questionary.Choice]:
    """The choices that are no answers."""
    found = [questionary.Choice(FIND_OUT_TITLE, value=SHOW_HOW)] if find_out else []
    return [*found, *([questionary.Choice(BACK_TITLE, value=GO_BACK)] if back else [])]


def _show_how(find_out: str) -> None:
    """Print how to find out an answer; a command, which begins with blanks, stays in one line, to be pasted."""
    for part in find_out.rstrip("\n").split("\n"):
        console.echo(f"  {part}" if part.startswith(" ") else fold(f"  {part}", width(), "  "))


def _question(text: str, keys: str = "") -> str:
    return fold(f"{text} {keys}".rstrip(), width() - 3, "  ")


def _available(text: str, options: Sequence[Option]) -> list[Option]:
    found = [option for option in options if not option.refused]
    if not found:
        reasons = "; ".join(f"{option.value}: {option.refused}" for option in options)
        hint = "choose other GPUs, or another cluster type"
        raise LlmbError(f"{text} Nothing can be chosen: {reasons}", hint=hint, code="nothing-to-choose")
    return found


def _choices(options: Sequence[Option], selected: Sequence[Any]) -> list[questionary.Choice]:
    return [
        questionary.Choice(
            _title(f"{option.title} ({option.refused})" if option.refused else option.title),
            value=option.value,
            disabled=True if option.refused else None,  # type: ignore[arg-type]  # without a text of its own
            checked=option.value in selected and not option.refused,
        )
        for option in options
    ]


def _title(text: str) -> str:
    """The title of a choice in lines that fit; those after the first begin where its second column does."""
    columns = re.match(r" *\S+(?: \S+)* {2,}", text)
    column = columns.end() if columns is not None and columns.end() < width() // 2 else 2
    return fold(text, width() - _POINTER - 1, " " * column).replace("\n", "\n" + " " * _POINTER)
