# SPDX-License-Identifier: Apache-2.0
"""From answers to an intent: what an installation is to be, whoever gave the answers. Nothing is written here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmb import yamlfile
from llmb.errors import Fault, InputFaults, LlmbError, UsageError
from llmb.loader import Plugins, load_plugins
from llmb.workload import Workload
from llmb_installer import record
from llmb_installer.answers import Answers, read_answers
from llmb_installer.place import settle, site_of
from llmb_installer.plan import Intent, intend


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The plugins, their workloads by their keys, and a sentence for each plugin that is left out."""

    plugins: Plugins
    workloads: Mapping[str, Workload]
    notes: Sequence[str]


def known() -> Known:
    """What plugins offer. Raises LlmbError when that is nothing."""
    plugins = load_plugins()
    workloads = plugins.workloads()
    if not workloads:
        raise LlmbError("no plugin offers a workload", hint="pip install llmb brings three")
    notes = [f"plugin {problem.source} is left out: {problem.reason}" for problem in plugins.problems]
    return Known(plugins=plugins, workloads=workloads, notes=notes)


def intent_of(asked: Answers, offered: Known) -> tuple[Intent, list[str]]:
    """What the answers ask for here, and notes for the user. Raises LlmbError."""
    answers, found = settle(asked)
    if asked.workloads == ():  # all were removed
        site = site_of(answers, answers.gpu_type)
        return Intent(answers=answers, asked=asked, site=site, workloads=(), steps=()), [*offered.notes, *found]
    intent, left_out = intend(answers, site_of(answers, answers.gpu_type), offered.plugins, asked=asked)
    return intent, [*offered.notes, *found, *left_out]


def recorded_answers(install: Path, offered: Known) -> Answers:
    """The answers that the install directory was made by last. Raises LlmbError where they are not known."""
    path = record.answers_path(install)
    if not path.is_file():
        message = f"{install} does not hold the answers that it was made by"
        raise LlmbError(message, hint="llmb-install --config answers.yaml writes them there")
    try:
        document = yamlfile.load(path)
    except UsageError as error:
        hint = f"llmb-install --config answers.yaml --install {shlex.quote(str(install))} writes it anew"
        raise InputFaults([Fault(message=error.message)], hint=hint) from error
    return read_answers(document, install=install, known=offered.workloads, recorded=True)
