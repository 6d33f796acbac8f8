# SPDX-License-Identifier: Apache-2.0
"""The plan of an installation: steps to do, finished steps, and the change of the configuration."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from llmb.builtin import builtin_plugins
from llmb.config import CONFIG_FILE
from llmb.config.slurm import SlurmConfig
from llmb.errors import InputFaults, LlmbError, PreflightError, UsageError, as_fault
from llmb.plugins import loaded
from llmb.plugins.loader import load_plugins
from llmb.runs.launch import Site
from llmb.text import yamlfile
from llmb.text.names import as_keys
from llmb.workload import gpus, needs, spec
from llmb_installer import record
from llmb_installer.answers.layers import with_layer, with_settings
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import ARCHITECTURES, AUTO, Answers
from llmb_installer.detect.detected import Installed
from llmb_installer.detect.settle import settle, with_gres_of
from llmb_installer.detect.site import site_of
from llmb_installer.planning import config
from llmb_installer.steps import PYXIS_HINT, Plugins, Step, add_workload, is_finished, programs_step

SMOKE = "smoke"  # the size for the first run on a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What to install, whatever is installed already: keys of workloads, and the steps that they need.

    ``asked`` are the answers before detection. ``adopts``: the installer may change what a configuration written by
    hand has about the environments of these workloads. ``known``: keys of all workloads that plugins offer here.
    ``smoke``: those of ``workloads`` with a size for the first run.
    """

    answers: Answers
    asked: Answers
    site: Site
    workloads: tuple[str, ...]
    steps: tuple[Step, ...]
    adopts: bool = False
    known: tuple[str, ...] = ()
    smoke: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is still to do for an intent, by ``record`` and the files that exist."""

    intent: Intent
    record: record.InstallRecord
    todo: tuple[Step, ...]
    done: tuple[Step, ...]
    config: config.ConfigChange
    own_config: dict[str, object] = field(default_factory=dict)

    @property
    def install(self) -> Path:
        return self.intent.site.install

    @property
    def progress(self) -> str:
        """``2 of 5 steps are done``."""
        return (
            f"{len(self.done)} of {len(self.done) + len(self.todo)} steps {'is' if len(self.done) == 1 else 'are'} done"
        )

    @property
    def is_empty(self) -> bool:
        return not self.todo and not self.config.changed and self.record.config == self.own_config


def intend(answers: Answers, site: Site, plugins: Plugins, *, asked: Answers | None = None) -> tuple[Intent, list[str]]:
    """The intent of ``answers`` at ``site``, and a note for each workload that is skipped.

    A workload that cannot be installed there is skipped. Raises LlmbError for all such workloads that the answers name.
    """
    steps: tuple[Step, ...] = ()
    keys, omitted, refused = [], [], list[LlmbError]()
    hint = "llmb-run plugins shows more"
    for key, workload in plugins.workloads().items():
        if answers.workloads is not None and key not in answers.workloads:
            continue
        try:
            steps = add_workload(steps, key, _needs(plugins, workload, answers, site), answers, site)
        except LlmbError as error:
            refused += [error] if answers.workloads is not None else []
            omitted.append(f"{key} is skipped: {error.message}")
            if error.code == "no-containers" and answers.of_type.has(SlurmConfig):
                hint = PYXIS_HINT
            continue
        keys.append(key)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise PreflightError([as_fault(error) for error in refused])
    if not keys:
        message = f"no workload can be installed here: {'; '.join(omitted)}"
        raise LlmbError(message, hint=hint, code="no-workloads")
    steps = (*steps, programs_step(site.install, tuple(keys)))
    return Intent(answers=answers, asked=asked or answers, site=site, workloads=tuple(keys), steps=steps), omitted


def _needs(plugins: Plugins, workload: spec.Workload, answers: Answers, site: Site) -> needs.Needs | None:
    """What ``workload`` needs for all GPU types of the answers; None where its plugin defines it for none."""
    others = [site_of(answers, name) for name in answers.gpu_types if name != answers.gpu_type]
    found = [own for place in (site, *others) if (own := plugins.setup(workload, place)) is not None]
    return needs.Needs(needs=tuple(dict.fromkeys(need for own in found for need in own.needs))) if found else None


def look(intent: Intent) -> Plan:
    """The plan for ``intent``, from the record and the configuration; starts and writes nothing."""
    install = intent.site.install
    found, now = record.load(install), config.read_config(install)
    todo = tuple(step for step in intent.steps if not is_finished(step, found, install))
    own = own_config(intent, intent.workloads, found)
    return Plan(
        intent=intent,
        record=found,
        todo=todo,
        done=tuple(step for step in intent.steps if step not in todo),
        config=config.plan_config(written_before(intent, found, now), now, own),
        own_config=own,
    )


def written_before(intent: Intent, found: record.InstallRecord, now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The installer's own part of the configuration ``now``: what it wrote last, or adopts."""
    if found.config or not intent.adopts:
        return found.config
    return config.adopted(now, renewed=intent.workloads)


def own_config(
    intent: Intent, workloads: tuple[str, ...], found: record.InstallRecord, without: Collection[str] = ()
) -> dict[str, object]:
    """The installer's part of cluster_config.yaml with ``workloads`` installed.

    Workloads whose plugin is missing here keep their entries, except those in ``without``.
    """
    answers, written = intent.answers, found.config.get("install", {}).get("venv_type")
    if written is not None and intent.asked.venv_type == AUTO:  # the tools on PATH today do not matter
        answers = replace(answers, venv_type=written)
    own = config.own_part(answers, intent.site, workloads, intent.steps)
    return config.with_entries(own, found.config, [key for key in unoffered(intent, found) if key not in without])


def unoffered(intent: Intent, found: record.InstallRecord) -> tuple[str, ...]:
    """The installed workloads that no plugin offers here."""
    installed = found.config.get("workloads", {}).get("installed") or ()
    return tuple(key for key in installed if key not in intent.known) if intent.known else ()


# Keys of the answers with another name in cluster_config.yaml.
_CONFIGURED: dict[str, dict[str, Any]] = {
    "node_architecture": {
        "place": "install.node_architecture",
        "hint": "install: {node_architecture: x86_64} or aarch64",
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The plugins, their workloads by key, and a note for each plugin that failed to load."""

    plugins: loaded.Plugins
    workloads: Mapping[str, spec.Workload]
    notes: Sequence[str]

    def check_settings(self, document: yamlfile.Document, answers: Answers) -> None:
        """Raise InputFaults for settings of plugins that are invalid, or of plugins that cannot be used here."""
        if answers.plugins:
            if faults := self.plugins.check_settings(document):
                raise InputFaults(faults)
            self.plugins.require_named(document, answers.plugins)


def load_offered() -> Offered:
    """Load the plugins. Raises LlmbError where none offers a workload."""
    plugins = load_plugins(builtin_plugins())
    workloads = plugins.workloads()
    if not workloads:
        raise LlmbError("no plugin offers a workload", hint="pip install llmb installs three", code="no-workloads")
    notes = [str(problem) for problem in plugins.problems]
    return Offered(plugins=plugins, workloads=workloads, notes=notes)


def intent_of(asked: Answers, offered: Offered, *, before: Mapping[str, Any] | None = None) -> tuple[Intent, list[str]]:
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
    if intent.site.runs.trains == "torch":  # its environment may lack NeMo
        smoke = ()
    return replace(intent, known=known, smoke=smoke), [*offered.notes, *found, *omitted]


def recalled(asked: Answers, before: Mapping[str, Any]) -> Answers:
    """``asked`` with GPU type, GRES and architecture as detected ``before``, where the answers omit them."""
    gpu_type, machine = before.get("gpu_type"), (before.get("install") or {}).get("node_architecture")
    if asked.gpu_type == AUTO and gpu_type in (*gpus.known_types(), *asked.gpu_types):
        asked = replace(asked, gpu_type=str(gpu_type))
    if asked.node_architecture == AUTO and machine in ARCHITECTURES:
        asked = replace(asked, node_architecture=cast(Literal["x86_64", "aarch64"], machine))
    return with_gres_of(asked, before)


def recorded_answers(install: Path, offered: Offered, settings: Sequence[str] = ()) -> Answers:
    """The answers of the latest installation, else those that its configuration implies, overridden by ``settings``.

    Raises LlmbError where they cannot be read or are incomplete, and for an invalid setting.
    """
    path = record.answers_path(install)
    if not path.is_file():
        return _from_configuration(install, offered, settings)
    try:
        document = yamlfile.load(path)
    except UsageError as error:
        raise InputFaults([replace(as_fault(error), hint=None)], hint=record.replace_hint(install)) from error
    document = with_settings(with_changed_types(document, install), settings)
    return read_answers(document, install=install, known=offered.workloads, recorded=True)


def with_changed_types(document: yamlfile.Document, install: Path) -> yamlfile.Document:
    """Recorded answers with the GPU types that a user added, changed or removed in cluster_config.yaml since then."""
    try:
        now = config.read_config(install)
    except UsageError:  # reported by whatever uses it
        return document
    if not now or not isinstance(document.data, dict):
        return document
    types = config.merged_value("gpu_types", record.load(install).config, now, document.data)
    if types == document.data.get("gpu_types"):
        return document
    rest = {key: value for key, value in document.data.items() if key != "gpu_types"}
    added = {"gpu_types": types} if types is not None else {}
    return with_layer(replace(document, data=rest), added, str(install / CONFIG_FILE))


def _from_configuration(install: Path, offered: Offered, settings: Sequence[str]) -> Answers:
    """The answers that a cluster_config.yaml written by hand, or copied, implies.

    They ask only for workloads for which something was installed; the file keeps the others. Raises InputFaults for
    what the file omits and cannot be detected.
    """
    there = record.own_config(install)
    built = {key for done in record.load(install).steps.values() for key in done.workloads}
    names = [key for key in as_keys(there.workloads.installed or (), built) if key in built]
    data = Installed(path=install, config=there).answers()
    document = replace(yamlfile.load(install / CONFIG_FILE), data={**data, "workloads": names})
    document = with_settings(document, settings)
    try:
        asked = read_answers(document, known=offered.workloads, recorded=True)
        settle(asked)
    except InputFaults as error:
        faults = [replace(fault, **_CONFIGURED.get(fault.place, {})) for fault in error.faults]
        is_of_file = any(not fault.place.startswith("--set ") for fault in faults)
        raise InputFaults(
            faults, hint=f"add the missing keys to {install / CONFIG_FILE}" if is_of_file else None
        ) from error
    return asked
