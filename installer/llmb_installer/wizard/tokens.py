# SPDX-License-Identifier: Apache-2.0
"""Which secrets the chosen workloads need, and asking for those that are not there, without echo."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from llmb.errors import LlmbError
from llmb.runs.launch import Site
from llmb.system import secrets
from llmb.text.yamlfile import Document
from llmb.workload.needs import HubAsset, Needs
from llmb.workload.spec import Workload
from llmb_installer.answers import read_answers
from llmb_installer.detect.site import settle, site_of
from llmb_installer.wizard import prompts

RUNAI_SECRET = "APP_SECRET"


class Plugins(Protocol):
    """The part of llmb's loaded plugins that is asked here."""

    def workloads(self) -> Mapping[str, Workload]:
        """The workloads by their keys."""

    def setup(self, workload: Workload, site: Site) -> Needs | None:
        """What ``workload`` needs at ``site``; None when nobody can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Secrets by name: where the known ones are, and those that were typed, whose values are never shown."""

    known: Mapping[str, str] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict, repr=False)
    left_out: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """A line for each, for the review."""
        told = dict(self.known) | dict.fromkeys(self.typed, f"will be kept in {secrets.SECRETS_FILE}")
        told |= dict.fromkeys(self.left_out, "left out: what needs it is not installed")
        return [f"{name}: {where}" for name, where in told.items()]


def needed(document: Document, plugins: Plugins) -> dict[str, list[str]]:
    """The names of the secrets that the answers need, each with what needs it."""
    known = plugins.workloads()
    try:
        answers, _ = settle(read_answers(document, known=known))
        site = site_of(answers, answers.gpu_type)
        keys = answers.workloads if answers.workloads is not None else tuple(known)
        found = {key: plugins.setup(known[key], site) or Needs() for key in keys}
    except LlmbError:  # the plan will tell it, with its fix
        return {}
    names: dict[str, list[str]] = {RUNAI_SECRET: ["Run:ai"]} if answers.cluster_type == "runai" else {}
    for key, needs in found.items():
        for need in needs.needs:
            if isinstance(need, HubAsset) and need.secret is not None and key not in names.setdefault(need.secret, []):
                names[need.secret].append(key)
    return names


def ask(names: Mapping[str, Sequence[str]], environ: Mapping[str, str], before: Tokens) -> Tokens:
    """Ask for those of ``names`` that are nowhere yet; ``before`` is what an earlier round came to."""
    there = secrets.find([*names], environ)
    known = {name: "from the environment" if environ.get(name) else f"in {secrets.SECRETS_FILE}" for name in there}
    typed, left_out = {}, []
    for name in (name for name in names if name not in there):
        value = before.typed.get(name, "")
        if not value and name not in before.left_out:
            value = prompts.hidden(f"{name}, for {', '.join(names[name])} (not shown; Enter alone: later):")
        if value:
            typed[name] = value
        else:
            left_out.append(name)
    return Tokens(known=known, typed=typed, left_out=tuple(left_out))
