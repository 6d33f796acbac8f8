# SPDX-License-Identifier: Apache-2.0
"""The last look: every answer, each of which can be changed, and the plan before the last yes."""

from typing import Any

from llmb_installer.wizard import prompts
from llmb_installer.wizard.question import Option, Question, View
from llmb_installer.wizard.tokens import Tokens
from llmb_installer.wizard.walk import standing

GO, YES, CHANGE, STOP, SECRETS = "go", "yes", "change", "stop", "secrets"
_WIDTH = 90  # characters of an answer on its line


def review(base: View, chosen: dict[str, Any], tokens: Tokens) -> str:
    """The key of the answer to change; or GO, STOP, SECRETS."""
    rows = standing(base, chosen)
    width = max(len(question.label) for question, _, _ in rows)
    options = [Option(GO, "All is right: show the plan")]
    options += [Option(question.key, _row(question, view, value, width)) for question, view, value in rows]
    if told := tokens.lines():
        options.append(Option(SECRETS, f"  {'secrets':<{width}}  {_cut('; '.join(told))}"))
    options.append(Option(STOP, "Stop here: nothing is done"))
    return str(prompts.one("Your answers. Choose one to change it:", options, GO))


def _row(question: Question, view: View, value: Any, width: int) -> str:
    return f"  {question.label:<{width}}  {_cut(question.shown(view, value))}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def change(key: str, base: View, chosen: dict[str, Any]) -> None:
    """Ask the question of ``key`` again, whoever answered it before."""
    question, view, value = next(row for row in standing(base, chosen) if row[0].key == key)
    chosen[key] = prompts.ask(question, view, value if question.fault(view, value) is None else question.default(view))


def last_word() -> str:
    """Whether the plan that stands above is to be carried out: YES, CHANGE or STOP."""
    options = [Option(YES, "yes, install"), Option(CHANGE, "no, change an answer"), Option(STOP, "no, stop")]
    return str(prompts.one("Go ahead?", options, YES))
