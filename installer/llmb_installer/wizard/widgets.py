# SPDX-License-Identifier: Apache-2.0
"""Questions on the screen: typed lines, lists of boxes, keys, and the lines below."""

import shutil
from collections.abc import Callable
from typing import Any

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from questionary.prompts.common import InquirerControl

from llmb.core import console
from llmb.core.fold import fold


def get_width() -> int:
    return shutil.get_terminal_size().columns


def print_answer(text: str, answer: str) -> None:
    """Print a question with its answer, which stay on the screen."""
    console.echo(fold(f"? {text} {' '.join(answer.split())}", get_width(), "    "))


BACK, FIND_OUT = "back", "?"  # what the user may also type, where an answer is typed
BACK_TITLE, FIND_OUT_TITLE = (
    "Back to the previous question (Esc)",
    "I don't know: show how to find out (?)",
)
# Seconds that a lone Escape waits for the rest of a key's sequence (an arrow is Escape, [, A), and
# for a second key.
_SEQUENCE, _SECOND_KEY = 0.2, 0.1


class Way:
    """The value of a choice that is no answer."""


GO_BACK, SHOW_HOW = Way(), Way()


class Typed:
    """The text that is being typed, and what is shown below it.

    ``check`` runs after each key. ``check_at_enter``, which may take seconds, runs only for a text
    that the user enters.
    """

    def __init__(
        self,
        default: str,
        check: Callable[[str], str | None],
        check_at_enter: Callable[[str], str | None] = lambda _: None,
        *,
        is_folder: bool = False,
        back: bool,
        find_out: bool,
    ) -> None:
        self.default, self.check, self.check_at_enter = default, check, check_at_enter
        self.is_folder, self.find_out = is_folder, find_out
        self.words: dict[str, Way] = {BACK: GO_BACK} if back else {}
        self.words |= {FIND_OUT: SHOW_HOW} if find_out else {}
        self.text = default
        self.refused: str | None = None  # the text for which Enter was pressed in vain
        ways = [f"'{FIND_OUT}' shows how to find out"] if find_out else []
        self.ways = "; ".join([*ways, *([f"Esc or '{BACK}' goes back"] if back else [])])
        self._checked: tuple[str, str | None] | None = None

    def fault(self, text: str) -> str | None:
        """Why ``text`` is refused. The check runs once for each text."""
        if self._checked is None or self._checked[0] != text:
            self._checked = (text, self.check(text))
        return self._checked[1]

    def below(self) -> StyleAndTextTuples:
        """The reason why the text is refused, once there is one to judge, and the keys."""
        self.text = get_app().current_buffer.text
        text = self.text.strip()
        is_judged = (
            text and self.text != self.default and text not in self.words
        ) or self.refused == text
        return render_below(self.fault(text) if is_judged else None, self.ways)

    def keys(self) -> KeyBindings:
        """Enter takes the text unless it is refused.

        As the first key, also behind a text that was refused, ``?`` needs no Enter. ``/`` or ``~``
        as the first key begins another path in place of the default. Any later ``?`` is typed.
        """
        keys = KeyBindings()
        is_untouched = Condition(lambda: get_app().current_buffer.text in ("", self.default))
        is_refused = Condition(lambda: get_app().current_buffer.text.strip() == self.refused)
        asks = (is_untouched | is_refused) & Condition(lambda: self.find_out)

        @keys.add(FIND_OUT, eager=True, filter=asks)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=SHOW_HOW)

        @keys.add("/", eager=True, filter=is_untouched & Condition(lambda: self.is_folder))
        @keys.add("~", eager=True, filter=is_untouched & Condition(lambda: self.is_folder))
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.text = ""
            event.current_buffer.insert_text(event.data)

        @keys.add(Keys.ControlM, eager=True)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if (
                buffer.complete_state is not None
                and buffer.complete_state.current_completion is not None
            ):
                buffer.complete_state = None  # Enter chose a completion
                return
            buffer.complete_state = None
            text = buffer.text.strip()
            if text in self.words:
                event.app.exit(result=self.words[text])
            elif self.fault(text) is not None:
                self.refused = text
            elif (reason := self.check_at_enter(text)) is not None:
                self._checked, self.refused = (text, reason), text
            else:
                event.app.exit(result=text)

        return keys


def add_find_out_key(keys: KeyBindings) -> KeyBindings:
    """Let ``?`` take the choice of a list that shows how to find out."""

    @keys.add(FIND_OUT, eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=SHOW_HOW)

    return keys


class Boxes:
    """A list of boxes, and what is shown below it. A choice that is no answer has no box."""

    def __init__(self, control: InquirerControl, check: Callable[[Any], str | None]) -> None:
        self.control, self.check = control, check
        self.refused = False  # whether Enter was pressed in vain
        control.text = self._tokens

    @property
    def selected(self) -> list[Any]:
        """The selected answers, in their order in the list."""
        values = [choice.value for choice in self.control.choices]
        return [
            value
            for value in values
            if value in self.control.selected_options and not isinstance(value, Way)
        ]

    def below(self) -> StyleAndTextTuples:
        """The reason why the selection is refused, after Enter."""
        return render_below(self.check(self.selected) if self.refused else None)

    def keys(self) -> KeyBindings:
        """Enter takes the selection unless it is refused.

        Enter and the space bar take a choice that is no answer.
        """
        keys = KeyBindings()
        is_way = Condition(lambda: isinstance(self.control.get_pointed_at().value, Way))

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
        tokens: list[tuple[str, str]]
        tokens = self.control._get_choice_tokens()  # type: ignore[no-untyped-call]
        is_before = [*(text in (BACK_TITLE, FIND_OUT_TITLE) for _, text in tokens[1:]), False]
        shown: StyleAndTextTuples = [
            (style, "  " if before else text)
            for (style, text), before in zip(tokens, is_before, strict=True)
        ]
        return shown


def render_below(reason: str | None, ways: str = "") -> StyleAndTextTuples:
    lines: list[tuple[str, str]] = (
        [("ansired", fold(f"  {reason}", get_width() - 1, "  "))] if reason is not None else []
    )
    lines += [("ansibrightblack", fold(f"  {ways}", get_width() - 1, "  "))] if ways else []
    parts: StyleAndTextTuples = [part for line in lines for part in (line, ("", "\n"))]
    return parts[:-1]


def run_question(
    application: Application[Any],
    keys: KeyBindings,
    below: Callable[[], StyleAndTextTuples] = list,
    *,
    back: bool,
) -> Any:
    """Return what the user chose or typed, or GO_BACK. The question's screen is erased.

    ``below`` gives what is shown below the question. It is not prompt_toolkit's own toolbar, which
    is missing in terminals that do not report the position of their cursor. Unlike questionary's
    ``unsafe_ask``, a signal from outside ends the question too, as Python handles it.
    """
    if back:

        @keys.add(Keys.Escape)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=GO_BACK)

    if application.key_bindings is not None:
        application.key_bindings = merge_key_bindings([application.key_bindings, keys])
    window = Window(FormattedTextControl(below), dont_extend_height=True)
    shown = ConditionalContainer(window, filter=Condition(lambda: bool(below())))
    application.layout = Layout(
        HSplit([application.layout.container, shown]), application.layout.current_window
    )
    application.ttimeoutlen, application.timeoutlen = _SEQUENCE, _SECOND_KEY
    application.erase_when_done = True
    return application.run(handle_sigint=False)


def find_control(application: Application[Any]) -> InquirerControl:
    """The list of choices on the screen."""
    windows = application.layout.find_all_windows()
    return next(window.content for window in windows if isinstance(window.content, InquirerControl))
