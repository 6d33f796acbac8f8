# SPDX-License-Identifier: Apache-2.0
"""What this release asks for otherwise than an earlier one did, step by step, and what nobody asks for any more."""

import re
from collections.abc import Iterable

from llmb.config import CONFIG_FILE
from llmb.errors import Fault
from llmb_installer.images.image_step import ImageStep
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent, own_config, strangers
from llmb_installer.record.record import InstallRecord, StepRecord
from llmb_installer.steps import Step, VenvStep
from llmb_installer.steps.programs import ProgramsStep

_SHOWN = 3  # packages that a sentence names


def outdated(intent: Intent, found: InstallRecord) -> list[Fault]:
    """A fault for each step that has to be carried out again, or in the place of another, to be as asked for now.

    Its place is the step's key. Steps that were never finished at all are not among them.
    """
    faults = []
    for step in intent.steps:
        done = found.steps.get(step.key)
        told = _replaces(step, intent, found) if done is None else _differs(step, done)
        faults += [Fault(place=step.key, message=told)] if told is not None else []
    return faults


def outdated_config(intent: Intent, found: InstallRecord) -> list[Fault]:
    """Whether the configuration leads to what was made before. Raises LlmbError where it cannot be read."""
    written = found.config.get("workloads", {}).get("installed", [])
    own = own_config(intent, tuple(key for key in intent.workloads if key in written), found)
    now = config.read_config(intent.site.install)
    if not now or not found.config or not config.plan_config(found.config, now, own).changed:
        return []
    return [Fault(place="config", message=f"{CONFIG_FILE} does not say all that is asked for now")]


def unused(intent: Intent, found: InstallRecord) -> tuple[str, ...]:
    """The keys of finished steps that the answers ask for no more; programs stay, runs may still need them."""
    wanted, gone = {step.key for step in intent.steps}, {*strangers(intent, found)}
    return tuple(
        key
        for key, done in found.steps.items()
        if key not in wanted and not gone & {*done.workloads} and not key.startswith(f"{ProgramsStep.kind} ")
    )


def _replaces(step: Step, intent: Intent, found: InstallRecord) -> str | None:
    """The image that a new one takes the place of, for a workload that both are for."""
    if not isinstance(step, ImageStep):
        return None
    users = {*step.workloads}
    old = [key for key in unused(intent, found) if _kind(key) == step.kind and users & {*found.steps[key].workloads}]
    return f"it takes the place of {' and '.join(key.partition(' ')[2] for key in old)}" if old else None


def _differs(step: Step, done: StepRecord) -> str | None:
    if done.digest == step.digest:
        return None
    if isinstance(step, ProgramsStep) and done.facts.get("digest") != step.content:
        return "they are those of another release of llmb"
    if isinstance(step, VenvStep) and (other := _other_versions(step, done)):
        more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
        return f"it is not what is asked for now: {', '.join(other[:_SHOWN])}{more}"
    return "it was made for other requirements or answers than are asked for now"


def _other_versions(step: VenvStep, done: StepRecord) -> list[str]:
    """What is installed beside what is pinned now: ``torch 2.7.0 is to be 2.8.0``."""
    there = {_plain(name): version for name, version in done.facts.get("packages", {}).items()}
    return [*_said(step.need.requirements, there)]


def _said(requirements: Iterable[str], there: dict[str, str]) -> Iterable[str]:
    for line in requirements:
        pinned = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;,]+)", line)
        if pinned is None:
            continue
        has = there.get(_plain(pinned[1]))
        if has is None:
            yield f"{pinned[1]} {pinned[2]} is missing"
        elif has.partition("+")[0] != pinned[2].partition("+")[0]:  # a build: 2.8.0+cpu
            yield f"{pinned[1]} {has} is to be {pinned[2]}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _kind(key: str) -> str:
    return key.partition(" ")[0]
