# SPDX-License-Identifier: Apache-2.0
"""Turns answers into the intent of an installation; writes nothing."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from llmb.builtin import builtin_plugins
from llmb.config import CONFIG_FILE
from llmb.errors import InputFaults, LlmbError, UsageError, as_fault
from llmb.plugins.loader import Plugins, load_plugins
from llmb.text import yamlfile
from llmb.text.names import as_keys
from llmb.workload.gpus import known_types
from llmb.workload.spec import Workload
from llmb_installer import record
from llmb_installer.answers import ARCHITECTURES, AUTO, Answers, read_answers
from llmb_installer.detect import slurm_fit
from llmb_installer.detect.site import settle, site_of
from llmb_installer.planning.plan import SMOKE, Intent, intend
from llmb_installer.record import own_config

# Keys of the answers with another name in cluster_config.yaml.
_CONFIGURED = {
    "node_architecture": {
        "place": "install.node_architecture",
        "hint": "install: {node_architecture: x86_64} or aarch64",
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The plugins, their workloads by key, and a note for each plugin that failed to load."""

    plugins: Plugins
    workloads: Mapping[str, Workload]
    notes: Sequence[str]


def known() -> Known:
    """Load the plugins. Raises LlmbError where none offers a workload."""
    plugins = load_plugins(builtin_plugins())
    workloads = plugins.workloads()
    if not workloads:
        raise LlmbError("no plugin offers a workload", hint="pip install llmb installs three", code="no-workloads")
    notes = [f"plugin {problem.source} is skipped: {problem.reason}" for problem in plugins.problems]
    return Known(plugins=plugins, workloads=workloads, notes=notes)


def intent_of(asked: Answers, offered: Known, *, before: Mapping[str, Any] | None = None) -> tuple[Intent, list[str]]:
    """The intent of the answers here, and notes for the user. Raises LlmbError.

    What the configuration ``before``, which the installer wrote last, contains is not detected again, so that an
    installation can be changed while its cluster does not answer.
    """
    answers, found = settle(recalled(asked, before or {}))
    known = tuple(offered.workloads)
    if asked.workloads is not None and not {*asked.workloads} & {*known}:  # all were removed, or their plugins
        site = site_of(answers, answers.gpu_type)
        intent, omitted = Intent(answers=answers, asked=asked, site=site, workloads=(), steps=()), list[str]()
    else:
        intent, omitted = intend(answers, site_of(answers, answers.gpu_type), offered.plugins, asked=asked)
    gone = [key for key in asked.workloads or () if key not in known]
    omitted += [f"{key}: no plugin offers it here; its installation is kept" for key in gone]
    smoke = tuple(key for key in intent.workloads if SMOKE in offered.workloads[key].on(intent.site.gpu_type))
    if intent.site.cluster_type == "local":  # its environment may lack NeMo
        smoke = ()
    return replace(intent, known=known, smoke=smoke), [*offered.notes, *found, *omitted]


def recalled(asked: Answers, before: Mapping[str, Any]) -> Answers:
    """``asked`` with GPU type, GRES and architecture as detected ``before``, where the answers omit them."""
    gpu_type, machine = before.get("gpu_type"), (before.get("install") or {}).get("node_architecture")
    if asked.gpu_type == AUTO and gpu_type in (*known_types(), *asked.gpu_types):
        asked = replace(asked, gpu_type=str(gpu_type))
    if asked.node_architecture == AUTO and machine in ARCHITECTURES:
        asked = replace(asked, node_architecture=cast(Literal["x86_64", "aarch64"], machine))
    return slurm_fit.with_gres_of(asked, before)


def recorded_answers(install: Path, offered: Known) -> Answers:
    """The answers of the latest installation, else those that its configuration implies.

    Raises LlmbError where they cannot be read or are incomplete.
    """
    path = record.answers_path(install)
    if not path.is_file():
        return _from_configuration(install, offered)
    try:
        document = yamlfile.load(path)
    except UsageError as error:
        hint = f"to replace it, run: llmb-install --config answers.yaml --install {shlex.quote(str(install))}"
        raise InputFaults([replace(as_fault(error), hint=None)], hint=hint) from error
    return read_answers(document, install=install, known=offered.workloads, recorded=True)


def _from_configuration(install: Path, offered: Known) -> Answers:
    """The answers that a cluster_config.yaml written by hand, or copied, implies.

    They ask only for workloads for which something was installed; the file keeps the others. Raises InputFaults for
    what the file omits and cannot be detected.
    """
    from llmb_installer.detect.detected import Installed

    config = own_config(install)
    built = {key for done in record.load(install).steps.values() for key in done.workloads}
    names = [key for key in as_keys(config.workloads.installed or (), built) if key in built]
    data = Installed(path=install, config=config).answers()
    document = replace(yamlfile.load(install / CONFIG_FILE), data={**data, "workloads": names})
    try:
        asked = read_answers(document, known=offered.workloads, recorded=True)
        settle(asked)
    except InputFaults as error:
        faults = [replace(fault, **_CONFIGURED.get(fault.place, {})) for fault in error.faults]
        raise InputFaults(faults, hint=f"add the missing keys to {install / CONFIG_FILE}") from error
    return asked
