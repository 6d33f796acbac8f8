# SPDX-License-Identifier: Apache-2.0
"""The wizard as a whole: from the given answers to answers that the user has reviewed and confirmed."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmb.clusters.local.queue import state_folder
from llmb.errors import LlmbError, describe
from llmb.system import console, files, secrets
from llmb.text.names import as_keys
from llmb.text.yamlfile import Document
from llmb.workload import needs, spec
from llmb_installer.answers import NOTHING, given, read_answers, with_layer
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.detected import Detected, Installed
from llmb_installer.detect.site import settle, site_of
from llmb_installer.steps import Plugins
from llmb_installer.wizard import prompts
from llmb_installer.wizard.question import Option, Question, View
from llmb_installer.wizard.walk import current_values, walk

SOURCE = "your answers"
_WELCOME = "Press Enter to accept the default, Ctrl-C to stop; nothing is written until you confirm the plan."
_STOPPED = "Stopped: nothing was installed or changed."
_KEPT = "When you run the same command again, your previous answers become the defaults."
_GO, _YES, _CHANGE, _STOP, _SECRETS = "go", "yes", "change", "stop", "secrets"
_WIDTH = 90  # characters of an answer in the review

Action = Literal["add", "remove", "repair", "update", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants: to ``install`` by the answers in ``document``, or to ``remove`` or ``repair``.

    The plan of an installation was shown and confirmed; removal and repair were not confirmed yet.
    """

    action: Literal["install", "remove", "repair"]
    document: Document
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Secrets by name: the source of each known one, and the values typed here, which are never shown."""

    known: Mapping[str, str] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict, repr=False)
    skipped: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """A line on each secret, for the review."""
        shown = dict(self.known) | dict.fromkeys(self.typed, f"will be saved in {secrets.SECRETS_FILE}")
        shown |= dict.fromkeys(self.skipped, "skipped; steps that need it will not be installed")
        return [f"{name}: {text}" for name, text in shown.items()]


def ask(
    document: Document,
    detected: Detected,
    plugins: Plugins,
    show_plan: Callable[[Document], None],
    environ: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> Asked:
    """Ask the user for what ``document``, the answers of file and options, does not have.

    ``show_plan`` prints the plan of answers, or raises LlmbError, after which they can be changed. A ``dry_run`` ends
    with the plan and saves no secret. The answers before a Ctrl-C become the defaults of the next conversation. Raises
    LlmbError when the user stops, KeyboardInterrupt.
    """
    conversation = _Conversation(
        detected=detected, plugins=plugins, show_plan=show_plan, environ=environ, dry_run=dry_run
    )
    console.echo(_WELCOME)
    try:
        asked = conversation.begin(document)
    except BaseException as error:
        kept = bool(conversation.chosen) and _save_draft(conversation.chosen, environ)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"{_STOPPED} {_KEPT if kept else ''}".rstrip()) from error
        raise
    with contextlib.suppress(OSError):
        _draft_path(environ).unlink(missing_ok=True)
    return asked


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """One conversation; ``chosen`` has each answer by the key of its question."""

    detected: Detected
    plugins: Plugins
    show_plan: Callable[[Document], None]
    environ: Mapping[str, str]
    dry_run: bool
    chosen: dict[str, Any] = field(default_factory=dict)

    def begin(self, document: Document) -> Asked:
        """Ask what to do with an existing installation, else go straight to the questions."""
        installed, known = self.detected.installed, self.plugins.workloads()
        if installed is None or given(document.data, "cluster_type"):
            return self.agree(document)
        action, workloads = _choose_action(installed, known)
        if action == "elsewhere":
            return self.agree(document)
        recorded = with_layer(NOTHING, installed.answers(), str(installed.path))
        recorded = with_layer(recorded, document.data, document.name)
        if action in ("remove", "repair"):
            return Asked(action=action, document=recorded, workloads=workloads)
        if action == "add":
            self.chosen["workloads"] = [*_installed_keys(installed, known), *workloads]
        return self.agree(recorded)

    def agree(self, document: Document) -> Asked:
        """Ask, review and show the plan, until the user confirms or stops."""
        base = View(detected=self.detected, workloads=self.plugins.workloads(), data=document.data, types=all_types())
        earlier, held = _load_draft(self.environ), Tokens()
        while True:
            answered = with_layer(document, walk(base, self.chosen, prompts.ask, earlier), SOURCE)
            held = ask_secrets(needed_secrets(answered, self.plugins), self.environ, held)
            key = _review(base, self.chosen, held)
            if key == _GO:
                key = self.confirm(answered)
            if key == _YES:
                if not self.dry_run:
                    secrets.save(held.typed)
                return Asked(action="install", document=answered)
            if key == _STOP:
                hint = "run the same command again: your previous answers become the defaults"
                raise LlmbError("nothing was installed or changed", hint=hint, code="stopped")
            if key == _SECRETS:
                held = Tokens()
            elif key != _CHANGE:
                _change(key, base, self.chosen)

    def confirm(self, answered: Document) -> str:
        """Show the plan and ask to confirm it: _YES, _CHANGE or _STOP."""
        try:
            self.show_plan(answered)
        except LlmbError as error:
            console.echo(describe(error), err=True)
            return _CHANGE
        if self.dry_run:
            return _YES
        options = [Option(_YES, "yes, install"), Option(_CHANGE, "no, change an answer"), Option(_STOP, "no, stop")]
        return str(prompts.one("Continue?", options, _YES))


def _choose_action(installed: Installed, known: Mapping[str, spec.Workload]) -> tuple[Action, tuple[str, ...]]:
    """What the user wants to do with an existing installation, and the workloads to add or remove."""
    there = _installed_keys(installed, known)
    others = [key for key in known if key not in there]
    name = installed.config.cluster_name
    action: Action = prompts.one(
        f"{installed.path} has an installation ({installed.config.cluster_type}, {name}). What do you want to do?",
        [
            Option("add", "add workloads", "" if others else "all are installed"),
            Option("remove", "remove workloads", "" if there else "none is installed"),
            Option("repair", "repair or update: check every step, rebuild what is missing, changed or out of date"),
            Option("update", "change its answers"),
            Option("elsewhere", "keep it, and install into another folder"),
        ],
        "add" if others else "repair",
    )
    if action not in ("add", "remove"):
        return action, ()
    options = [Option(key, key) for key in (others if action == "add" else there)]
    chosen = prompts.many(
        f"Which workloads to {action}?", options, [], lambda value: None if value else "select at least one (space bar)"
    )
    return action, tuple(chosen)


def _installed_keys(installed: Installed, known: Mapping[str, spec.Workload]) -> list[str]:
    there = installed.config.workloads.installed
    return [*known] if there is None else as_keys(there, known)


def _review(base: View, chosen: dict[str, Any], held: Tokens) -> str:
    """Show every answer: the key of the answer to change, or _GO, _STOP, _SECRETS."""
    rows = current_values(base, chosen)
    width = max(len(question.label) for question, _, _ in rows)
    options = [Option(_GO, "Looks good, show the plan")]
    options += [Option(question.key, _row(question, view, value, width)) for question, view, value in rows]
    if lines := held.lines():
        options.append(Option(_SECRETS, f"  {'secrets':<{width}}  {_cut('; '.join(lines))}"))
    options.append(Option(_STOP, "Stop: nothing is installed"))
    return str(prompts.one("Your answers. Choose one to change it:", options, _GO))


def _row(question: Question, view: View, value: Any, width: int) -> str:
    return f"  {question.label:<{width}}  {_cut(question.shown(view, value))}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _change(key: str, base: View, chosen: dict[str, Any]) -> None:
    """Ask the question of ``key`` again."""
    question, view, value = next(row for row in current_values(base, chosen) if row[0].key == key)
    chosen[key] = prompts.ask(question, view, value if question.fault(view, value) is None else question.default(view))


def _draft_path(environ: Mapping[str, str]) -> Path:
    """Where the answers of an interrupted conversation are kept."""
    return state_folder(environ) / "install-answers.json"


def _load_draft(environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        data = files.read_json(_draft_path(environ))
    except LlmbError:  # only defaults: a damaged file does not matter
        return {}
    return data if isinstance(data, dict) else {}


def _save_draft(chosen: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    try:
        files.write_json(_draft_path(environ), dict(chosen), mode=0o600)
    except LlmbError:
        return False
    return True


def needed_secrets(document: Document, plugins: Plugins) -> dict[str, list[str]]:
    """The names of the secrets that the answers need, each with the workloads that need it."""
    known = plugins.workloads()
    try:
        answers, _ = settle(read_answers(document, known=known))
        site = site_of(answers, answers.gpu_type)
        keys = answers.workloads if answers.workloads is not None else tuple(known)
        found = {key: plugins.setup(known[key], site) or needs.Needs() for key in keys}
    except LlmbError:  # the plan reports it, with its fix
        return {}
    names: dict[str, list[str]] = {name: [answers.of_type.shown] for name in answers.of_type.secrets}
    for key, own in found.items():
        for need in own.needs:
            secret = need.secret if isinstance(need, needs.HubAsset) else None
            if secret is not None and key not in names.setdefault(secret, []):
                names[secret].append(key)
    return names


def ask_secrets(names: Mapping[str, Sequence[str]], environ: Mapping[str, str], before: Tokens) -> Tokens:
    """Ask for those of ``names`` that were not found; ``before`` is the result of an earlier round."""
    there = secrets.find([*names], environ)
    known = {name: "from the environment" if environ.get(name) else f"in {secrets.SECRETS_FILE}" for name in there}
    typed, skipped = {}, []
    for name in (name for name in names if name not in there):
        value = before.typed.get(name, "")
        if not value and name not in before.skipped:
            value = prompts.hidden(f"{name}, for {', '.join(names[name])} (not shown; press Enter to skip):")
        if value:
            typed[name] = value
        else:
            skipped.append(name)
    return Tokens(known=known, typed=typed, skipped=tuple(skipped))
