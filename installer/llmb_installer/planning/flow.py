# SPDX-License-Identifier: Apache-2.0
"""From answers to an intent: what an installation is to be, whoever gave the answers. Nothing is written here."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from llmb.builtin import builtin_plugins
from llmb.config import CONFIG_FILE
from llmb.errors import Fault, InputFaults, LlmbError, UsageError
from llmb.plugins.loader import Plugins, load_plugins
from llmb.text import yamlfile
from llmb.text.names import as_keys
from llmb.workload.gpus import known_types
from llmb.workload.spec import Workload
from llmb_installer.answers import ARCHITECTURES, AUTO, Answers, read_answers
from llmb_installer.detect import slurm_fit
from llmb_installer.detect.site import settle, site_of
from llmb_installer.planning.plan import SMOKE, Intent, intend
from llmb_installer.record import record
from llmb_installer.record.folder import own_config

# Keys of the answers that have another place in cluster_config.yaml.
_CONFIGURED = {
    "node_architecture": {
        "place": "install.node_architecture",
        "hint": "install: {node_architecture: x86_64} or aarch64",
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The plugins, their workloads by their keys, and a sentence for each plugin that is left out."""

    plugins: Plugins
    workloads: Mapping[str, Workload]
    notes: Sequence[str]


def known() -> Known:
    """What plugins offer. Raises LlmbError when that is nothing."""
    plugins = load_plugins(builtin_plugins())
    workloads = plugins.workloads()
    if not workloads:
        raise LlmbError("no plugin offers a workload", hint="pip install llmb brings three")
    notes = [f"plugin {problem.source} is left out: {problem.reason}" for problem in plugins.problems]
    return Known(plugins=plugins, workloads=workloads, notes=notes)


def intent_of(asked: Answers, offered: Known, *, before: Mapping[str, Any] | None = None) -> tuple[Intent, list[str]]:
    """What the answers ask for here, and notes for the user. Raises LlmbError.

    ``before`` is the configuration that the installer wrote last: of an installation that is there nothing has to be
    found out again, and a cluster that does not answer is no hindrance.
    """
    answers, found = settle(recalled(asked, before or {}))
    known = tuple(offered.workloads)
    if asked.workloads is not None and not {*asked.workloads} & {*known}:  # all were removed, or their plugins
        site = site_of(answers, answers.gpu_type)
        intent, left_out = Intent(answers=answers, asked=asked, site=site, workloads=(), steps=()), list[str]()
    else:
        intent, left_out = intend(answers, site_of(answers, answers.gpu_type), offered.plugins, asked=asked)
    gone = [key for key in asked.workloads or () if key not in known]
    left_out += [f"{key}: no plugin offers it here; what is installed of it stays" for key in gone]
    smoke = tuple(key for key in intent.workloads if SMOKE in offered.workloads[key].on(intent.site.gpu_type))
    if intent.site.cluster_type == "local":  # its environment may be one without NeMo
        smoke = ()
    return replace(intent, known=known, smoke=smoke), [*offered.notes, *found, *left_out]


def recalled(asked: Answers, before: Mapping[str, Any]) -> Answers:
    """``asked`` with what it leaves open as it was found out ``before``: GPU type, GRES, nodes' architecture."""
    gpu_type, machine = before.get("gpu_type"), (before.get("install") or {}).get("node_architecture")
    if asked.gpu_type == AUTO and gpu_type in (*known_types(), *asked.gpu_types):
        asked = replace(asked, gpu_type=str(gpu_type))
    if asked.node_architecture == AUTO and machine in ARCHITECTURES:
        asked = replace(asked, node_architecture=cast(Literal["x86_64", "aarch64"], machine))
    return slurm_fit.with_gres_of(asked, before)


def recorded_answers(install: Path, offered: Known) -> Answers:
    """The answers that the install directory was made by last; without them what its configuration tells.

    Raises LlmbError where they cannot be read, or where the configuration leaves out what is needed.
    """
    path = record.answers_path(install)
    if not path.is_file():
        return _told_by_configuration(install, offered)
    try:
        document = yamlfile.load(path)
    except UsageError as error:
        hint = f"llmb-install --config answers.yaml --install {shlex.quote(str(install))} writes it anew"
        raise InputFaults([Fault(message=error.message)], hint=hint) from error
    return read_answers(document, install=install, known=offered.workloads, recorded=True)


def _told_by_configuration(install: Path, offered: Known) -> Answers:
    """The answers that a cluster_config.yaml written by hand, or copied, amounts to.

    They ask for those workloads alone for which something was installed; the others stay as the file has them. Raises
    InputFaults for what the file does not tell, and this machine neither.
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
        raise InputFaults(faults, hint=f"write what is missing into {install / CONFIG_FILE}") from error
    return asked
