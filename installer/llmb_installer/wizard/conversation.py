# SPDX-License-Identifier: Apache-2.0
"""The conversation as a whole: from what is given already to answers that the user has seen and said yes to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmb.errors import LlmbError, describe
from llmb.system import console, secrets
from llmb.text.yamlfile import Document
from llmb_installer.answers import NOTHING, with_layer
from llmb_installer.answers.layers import given
from llmb_installer.detect.look import Detected
from llmb_installer.wizard import draft, previous_answers, prompts, review, tokens
from llmb_installer.wizard.question import View
from llmb_installer.wizard.tokens import Plugins, Tokens
from llmb_installer.wizard.walk import walk

SOURCE = "your answers"
_WELCOME = "A few questions. Enter takes what stands there; Ctrl-C stops. Nothing is written before your last yes."
_STOPPED = "Stopped: nothing was installed or changed."
_KEPT = "The same command goes on: your answers so far are its defaults."


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants: to ``install`` by the answers in ``document``, or to ``remove`` or ``repair`` what is there.

    The plan of an installation has been shown and agreed to; that of the others has not.
    """

    action: Literal["install", "remove", "repair"]
    document: Document
    workloads: tuple[str, ...] = ()


def ask(
    document: Document,
    detected: Detected,
    plugins: Plugins,
    show_plan: Callable[[Document], None],
    environ: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> Asked:
    """Talk with the user. ``document`` holds the layers below: file and options; what they answer is not asked.

    ``show_plan`` prints the plan of answers, or raises LlmbError, after which they can be changed. With ``dry_run`` the
    plan is the end, and no secret is kept. What was answered when Ctrl-C comes is the default of the next conversation.
    Raises LlmbError when the user stops, KeyboardInterrupt.
    """
    talk = _Talk(detected=detected, plugins=plugins, show_plan=show_plan, environ=environ, dry_run=dry_run)
    console.echo(_WELCOME)
    try:
        asked = talk.begin(document)
    except BaseException as error:
        kept = bool(talk.chosen) and draft.save(talk.chosen, environ)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"{_STOPPED} {_KEPT if kept else ''}".rstrip()) from error
        raise
    draft.drop(environ)
    return asked


@dataclass(slots=True, kw_only=True)
class _Talk:
    """One conversation; ``chosen`` grows with each answer, by the key of its question."""

    detected: Detected
    plugins: Plugins
    show_plan: Callable[[Document], None]
    environ: Mapping[str, str]
    dry_run: bool
    chosen: dict[str, Any] = field(default_factory=dict)

    def begin(self, document: Document) -> Asked:
        """What to do, and the answers for it."""
        installed, known = self.detected.installed, self.plugins.workloads()
        if installed is None or given(document.data, "cluster_type"):
            return self.agree(document)
        wish = previous_answers.choose(installed, known)
        if wish.action == "elsewhere":
            return self.agree(document)
        there = with_layer(NOTHING, installed.answers(), str(installed.path))
        there = with_layer(there, document.data, document.name)
        if wish.action == "remove":
            return Asked(action="remove", document=there, workloads=wish.workloads)
        if wish.action == "repair":
            return Asked(action="repair", document=there)
        if wish.action == "add":
            self.chosen["workloads"] = [*previous_answers.installed_keys(installed, known), *wish.workloads]
        return self.agree(there)

    def agree(self, document: Document) -> Asked:
        """Ask, review, and show the plan, until the user says yes or stops."""
        base = View(detected=self.detected, workloads=self.plugins.workloads(), data=document.data)
        earlier, held = draft.load(self.environ), Tokens()
        while True:
            answered = with_layer(document, walk(base, self.chosen, prompts.ask, earlier), SOURCE)
            held = tokens.ask(tokens.needed(answered, self.plugins), self.environ, held)
            key = review.review(base, self.chosen, held)
            if key == review.GO:
                key = self.last_word(answered)
            if key == review.YES:
                if not self.dry_run:
                    secrets.save(held.typed)
                return Asked(action="install", document=answered)
            if key == review.STOP:
                raise LlmbError("nothing was done", hint="the same command asks again, with your answers as defaults")
            if key == review.SECRETS:
                held = Tokens()
            elif key != review.CHANGE:
                review.change(key, base, self.chosen)

    def last_word(self, answered: Document) -> str:
        """The plan, and what the user says to it: YES, CHANGE or STOP."""
        try:
            self.show_plan(answered)
        except LlmbError as error:
            console.echo(describe(error), err=True)
            return review.CHANGE
        return review.YES if self.dry_run else review.last_word()
