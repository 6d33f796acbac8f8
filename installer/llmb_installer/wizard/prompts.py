# SPDX-License-Identifier: Apache-2.0
"""Asks in the terminal, with questionary.

Escape goes to the previous question. Ctrl-C raises KeyboardInterrupt.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import questionary
from prompt_toolkit.key_binding import KeyBindings

from llmb.core import console
from llmb.core.fold import fold
from llmb.errors import LlmbError
from llmb_installer.wizard.question import AnswerOption, Back, Question, WizardView
from llmb_installer.wizard.widgets import (
    BACK_TITLE,
    FIND_OUT_TITLE,
    GO_BACK,
    SHOW_HOW,
    Boxes,
    Typed,
    add_find_out_key,
    find_control,
    get_width,
    print_answer,
    run_question,
)

_MANY = 15  # from this number of choices on, typing filters them
_POINTER = 5  # characters before the title of a choice


def ask(question: Question, view: WizardView, default: Any, *, back: bool = False) -> Any:
    """The user's answer to ``question``, or Back, which is offered with ``back``.

    Raises LlmbError if nothing can be chosen.
    """

    def check(value: Any) -> str | None:
        return question.check(view, value)

    if question.kind == "one":
        value = ask_one(
            question.text, question.options(view), default, back=back, find_out=question.find_out
        )
    elif question.kind == "many":
        value = ask_many(
            question.text,
            question.options(view),
            default,
            check,
            back=back,
            find_out=question.find_out,
        )
    else:
        value = ask_line(
            question.text,
            str(default if default is not None else ""),
            lambda text: question.fault(view, question.typed(text)),
            lambda text: question.check_at_enter(view, question.typed(text)),
            is_folder=question.kind == "folder",
            back=back,
            find_out=question.find_out,
        )
        value = value if isinstance(value, Back) else question.typed(value)
    if isinstance(value, Back):
        return value
    if question.kind != "one":
        print_answer(question.text, question.shown(view, value))
    if (note := question.note(view, value)) is not None:
        console.echo(fold(f"  {note}", get_width(), "  "))
    return value


def ask_one(
    text: str,
    options: Sequence[AnswerOption],
    default: Any,
    *,
    back: bool = False,
    has_esc: bool = False,
    find_out: str = "",
) -> Any:
    """One of ``options``, or Back. The cursor starts at ``default``.

    ``has_esc``: Escape goes back, and a title says so.
    """
    available = [option.value for option in _available(text, options)]
    first = default if default in available else available[0]
    while True:
        choices = [*_choices(options, ()), *_ways(back, find_out)]
        start = next(choice for choice in choices if choice.value == first and not choice.disabled)
        searched = len(choices) > _MANY
        prompt = questionary.select(
            _question(text, f"(arrow keys{', or type to filter' if searched else ''})"),
            choices=choices,
            default=start,
            instruction=" ",
            use_search_filter=searched,
            use_jk_keys=not searched,
        )
        keys = add_find_out_key(KeyBindings()) if find_out and not searched else KeyBindings()
        value = run_question(prompt.application, keys, back=back or has_esc)
        if value is GO_BACK:
            return Back()
        if value is not SHOW_HOW:
            print_answer(text, next(option.title for option in options if option.value == value))
            return value
        _show_how(find_out)


def ask_many(
    text: str,
    options: Sequence[AnswerOption],
    default: Sequence[Any],
    check: Callable[[Any], str | None],
    *,
    back: bool = False,
    find_out: str = "",
) -> Any:
    """Ask for any of ``options``, with ``default`` selected. Return Back if the user went back."""
    _available(text, options)
    selected = list(default)
    while True:
        prompt = questionary.checkbox(
            _question(text, "(space bar selects, Enter confirms)"),
            choices=[*_choices(options, selected), *_ways(back, find_out)],
            instruction=" ",
        )
        boxes = Boxes(find_control(prompt.application), check)
        keys = add_find_out_key(boxes.keys()) if find_out else boxes.keys()
        value = run_question(prompt.application, keys, boxes.below, back=back)
        selected = boxes.selected
        if value is GO_BACK:
            return Back(selected)
        if value is not SHOW_HOW:
            return selected
        _show_how(find_out)


def ask_line(
    text: str,
    default: str,
    check: Callable[[str], str | None],
    check_at_enter: Callable[[str], str | None] = lambda _: None,
    *,
    is_folder: bool = False,
    back: bool = False,
    find_out: str = "",
) -> Any:
    """A line of text, or Back. Tab completes the name of a folder.

    ``check`` gives the reason why a text is refused, which is shown while it is typed.
    ``check_at_enter`` judges the entered text.
    """
    while True:
        state = Typed(
            default,
            check,
            check_at_enter,
            is_folder=is_folder,
            back=back,
            find_out=bool(find_out),
        )
        settings: dict[str, Any] = (
            {"only_directories": True, "complete_while_typing": False} if is_folder else {}
        )
        kind: Callable[..., questionary.Question] = (
            questionary.path if is_folder else questionary.text
        )
        prompt = kind(_question(text), default=default, **settings)
        value = run_question(prompt.application, state.keys(), state.below, back=back)
        if value is GO_BACK:
            return Back(None if state.text.strip() in state.words else state.text.strip())
        if value is not SHOW_HOW:
            return str(value)
        _show_how(find_out)


def ask_hidden(text: str, *, back: bool = False) -> Any:
    """A secret, which is not shown, or Back."""
    keys = "(not shown; Enter skips it; Esc: back)" if back else "(not shown; Enter skips it)"
    value = run_question(
        questionary.password(_question(text, keys)).application, KeyBindings(), back=back
    )
    if value is GO_BACK:
        return Back()
    print_answer(text, "skipped" if not str(value).strip() else "entered")
    return str(value).strip()


def _ways(back: bool, find_out: str) -> list[questionary.Choice]:
    """The choices that are no answers."""
    ways = [questionary.Choice(FIND_OUT_TITLE, value=SHOW_HOW)] if find_out else []
    return [*ways, *([questionary.Choice(BACK_TITLE, value=GO_BACK)] if back else [])]


def _show_how(find_out: str) -> None:
    """Print how to find out an answer.

    A command, which begins with blanks, stays in one line, to be pasted.
    """
    for part in find_out.rstrip("\n").split("\n"):
        console.echo(f"  {part}" if part.startswith(" ") else fold(f"  {part}", get_width(), "  "))


def _question(text: str, keys: str = "") -> str:
    return fold(f"{text} {keys}".rstrip(), get_width() - 3, "  ")


def _available(text: str, options: Sequence[AnswerOption]) -> list[AnswerOption]:
    available = [option for option in options if not option.refused]
    if not available:
        reasons = "; ".join(f"{option.value}: {option.refused}" for option in options)
        hint = "choose other GPUs, or another cluster type"
        raise LlmbError(
            f"{text} Nothing can be chosen: {reasons}", hint=hint, code="nothing-to-choose"
        )
    return available


def _choices(options: Sequence[AnswerOption], selected: Sequence[Any]) -> list[questionary.Choice]:
    return [
        questionary.Choice(
            _title(f"{option.title} ({option.refused})" if option.refused else option.title),
            value=option.value,
            # without a text of its own
            disabled=True if option.refused else None,  # type: ignore[arg-type]
            checked=option.value in selected and not option.refused,
        )
        for option in options
    ]


def _title(text: str) -> str:
    """Return the title of a choice in lines that fit, indented like its second column."""
    columns = re.match(r" *\S+(?: \S+)* {2,}", text)
    column = columns.end() if columns is not None and columns.end() < get_width() // 2 else 2
    return fold(text, get_width() - _POINTER - 1, " " * column).replace("\n", "\n" + " " * _POINTER)
