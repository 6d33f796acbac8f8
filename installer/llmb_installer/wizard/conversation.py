# SPDX-License-Identifier: Apache-2.0
"""The wizard as a whole: from the given answers to answers that the user has reviewed and confirmed."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmb.clusters.local.queue import state_folder
from llmb.errors import LlmbError, describe
from llmb.system import console, files, secrets
from llmb.text.fold import fold
from llmb.text.yamlfile import Document
from llmb_installer.answers.layers import NOTHING, given, with_layer
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.detected import Detected
from llmb_installer.steps import Plugins
from llmb_installer.wizard import prompts
from llmb_installer.wizard.actions import choose_action, installed_keys
from llmb_installer.wizard.ask_secrets import Tokens, ask_secrets, needed_secrets
from llmb_installer.wizard.question import Back, Option, Question, View
from llmb_installer.wizard.walk import Memory, current_values, walk
from llmb_installer.wizard.widgets import width


def _path(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "install-answers.json"


def load_draft(environ: Mapping[str, str]) -> dict[str, Any]:
    """The answers of the last conversation, if it was interrupted, by the keys of their questions."""
    try:
        data = files.read_json(_path(environ))
    except LlmbError:  # only defaults: a damaged file does not matter
        return {}
    return data if isinstance(data, dict) else {}


def save_draft(answers: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Keep ``answers``, without secrets; whether that was possible."""
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
    "Press Enter to accept the default, Esc to go back, Ctrl-C to stop. Nothing is written until you confirm the plan."
)
_STOPPED = "Stopped: nothing was installed or changed."
_EARLIER = "The defaults are your answers of last time, when you stopped or were interrupted."
_KEPT = "When you run the same command again, your previous answers become the defaults."
_GO, _YES, _CHANGE, _STOP, _SECRETS = "go", "yes", "change", "stop", "secrets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants: to ``install`` by the answers in ``document``, or to ``remove`` or ``repair``.

    The plan of an installation was shown and confirmed; removal and repair were not confirmed yet.
    """

    action: Literal["install", "remove", "repair"]
    document: Document
    workloads: tuple[str, ...] = ()


def ask(
    document: Document,
    detected: Detected,
    plugins: Plugins,
    show_plan: Callable[[Document], object],
    environ: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> Asked:
    """Ask the user for what ``document``, the answers of file and options, does not have.

    ``show_plan`` prints the plan of answers, or raises LlmbError, after which they can be changed. A ``dry_run`` ends
    with the plan and saves no secret. If the conversation is interrupted, its answers become the defaults of the next
    one. Raises LlmbError when the user stops, KeyboardInterrupt.
    """
    conversation = _Conversation(
        detected=detected, plugins=plugins, show_plan=show_plan, environ=environ, dry_run=dry_run
    )
    console.echo(fold(_WELCOME, width()))
    try:
        asked = conversation.begin(document)
    except BaseException as error:
        kept = conversation.keep()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(fold(f"{_STOPPED} {_KEPT if kept else ''}".rstrip(), width())) from error
        raise
    forget_draft(environ)
    return asked


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """One conversation; ``memory`` has each answer by the key of its question."""

    detected: Detected
    plugins: Plugins
    show_plan: Callable[[Document], object]
    environ: Mapping[str, str]
    dry_run: bool
    memory: Memory = field(default_factory=Memory)

    def begin(self, document: Document) -> Asked:
        """Ask what to do with an existing installation, else go straight to the questions."""
        self.memory.earlier = load_draft(self.environ)
        if self.memory.earlier:
            console.echo(fold(_EARLIER, width()))
        installed, known = self.detected.installed, self.plugins.workloads()
        if installed is None or given(document.data, "cluster_type"):
            return self.agree(document, can_leave=False)
        recorded = with_layer(NOTHING, installed.answers(), str(installed.path))
        recorded = with_layer(recorded, document.data, document.name)
        while True:
            action, workloads = choose_action(installed, known)
            if action in ("remove", "repair"):
                return Asked(action=action, document=recorded, workloads=workloads)
            if action == "add":
                self.memory.chosen["workloads"] = [*installed_keys(installed, known), *workloads]
            else:
                self.memory.chosen.pop("workloads", None)
            with contextlib.suppress(_LeftError):
                return self.agree(document if action == "elsewhere" else recorded, can_leave=True)

    def prompt(self, question: Question, view: View, default: Any, can_go_back: bool) -> Any:
        """Ask one question. The answers before it are kept, as the connection may break while it waits."""
        self.keep()
        return prompts.ask(question, view, default, back=can_go_back)

    def keep(self) -> bool:
        """Keep the answers so far for the next conversation; whether there are any, and they could be kept."""
        answers = {**self.memory.earlier, **self.memory.chosen}
        return bool(self.memory.chosen) and save_draft(answers, self.environ)

    def agree(self, document: Document, *, can_leave: bool) -> Asked:
        """Ask, review and show the plan, until the user confirms or stops. Raises _LeftError where they went back."""
        base = View(detected=self.detected, workloads=self.plugins.workloads(), data=document.data, types=all_types())
        memory, held, before, back = self.memory, Tokens(), None, False
        while True:
            can_go_back = can_leave or before is not None
            layer = walk(base, memory, self.prompt, can_leave=can_go_back, back=back)
            back = False
            if layer is None:
                if before is None:
                    raise _LeftError
                memory.chosen, before = before, None  # as at the review
                continue
            answered = with_layer(document, layer, SOURCE)
            found = ask_secrets(needed_secrets(answered, self.plugins), self.environ, held)
            if isinstance(found, Back):
                before, back = None, True
                continue
            held = found
            before = dict(memory.chosen)
            key = _review(base, memory.chosen, held)
            if key == _GO:
                key = self.confirm(answered)
            if key == _YES:
                if not self.dry_run:
                    secrets.save(held.typed)
                return Asked(action="install", document=answered)
            if key == _STOP:
                hint = "run the same command again: your previous answers become the defaults"
                raise LlmbError("nothing was installed or changed", hint=hint, code="stopped")
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
        change = Option(_CHANGE, "no, change an answer (Esc)")
        options = [Option(_YES, "yes, install"), change, Option(_STOP, "no, stop")]
        chosen = prompts.one("Continue?", options, _YES, has_esc=True)
        return _CHANGE if isinstance(chosen, Back) else str(chosen)


class _LeftError(Exception):
    """The user went back from the first question."""


def _review(base: View, chosen: dict[str, Any], held: Tokens) -> str | Back:
    """Show every answer: the key of the answer to change, or _GO, _STOP, _SECRETS, or Back."""
    rows = current_values(base, chosen)
    wide = max(len(question.label) for question, _, _ in rows)
    options = [Option(_GO, "Looks good, show the plan")]
    options += [
        Option(question.key, f"  {question.label:<{wide}}  {question.shown(view, value)}")
        for question, view, value in rows
    ]
    if lines := held.lines():
        options.append(Option(_SECRETS, f"  {'secrets':<{wide}}  {'; '.join(lines)}"))
    options.append(Option(_STOP, "Stop: nothing is installed"))
    chosen_key = prompts.one("Your answers. Choose one to change it:", options, _GO, back=True)
    return chosen_key if isinstance(chosen_key, Back) else str(chosen_key)


def _change(key: str, base: View, memory: Memory) -> None:
    """Ask the question of ``key`` again; going back keeps its answer."""
    question, view, value = next(row for row in current_values(base, memory.chosen) if row[0].key == key)
    default = value if question.fault(view, value) is None else question.default(view)
    answer = prompts.ask(question, view, default, back=True)
    if not isinstance(answer, Back):
        memory.choose(key, answer)


Resumed = Literal["continue", "change", "other"]


def ask_resume(install: Path, count: str, *, refused: str, has_config: bool) -> Resumed:
    """What to do with the unfinished installation in ``install``, of which the plan was shown.

    ``count``: how many steps are done. ``refused``: why it cannot continue as it is; empty where it can.
    ``has_config``: whether there was a finished installation before.
    """
    other = "do something else: add, remove or repair" if has_config else "leave it, and answer the questions anew"
    options = [
        Option("continue", "continue it", refused),
        Option("change", "change its answers first"),
        Option("other", other),
    ]
    text = f"{install} has an unfinished installation: {count}. What do you want to do?"
    chosen: Resumed = prompts.one(text, options, "change" if refused else "continue")
    return chosen
