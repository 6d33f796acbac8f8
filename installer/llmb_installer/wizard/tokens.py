# SPDX-License-Identifier: Apache-2.0
"""The secrets that the chosen workloads need: finds them, and asks for the others without echo."""

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
    """The part of llmb's loaded plugins that the wizard uses."""

    def workloads(self) -> Mapping[str, Workload]:
        """The workloads by their keys."""

    def setup(self, workload: Workload, site: Site) -> Needs | None:
        """What ``workload`` needs at ``site``; None where no plugin knows."""


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


def needed(document: Document, plugins: Plugins) -> dict[str, list[str]]:
    """The names of the secrets that the answers need, each with the workloads that need it."""
    known = plugins.workloads()
    try:
        answers, _ = settle(read_answers(document, known=known))
        site = site_of(answers, answers.gpu_type)
        keys = answers.workloads if answers.workloads is not None else tuple(known)
        found = {key: plugins.setup(known[key], site) or Needs() for key in keys}
    except LlmbError:  # the plan reports it, with its fix
        return {}
    names: dict[str, list[str]] = {RUNAI_SECRET: ["Run:ai"]} if answers.cluster_type == "runai" else {}
    for key, needs in found.items():
        for need in needs.needs:
            if isinstance(need, HubAsset) and need.secret is not None and key not in names.setdefault(need.secret, []):
                names[need.secret].append(key)
    return names


def ask(names: Mapping[str, Sequence[str]], environ: Mapping[str, str], before: Tokens) -> Tokens:
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
