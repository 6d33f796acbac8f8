# SPDX-License-Identifier: Apache-2.0
"""Asks in the terminal, with questionary. Escape goes to the previous question; Ctrl-C raises KeyboardInterrupt."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import questionary
from prompt_toolkit.application import Application, get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from questionary.prompts.common import InquirerControl

from llmb.errors import LlmbError
from llmb.system import console
from llmb.text.fold import fold
from llmb_installer.wizard.question import Back, Option, Question, View
from llmb_installer.wizard.screen import answered, width

BACK, FIND_OUT = "back", "?"  # what the user may also type, where an answer is typed
BACK_TITLE, FIND_OUT_TITLE = "Back to the previous question (Esc)", "I don't know: show how to find out"
_MANY = 15  # from this number of choices on, typing filters them
# Seconds that a lone Escape waits for the rest of a key's sequence (an arrow is Escape, [, A), and for a second key.
_SEQUENCE, _SECOND_KEY = 0.2, 0.1
_POINTER = 5  # characters before the title of a choice


class _Way:
    """The value of a choice that is no answer."""


_BACK, _FIND_OUT = _Way(), _Way()


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
        value = _answer(asked.application, KeyBindings(), back=back or has_esc)
        if value is _BACK:
            return Back()
        if value is not _FIND_OUT:
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
        boxes = _Boxes(_control(asked.application), check)
        value = _answer(asked.application, boxes.keys(), boxes.below, back=back)
        selected = boxes.selected
        if value is _BACK:
            return Back(selected)
        if value is not _FIND_OUT:
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
        state = _Typed(default, check, back=back, find_out=bool(find_out))
        more: dict[str, Any] = {"only_directories": True, "complete_while_typing": False} if folder else {}
        kind: Callable[..., questionary.Question] = questionary.path if folder else questionary.text
        asked = kind(_question(text), default=default, **more)
        value = _answer(asked.application, state.keys(), state.below, back=back)
        if value is _BACK:
            return Back(state.text)
        if value is not _FIND_OUT:
            return str(value)
        _show_how(find_out)


def hidden(text: str, *, back: bool = False) -> Any:
    """A secret, which is not shown, or Back."""
    keys = "(not shown; Enter skips it; Esc: back)" if back else "(not shown; Enter skips it)"
    value = _answer(questionary.password(_question(text, keys)).application, KeyBindings(), back=back)
    if value is _BACK:
        return Back()
    answered(text, "skipped" if not str(value).strip() else "entered")
    return str(value).strip()


class _Typed:
    """The text that is being typed, and what is shown below it."""

    def __init__(self, default: str, check: Callable[[str], str | None], *, back: bool, find_out: bool) -> None:
        self.default, self.check, self.find_out = default, check, find_out
        self.words: dict[str, _Way] = {BACK: _BACK} if back else {}
        self.words |= {FIND_OUT: _FIND_OUT} if find_out else {}
        self.text = default
        self.refused: str | None = None  # the text for which Enter was pressed in vain
        ways = [f"'{FIND_OUT}' shows how to find out"] if find_out else []
        self.ways = "; ".join([*ways, *([f"Esc or '{BACK}' goes back"] if back else [])])
        self._checked: tuple[str, str | None] | None = None

    def fault(self, text: str) -> str | None:
        """Why ``text`` is refused; the check runs once for each text."""
        if self._checked is None or self._checked[0] != text:
            self._checked = (text, self.check(text))
        return self._checked[1]

    def below(self) -> StyleAndTextTuples:
        """The reason why the text is refused, once there is one to judge, and the keys."""
        self.text = get_app().current_buffer.text
        text = self.text.strip()
        is_judged = (text and self.text != self.default and text not in self.words) or self.refused == text
        return _below(self.fault(text) if is_judged else None, self.ways)

    def keys(self) -> KeyBindings:
        """Enter takes the text unless it is refused; ``?`` needs no Enter where nothing was typed."""
        keys = KeyBindings()
        is_untouched = Condition(lambda: self.find_out and get_app().current_buffer.text in ("", self.default))

        @keys.add(FIND_OUT, eager=True, filter=is_untouched)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=_FIND_OUT)

        @keys.add(Keys.ControlM, eager=True)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None  # Enter chose a completion
                return
            buffer.complete_state = None
            text = buffer.text.strip()
            if text in self.words:
                event.app.exit(result=self.words[text])
            elif self.fault(text) is None:
                event.app.exit(result=text)
            else:
                self.refused = text

        return keys


class _Boxes:
    """A list of boxes, and what is shown below it. A choice that is no answer has no box."""

    def __init__(self, control: InquirerControl, check: Callable[[Any], str | None]) -> None:
        self.control, self.check = control, check
        self.refused = False  # whether Enter was pressed in vain
        control.text = self._tokens

    @property
    def selected(self) -> list[Any]:
        """The selected answers, in their order in the list."""
        values = [choice.value for choice in self.control.choices]
        return [value for value in values if value in self.control.selected_options and not isinstance(value, _Way)]

    def below(self) -> StyleAndTextTuples:
        """The reason why the selection is refused, after Enter."""
        return _below(self.check(self.selected) if self.refused else None)

    def keys(self) -> KeyBindings:
        """Enter takes the selection unless it is refused; Enter and the space bar take a choice that is no answer."""
        keys = KeyBindings()
        is_way = Condition(lambda: isinstance(self.control.get_pointed_at().value, _Way))

        @keys.add(Keys.ControlM, eager=True, filter=is_way)
        @keys.add(" ", eager=True, filter=is_way)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=self.control.get_pointed_at().value)

        @keys.add(Keys.ControlM, eager=True, filter=~is_way)
        def _(event: KeyPressEvent) -> None:
            self.refused = self.check(self.selected) is not None
            if not self.refused:
                event.app.exit(result=self.selected)

        return keys

    def _tokens(self) -> StyleAndTextTuples:
        found: list[tuple[str, str]] = self.control._get_choice_tokens()  # type: ignore[no-untyped-call]
        is_before = [*(text in (BACK_TITLE, FIND_OUT_TITLE) for _, text in found[1:]), False]
        shown: StyleAndTextTuples = [
            (style, "  " if before else text) for (style, text), before in zip(found, is_before, strict=True)
        ]
        return shown


def _below(reason: str | None, ways: str = "") -> StyleAndTextTuples:
    lines: list[tuple[str, str]] = [("ansired", fold(f"  {reason}", width() - 1, "  "))] if reason is not None else []
    lines += [("ansibrightblack", fold(f"  {ways}", width() - 1, "  "))] if ways else []
    found: StyleAndTextTuples = [part for line in lines for part in (line, ("", "\n"))]
    return found[:-1]


def _answer(
    application: Application[Any],
    keys: KeyBindings,
    below: Callable[[], StyleAndTextTuples] = list,
    *,
    back: bool,
) -> Any:
    """What the user chose or typed, _BACK after Escape. The screen of the question is erased.

    ``below`` gives what is shown below the question. It is not prompt_toolkit's own toolbar, which is missing in
    terminals that do not report the position of their cursor. Unlike questionary's ``unsafe_ask``, a signal from
    outside ends the question too, as Python handles it.
    """
    if back:

        @keys.add(Keys.Escape)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=_BACK)

    if application.key_bindings is not None:
        application.key_bindings = merge_key_bindings([application.key_bindings, keys])
    more = Window(FormattedTextControl(below), dont_extend_height=True)
    shown = ConditionalContainer(more, filter=Condition(lambda: bool(below())))
    application.layout = Layout(HSplit([application.layout.container, shown]), application.layout.current_window)
    application.ttimeoutlen, application.timeoutlen = _SEQUENCE, _SECOND_KEY
    application.erase_when_done = True
    return application.run(handle_sigint=False)


def _control(application: Application[Any]) -> InquirerControl:
    """The list of choices on the screen."""
    windows = application.layout.find_all_windows()
    return next(window.content for window in windows if isinstance(window.content, InquirerControl))


def _ways(back: bool, find_out: str) -> list[questionary.Choice]:
    """The choices that are no answers."""
    found = [questionary.Choice(FIND_OUT_TITLE, value=_FIND_OUT)] if find_out else []
    return [*found, *([questionary.Choice(BACK_TITLE, value=_BACK)] if back else [])]


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
