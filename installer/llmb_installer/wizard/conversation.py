# SPDX-License-Identifier: Apache-2.0
"""The wizard as a whole: from given answers to reviewed and confirmed ones."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from llmb.builtin.local.queue import state_folder
from llmb.core import console, files, secrets
from llmb.core.fold import fold
from llmb.core.yamlfile import Document
from llmb.errors import LlmbError, describe
from llmb_installer.answers.layers import NOTHING, has_key, override
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.detected import Detected
from llmb_installer.steps.from_needs import WorkloadPlugins
from llmb_installer.wizard import prompts
from llmb_installer.wizard.actions import choose_action, list_installed
from llmb_installer.wizard.ask_secrets import Tokens, ask_secrets, find_needed_secrets
from llmb_installer.wizard.common import FOLDER, find_empty_folder
from llmb_installer.wizard.question import AnswerOption, Back, Question, WizardView
from llmb_installer.wizard.walk import Replies, ask_questions, list_current_values
from llmb_installer.wizard.widgets import get_width


def _path(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "install-answers.json"


def load_draft(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the answers of an interrupted conversation, by the keys of their questions."""
    try:
        data = files.read_json(_path(environ))
    except LlmbError:  # only defaults: a damaged file does not matter
        return {}
    return data if isinstance(data, dict) else {}


def save_draft(answers: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Keep ``answers`` without secrets. Return True if that was possible."""
    try:
        files.write_json(_path(environ), dict(answers), mode=0o600)
    except LlmbError:
        return False
    return True


def forget_draft(environ: Mapping[str, str]) -> None:
    """Remove the answers of a conversation that came to its end."""
    with contextlib.suppress(OSError):
        _path(environ).unlink(missing_ok=True)


SOURCE = "your answers"
_WELCOME = (
    "Press Enter to accept the default, Esc to go back, Ctrl-C to stop. Nothing is written until"
    " you confirm the plan."
)
_STOPPED = "Stopped: nothing was installed or changed."
_EARLIER = "The defaults are your answers of last time, when you stopped or were interrupted."
_KEPT = "When you run the same command again, your previous answers become the defaults."
_CURRENT = "current folder"  # beside the answers of a draft: where the user was
_GO, _YES, _CHANGE, _STOP, _SECRETS = "go", "yes", "change", "stop", "secrets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The user's wish: ``install`` by the answers in ``document``, ``remove`` or ``repair``.

    The plan of an installation was shown and confirmed; removal and repair were not confirmed yet.
    """

    action: Literal["install", "remove", "repair"]
    document: Document
    workloads: tuple[str, ...] = ()


def ask(
    document: Document,
    detected: Detected,
    plugins: WorkloadPlugins,
    show_plan: Callable[[Document], object],
    environ: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> Asked:
    """Ask the user for what ``document``, the answers of file and options, does not have.

    ``show_plan`` prints the plan of answers, or raises LlmbError, after which they can be changed.
    A ``dry_run`` ends with the plan and saves no secret. If the conversation is interrupted, its
    answers become the defaults of the next one. Stopping ends the command with exit code 0. Raises
    KeyboardInterrupt, LlmbError.
    """
    conversation = _Conversation(
        detected=detected, plugins=plugins, show_plan=show_plan, environ=environ, dry_run=dry_run
    )
    console.echo(fold(_WELCOME, get_width()))
    try:
        outcome = conversation.begin(document)
    except BaseException as error:
        is_kept = conversation.keep()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                fold(f"{_STOPPED} {_KEPT if is_kept else ''}".rstrip(), get_width())
            ) from error
        raise
    forget_draft(environ)
    return outcome


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """One conversation. ``memory`` has each answer by the key of its question."""

    detected: Detected
    plugins: WorkloadPlugins
    show_plan: Callable[[Document], object]
    environ: Mapping[str, str]
    dry_run: bool
    memory: Replies = field(default_factory=Replies)

    def begin(self, document: Document) -> Asked:
        """Ask what to do with an existing installation, else go straight to the questions."""
        self.memory.earlier = load_draft(self.environ)
        if self.memory.earlier:
            console.echo(fold(f"{_EARLIER}{self.prefer_empty_folder()}", get_width()))
        installed, workloads_offered = self.detected.installed, self.plugins.workloads()
        if installed is None or has_key(document.data, "cluster_type"):
            return self.agree(document, can_leave=False)
        recorded = override(NOTHING, installed.answers(), str(installed.path))
        recorded = override(recorded, document.data, document.name)
        while True:
            action, workloads = choose_action(installed, workloads_offered)
            if action in ("remove", "repair"):
                return Asked(action=action, document=recorded, workloads=workloads)
            if action == "add":
                self.memory.chosen["workloads"] = [
                    *list_installed(installed, workloads_offered),
                    *workloads,
                ]
            else:
                self.memory.chosen.pop("workloads", None)
            with contextlib.suppress(_LeftError):
                return self.agree(document if action == "elsewhere" else recorded, can_leave=True)

    def prefer_empty_folder(self) -> str:
        """Make the current folder the default if it is empty, and was not the current one before.

        Return the sentence that says so, empty if nothing changed.
        """
        before, folder = self.memory.earlier.get(FOLDER.key), find_empty_folder(self.detected)
        place = self.memory.earlier.pop(_CURRENT, None)
        is_elsewhere = folder is not None and str(folder) != place
        if folder is None or not is_elsewhere or before is None or self.detected.named is not None:
            return ""
        self.memory.earlier[FOLDER.key] = str(folder)
        if files.expand(str(before)).absolute() == folder:
            return ""
        return f" The install folder was {before}: now it is the current one, which is empty."

    def prompt(self, question: Question, view: WizardView, default: Any, can_go_back: bool) -> Any:
        """Ask one question.

        The answers before it are kept, as the connection may break while it waits.
        """
        self.keep()
        return prompts.ask(question, view, default, back=can_go_back)

    def keep(self) -> bool:
        """Keep the answers so far for the next conversation. Return True if that was possible."""
        place = {_CURRENT: str(self.detected.cwd)}
        answers = {**self.memory.earlier, **self.memory.chosen, **place}
        return bool(self.memory.chosen) and save_draft(answers, self.environ)

    def agree(self, document: Document, *, can_leave: bool) -> Asked:
        """Ask, review and show the plan, until the user confirms or stops.

        Raises _LeftError if the user goes back from the first question.
        """
        base = WizardView(
            detected=self.detected,
            workloads=self.plugins.workloads(),
            data=document.data,
            types=all_types(),
        )
        memory, held, before, back = self.memory, Tokens(), None, False
        while True:
            can_go_back = can_leave or before is not None
            layer = ask_questions(base, memory, self.prompt, can_leave=can_go_back, back=back)
            back = False
            if layer is None:
                if before is None:
                    raise _LeftError
                memory.chosen, before = before, None  # as at the review
                continue
            answered = override(document, layer, SOURCE)
            tokens = ask_secrets(find_needed_secrets(answered, self.plugins), self.environ, held)
            if isinstance(tokens, Back):
                before, back = None, True
                continue
            held = tokens
            before = dict(memory.chosen)
            key = _review(base, memory.chosen, held)
            if key == _GO:
                key = self.confirm(answered)
            if key == _YES:
                if not self.dry_run:
                    secrets.save(held.typed)
                return Asked(action="install", document=answered)
            if key == _STOP:
                console.echo(fold(f"{_STOPPED} {_KEPT}", get_width()), err=True)
                raise click.exceptions.Exit(0)
            if isinstance(key, Back):
                before, back = None, True
            elif key == _SECRETS:
                held = Tokens()
            elif key != _CHANGE:
                _change(key, base, memory)

    def confirm(self, answered: Document) -> str:
        """Show the plan and ask to confirm it: _YES, _CHANGE or _STOP."""
        try:
            self.show_plan(answered)
        except LlmbError as error:
            console.echo(describe(error), err=True)
            return _CHANGE
        if self.dry_run:
            return _YES
        change = AnswerOption(_CHANGE, "no, change an answer (Esc)")
        options = [AnswerOption(_YES, "yes, install"), change, AnswerOption(_STOP, "no, stop")]
        chosen = prompts.ask_one("Continue?", options, _YES, has_esc=True)
        return _CHANGE if isinstance(chosen, Back) else str(chosen)


class _LeftError(Exception):
    """The user went back from the first question."""


def _review(base: WizardView, chosen: dict[str, Any], held: Tokens) -> str | Back:
    """Show every answer: the key of the answer to change, or _GO, _STOP, _SECRETS, or Back."""
    rows = list_current_values(base, chosen)
    wide = max(len(question.label) for question, _, _ in rows)
    options = [AnswerOption(_GO, "Looks good, show the plan")]
    options += [
        AnswerOption(question.key, f"  {question.label:<{wide}}  {question.shown(view, value)}")
        for question, view, value in rows
    ]
    if lines := held.lines():
        options.append(AnswerOption(_SECRETS, f"  {'secrets':<{wide}}  {'; '.join(lines)}"))
    options.append(AnswerOption(_STOP, "Stop: nothing is installed"))
    chosen_key = prompts.ask_one("Your answers. Choose one to change it:", options, _GO, back=True)
    return chosen_key if isinstance(chosen_key, Back) else str(chosen_key)


def _change(key: str, base: WizardView, memory: Replies) -> None:
    """Ask the question of ``key`` again. Going back keeps its answer."""
    question, view, value = next(
        row for row in list_current_values(base, memory.chosen) if row[0].key == key
    )
    default = value if question.fault(view, value) is None else question.default(view)
    answer = prompts.ask(question, view, default, back=True)
    if not isinstance(answer, Back):
        memory.choose(key, answer)


Resumed = Literal["continue", "change", "other"]


def ask_resume(install: Path, count: str, *, refused: str, has_config: bool) -> Resumed:
    """Ask what to do with the unfinished installation in ``install``, whose plan was shown.

    ``count`` says how many steps are done. ``refused`` is the reason why it cannot continue as it
    is, or empty. ``has_config`` is True if there was a finished installation before.
    """
    otherwise = (
        "do something else: add, remove or repair"
        if has_config
        else "leave it, and answer the questions anew"
    )
    options = [
        AnswerOption("continue", "continue it", refused),
        AnswerOption("change", "change its answers first"),
        AnswerOption("other", otherwise),
    ]
    text = f"{install} has an unfinished installation: {count}. What do you want to do?"
    chosen: Resumed = prompts.ask_one(text, options, "change" if refused else "continue")
    return chosen
