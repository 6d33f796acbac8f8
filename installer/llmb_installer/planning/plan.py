# SPDX-License-Identifier: Apache-2.0
"""The plan of an installation: steps to do, finished steps, and the change of the configuration."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError, PreflightError, as_fault
from llmb.runs.launch import Site
from llmb.workload.needs import Needs
from llmb.workload.spec import Workload
from llmb_installer import record
from llmb_installer.answers import AUTO, Answers
from llmb_installer.detect.site import site_of
from llmb_installer.planning import config
from llmb_installer.planning.config import ConfigChange
from llmb_installer.record import InstallRecord
from llmb_installer.steps import Step, is_finished
from llmb_installer.steps.make import Plugins, add_workload, programs_step

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
    record: InstallRecord
    todo: tuple[Step, ...]
    done: tuple[Step, ...]
    config: ConfigChange
    own_config: dict[str, object] = field(default_factory=dict)

    @property
    def install(self) -> Path:
        """The install directory, absolute."""
        return self.intent.site.install

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to do."""
        return not self.todo and not self.config.changed and self.record.config == self.own_config


def intend(answers: Answers, site: Site, plugins: Plugins, *, asked: Answers | None = None) -> tuple[Intent, list[str]]:
    """The intent of ``answers`` at ``site``, and a note for each workload that is skipped.

    A workload that cannot be installed there is skipped. Raises LlmbError for all such workloads that the answers name.
    """
    steps: tuple[Step, ...] = ()
    keys, omitted, refused = [], [], list[LlmbError]()
    for key, workload in plugins.workloads().items():
        if answers.workloads is not None and key not in answers.workloads:
            continue
        try:
            steps = add_workload(steps, key, _needs(plugins, workload, answers, site), answers, site)
        except LlmbError as error:
            refused += [error] if answers.workloads is not None else []
            omitted.append(f"{key} is skipped: {error.message}")
            continue
        keys.append(key)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise PreflightError([as_fault(error) for error in refused])
    if not keys:
        message = f"no workload can be installed here: {'; '.join(omitted)}"
        raise LlmbError(message, hint="llmb-run plugins shows more", code="no-workloads")
    steps = (*steps, programs_step(site.install, tuple(keys)))
    return Intent(answers=answers, asked=asked or answers, site=site, workloads=tuple(keys), steps=steps), omitted


def _needs(plugins: Plugins, workload: Workload, answers: Answers, site: Site) -> Needs | None:
    """What ``workload`` needs for all GPU types of the answers; None where its plugin defines it for none."""
    others = [site_of(answers, name) for name in answers.gpu_types if name != answers.gpu_type]
    found = [own for place in (site, *others) if (own := plugins.setup(workload, place)) is not None]
    return Needs(needs=tuple(dict.fromkeys(need for own in found for need in own.needs))) if found else None


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


def written_before(intent: Intent, found: InstallRecord, now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The installer's own part of the configuration ``now``: what it wrote last, or adopts."""
    if found.config or not intent.adopts:
        return found.config
    return config.adopted(now, renewed=intent.workloads)


def own_config(
    intent: Intent, workloads: tuple[str, ...], found: InstallRecord, without: Collection[str] = ()
) -> dict[str, object]:
    """The installer's part of cluster_config.yaml with ``workloads`` installed.

    Workloads whose plugin is missing here keep their entries, except those in ``without``.
    """
    answers, written = intent.answers, found.config.get("install", {}).get("venv_type")
    if written is not None and intent.asked.venv_type == AUTO:  # the tools on PATH today do not matter
        answers = replace(answers, venv_type=written)
    own = config.own_part(answers, intent.site, workloads, intent.steps)
    return config.with_entries(own, found.config, [key for key in unoffered(intent, found) if key not in without])


def unoffered(intent: Intent, found: InstallRecord) -> tuple[str, ...]:
    """The installed workloads that no plugin offers here."""
    installed = found.config.get("workloads", {}).get("installed") or ()
    return tuple(key for key in installed if key not in intent.known) if intent.known else ()
