# SPDX-License-Identifier: Apache-2.0
"""Finds the secrets that an installation needs, and asks for missing ones without an echo."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from llmb.contract import needs
from llmb.core import secrets
from llmb.core.values import dataclass
from llmb.core.yamlfile import Document
from llmb.errors import LlmbError
from llmb_installer.answers.read import read_answers
from llmb_installer.detect.auto import resolve_auto
from llmb_installer.detect.site import make_site
from llmb_installer.steps.from_needs import WorkloadPlugins
from llmb_installer.wizard import prompts
from llmb_installer.wizard.question import Back


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Secrets by name: sources of known ones, and values typed here, which are never shown."""

    known: Mapping[str, str] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict, repr=False)
    skipped: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        shown = dict(self.known) | dict.fromkeys(
            self.typed, f"will be saved in {secrets.SECRETS_FILE}"
        )
        shown |= dict.fromkeys(self.skipped, "skipped; steps that need it will not be installed")
        return [f"{name}: {text}" for name, text in shown.items()]


def find_needed_secrets(document: Document, plugins: WorkloadPlugins) -> dict[str, list[str]]:
    """The names of the secrets that the answers need, each with the workloads that need it."""
    workloads = plugins.workloads()
    try:
        answers, _ = resolve_auto(read_answers(document, workloads=workloads))
        site = make_site(answers, answers.gpu_type)
        keys = answers.workloads if answers.workloads is not None else tuple(workloads)
        needs_by_key = {key: plugins.setup(workloads[key], site) or needs.Needs() for key in keys}
    except LlmbError:  # the plan reports it, with its fix
        return {}
    names: dict[str, list[str]] = {
        name: [answers.of_type.shown] for name in answers.of_type.secrets
    }
    for key, workload_needs in needs_by_key.items():
        for need in workload_needs.needs:
            secret = need.secret if isinstance(need, needs.HubAsset) else None
            if secret is not None and key not in names.setdefault(secret, []):
                names[secret].append(key)
    return names


def ask_secrets(
    names: Mapping[str, Sequence[str]], environ: Mapping[str, str], before: Tokens
) -> Tokens | Back:
    """Ask for the missing secrets of ``names``. ``before`` is the result of an earlier round.

    Going back from the first returns Back. From another, the one before is asked again.
    """
    existing = secrets.find([*names], environ)
    sources = {
        name: "from the environment" if environ.get(name) else f"in {secrets.SECRETS_FILE}"
        for name in existing
    }
    missing = [name for name in names if name not in existing]
    values = {
        name: before.typed.get(name, "")
        for name in missing
        if name in (*before.typed, *before.skipped)
    }
    answered_names: list[str] = []
    while (name := next((name for name in missing if name not in values), None)) is not None:
        value = prompts.ask_hidden(f"{name}, for {', '.join(names[name])}:", back=True)
        if not isinstance(value, Back):
            values[name] = value
            answered_names.append(name)
        elif not answered_names:
            return value
        else:
            del values[answered_names.pop()]
    typed = {name: values[name] for name in missing if values[name]}
    return Tokens(
        known=sources, typed=typed, skipped=tuple(name for name in missing if not values[name])
    )
