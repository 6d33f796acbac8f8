# SPDX-License-Identifier: Apache-2.0
"""The plan of an installation: steps to do, finished steps, and the change of the configuration."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, cast

from llmb.builtin.plugins import builtin_plugins
from llmb.contract import gpus, needs, spec
from llmb.contract.launch import Site
from llmb.contract.sbatch import SlurmConfig
from llmb.core import yamlfile
from llmb.core.names import as_keys
from llmb.core.values import dataclass
from llmb.errors import InputFaults, LlmbError, PreflightError, UsageError, as_fault
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.published_tables import read_published
from llmb.plugins import loaded
from llmb.plugins.loader import add_benchmarks, load_plugins
from llmb.plugins.sources import BENCHMARKS, benchmarks_in
from llmb_installer import record
from llmb_installer.answers.layers import override, override_by_settings
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import ARCHITECTURES, AUTO, Answers
from llmb_installer.cluster_types import all_plugins
from llmb_installer.detect.auto import recall_gres, resolve_auto
from llmb_installer.detect.detected import InstallDirectory
from llmb_installer.detect.site import make_site
from llmb_installer.planning import config
from llmb_installer.step import InstallStep
from llmb_installer.steps.from_needs import (
    PYXIS_HINT,
    WorkloadPlugins,
    add_workload,
    make_programs_step,
)
from llmb_installer.steps.kinds import is_finished

SMOKE = "smoke"  # the size for the first run on a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The workloads to install and the steps that they need, whatever is installed already.

    ``asked`` are the answers before detection. With ``adopts`` the installer may change what a
    configuration written by hand has about the environments of these workloads. ``known`` are the
    keys of all workloads that plugins offer here. ``smoke`` workloads have a size for the first
    run, and runs of ``judged`` ones get a verdict on the default GPU type.
    """

    answers: Answers
    asked: Answers
    site: Site
    workloads: tuple[str, ...]
    steps: tuple[InstallStep, ...]
    adopts: bool = False
    known: tuple[str, ...] = ()
    smoke: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """The remaining work for an intent, by ``record`` and the files that exist."""

    intent: Intent
    record: record.InstallRecord
    todo: tuple[InstallStep, ...]
    done: tuple[InstallStep, ...]
    config: config.ConfigChange
    own_config: dict[str, object] = field(default_factory=dict)

    @property
    def install(self) -> Path:
        return self.intent.site.install

    @property
    def progress(self) -> str:
        """``2 of 5 steps are done``."""
        return (
            f"{len(self.done)} of {len(self.done) + len(self.todo)} steps"
            f" {'is' if len(self.done) == 1 else 'are'} done"
        )

    @property
    def is_empty(self) -> bool:
        return not self.todo and not self.config.changed and self.record.config == self.own_config


def intend(
    answers: Answers, site: Site, plugins: WorkloadPlugins, *, given_answers: Answers | None = None
) -> tuple[Intent, list[str]]:
    """The intent of ``answers`` at ``site``, and a note for each workload that is skipped.

    A workload that cannot be installed there is skipped. Raises LlmbError for all such workloads
    that the answers name.
    """
    steps: tuple[InstallStep, ...] = ()
    keys, omitted, refused = [], [], list[LlmbError]()
    hint = "llmb-run plugins shows more"
    for key, workload in plugins.workloads().items():
        if answers.workloads is not None and key not in answers.workloads:
            continue
        try:
            steps = add_workload(
                steps, key, _needs(plugins, workload, answers, site), answers, site
            )
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
    steps = (*steps, make_programs_step(site.install, tuple(keys)))
    return (
        Intent(
            answers=answers,
            asked=given_answers or answers,
            site=site,
            workloads=tuple(keys),
            steps=steps,
        ),
        omitted,
    )


def _needs(
    plugins: WorkloadPlugins, workload: spec.Workload, answers: Answers, site: Site
) -> needs.Needs | None:
    """Return the needs of ``workload`` for all GPU types of the answers. None without any setup."""
    other_sites = [
        make_site(answers, name) for name in answers.gpu_types if name != answers.gpu_type
    ]
    found_needs = [
        site_needs
        for place in (site, *other_sites)
        if (site_needs := plugins.setup(workload, place)) is not None
    ]
    return (
        needs.Needs(
            needs=tuple(
                dict.fromkeys(need for site_needs in found_needs for need in site_needs.needs)
            )
        )
        if found_needs
        else None
    )


def plan_install(intent: Intent) -> InstallPlan:
    """The plan for ``intent``, from the record and the configuration. Starts and writes nothing."""
    install = intent.site.install
    install_record, now = record.load(install), config.read_config(install)
    todo = tuple(step for step in intent.steps if not is_finished(step, install_record, install))
    own_part = make_own_part(intent, intent.workloads, install_record)
    return InstallPlan(
        intent=intent,
        record=install_record,
        todo=todo,
        done=tuple(step for step in intent.steps if step not in todo),
        config=config.plan_config(find_written_part(intent, install_record, now), now, own_part),
        own_config=own_part,
    )


def find_written_part(
    intent: Intent, install_record: record.InstallRecord, now: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The installer's own part of the configuration ``now``: what it wrote last, or adopts."""
    if install_record.config or not intent.adopts:
        return install_record.config
    return config.adopt(now, renewed=intent.workloads)


def make_own_part(
    intent: Intent,
    workloads: tuple[str, ...],
    install_record: record.InstallRecord,
    without: Collection[str] = (),
) -> dict[str, object]:
    """Return the installer's part of cluster_config.yaml with ``workloads`` installed.

    Workloads whose plugin is missing here keep their entries, except the workloads ``without``.
    """
    answers, written = intent.answers, install_record.config.get("install", {}).get("venv_type")
    # the tools on PATH today do not matter
    if written is not None and intent.asked.venv_type == AUTO:
        answers = replace(answers, venv_type=written)
    own_part = config.compose_own_part(answers, intent.site, workloads, intent.steps)
    return config.add_entries(
        own_part,
        install_record.config,
        [key for key in find_unoffered(intent, install_record) if key not in without],
    )


def find_unoffered(intent: Intent, install_record: record.InstallRecord) -> tuple[str, ...]:
    """The installed workloads that no plugin offers here."""
    installed = install_record.config.get("workloads", {}).get("installed") or ()
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
        """Raise InputFaults for invalid settings of plugins, or of plugins missing here."""
        if answers.plugins:
            if faults := self.plugins.check_settings(document):
                raise InputFaults(faults)
            self.plugins.require_named(document, answers.plugins)


def load_offered(install: Path | None = None) -> Offered:
    """Load the plugins, and the benchmarks of ``install``. Raises LlmbError without a workload."""
    plugins = all_plugins()
    if install is not None and benchmarks_in(install / BENCHMARKS):
        plugins = load_plugins(builtin_plugins())  # others must not get these benchmarks
        add_benchmarks(plugins, install)
    workloads = plugins.workloads()
    if not workloads:
        raise LlmbError(
            "no plugin offers a workload",
            hint="pip install llmb installs three",
            code="no-workloads",
        )
    notes = [str(problem) for problem in plugins.problems]
    return Offered(plugins=plugins, workloads=workloads, notes=notes)


def resolve_intent(
    given_answers: Answers, offered: Offered, *, before: Mapping[str, Any] | None = None
) -> tuple[Intent, list[str]]:
    """The intent of the answers here, and notes for the user. Raises LlmbError.

    What the configuration ``before``, which the installer wrote last, contains is not detected
    again, so that an installation can be changed while its cluster does not answer.
    """
    answers, notes = resolve_auto(recall_detected(given_answers, before or {}))
    workloads = tuple(offered.workloads)
    # all were removed, or their plugins
    if given_answers.workloads is not None and not {*given_answers.workloads} & {*workloads}:
        site = make_site(answers, answers.gpu_type)
        intent, omitted = (
            Intent(answers=answers, asked=given_answers, site=site, workloads=(), steps=()),
            list[str](),
        )
    else:
        intent, omitted = intend(
            answers,
            make_site(answers, answers.gpu_type),
            offered.plugins,
            given_answers=given_answers,
        )
    orphans = [key for key in given_answers.workloads or () if key not in workloads]
    omitted += [f"{key}: no plugin offers it here; its installation is kept" for key in orphans]
    smoke = tuple(
        key for key in intent.workloads if SMOKE in offered.workloads[key].on(intent.site.gpu_type)
    )
    if intent.site.runs.trains == "torch":  # its environment may lack NeMo
        smoke = ()
    judged = tuple(
        key for key in intent.workloads if _is_judged(offered.workloads[key], intent.site.gpu_type)
    )
    intent = replace(intent, known=workloads, smoke=smoke, judged=judged)
    return intent, [*offered.notes, *notes, *omitted]


def _is_judged(workload: spec.Workload, gpu_type: str) -> bool:
    """Return True if runs on ``gpu_type`` have a figure to reach, or limits of their own."""
    if any(metric.has_limits for metric in workload.metrics):
        return True
    with suppress(LlmbError):  # a faulty file is reported where its figures are used
        return any(figure.gpu_type == gpu_type for figure in read_published(workload))
    return False


def recall_detected(answers: Answers, before: Mapping[str, Any]) -> Answers:
    """``answers`` with GPU type, GRES and architecture as detected ``before``, where the answers
    omit them.
    """
    gpu_type, machine = (
        before.get("gpu_type"),
        (before.get("install") or {}).get("node_architecture"),
    )
    if answers.gpu_type == AUTO and gpu_type in (*gpus.known_types(), *answers.gpu_types):
        answers = replace(answers, gpu_type=str(gpu_type))
    if answers.node_architecture == AUTO and machine in ARCHITECTURES:
        answers = replace(answers, node_architecture=cast(Literal["x86_64", "aarch64"], machine))
    return recall_gres(answers, before)


def read_recorded_answers(install: Path, offered: Offered, settings: Sequence[str] = ()) -> Answers:
    """Return the latest answers, or what the configuration implies, overridden by ``settings``.

    Raises LlmbError for unreadable or incomplete answers, and for an invalid setting.
    """
    path = record.answers_path(install)
    if not path.is_file():
        return _from_configuration(install, offered, settings)
    try:
        document = yamlfile.load(path)
    except UsageError as error:
        raise InputFaults(
            [replace(as_fault(error), hint=None)], hint=record.replace_hint(install)
        ) from error
    document = override_by_settings(apply_changed_types(document, install), settings)
    return read_answers(document, install=install, workloads=offered.workloads, recorded=True)


def apply_changed_types(document: yamlfile.Document, install: Path) -> yamlfile.Document:
    """Apply the user's changes of GPU types in cluster_config.yaml to recorded answers."""
    try:
        now = config.read_config(install)
    except UsageError:  # reported by whatever uses it
        return document
    if not now or not isinstance(document.data, dict):
        return document
    types = config.merge_value("gpu_types", record.load(install).config, now, document.data)
    if types == document.data.get("gpu_types"):
        return document
    remaining = {key: value for key, value in document.data.items() if key != "gpu_types"}
    added = {"gpu_types": types} if types is not None else {}
    return override(replace(document, data=remaining), added, str(install / CONFIG_FILE))


def _from_configuration(install: Path, offered: Offered, settings: Sequence[str]) -> Answers:
    """The answers that a cluster_config.yaml written by hand, or copied, implies.

    They ask only for workloads for which something was installed. The file keeps the others. Raises
    InputFaults for what the file omits and cannot be detected.
    """
    written = record.read_own_config(install)
    built = {key for finished in record.load(install).steps.values() for key in finished.workloads}
    names = [key for key in as_keys(written.workloads.installed or (), built) if key in built]
    data = InstallDirectory(path=install, config=written).answers()
    document = replace(yamlfile.load(install / CONFIG_FILE), data={**data, "workloads": names})
    document = override_by_settings(document, settings)
    try:
        answers = read_answers(document, workloads=offered.workloads, recorded=True)
        resolve_auto(answers)
    except InputFaults as error:
        faults = [replace(fault, **_CONFIGURED.get(fault.place, {})) for fault in error.faults]
        is_of_file = any(not fault.place.startswith("--set ") for fault in faults)
        raise InputFaults(
            faults, hint=f"add the missing keys to {install / CONFIG_FILE}" if is_of_file else None
        ) from error
    return answers
