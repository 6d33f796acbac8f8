# SPDX-License-Identifier: Apache-2.0
"""The secrets that an installation needs: which are known, and asking for the others, which are never shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llmb.errors import LlmbError
from llmb.system import secrets
from llmb.text.yamlfile import Document
from llmb.workload import needs
from llmb_installer.answers.read import read_answers
from llmb_installer.detect.settle import settle
from llmb_installer.detect.site import site_of
from llmb_installer.steps import Plugins
from llmb_installer.wizard import prompts
from llmb_installer.wizard.question import Back


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Secrets by name: the source of each known one, and the values typed here, which are never shown."""

    known: Mapping[str, str] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict, repr=False)
    skipped: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        shown = dict(self.known) | dict.fromkeys(self.typed, f"will be saved in {secrets.SECRETS_FILE}")
        shown |= dict.fromkeys(self.skipped, "skipped; steps that need it will not be installed")
        return [f"{name}: {text}" for name, text in shown.items()]


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


def ask_secrets(names: Mapping[str, Sequence[str]], environ: Mapping[str, str], before: Tokens) -> Tokens | Back:
    """Ask for those of ``names`` that were not found; ``before`` is the result of an earlier round.

    Back where the user went back from the first of them; from another, the one before is asked again.
    """
    there = secrets.find([*names], environ)
    known = {name: "from the environment" if environ.get(name) else f"in {secrets.SECRETS_FILE}" for name in there}
    missing = [name for name in names if name not in there]
    values = {name: before.typed.get(name, "") for name in missing if name in (*before.typed, *before.skipped)}
    asked: list[str] = []
    while (name := next((name for name in missing if name not in values), None)) is not None:
        value = prompts.hidden(f"{name}, for {', '.join(names[name])}:", back=True)
        if not isinstance(value, Back):
            values[name] = value
            asked.append(name)
        elif not asked:
            return value
        else:
            del values[asked.pop()]
    typed = {name: values[name] for name in missing if values[name]}
    return Tokens(known=known, typed=typed, skipped=tuple(name for name in missing if not values[name]))
