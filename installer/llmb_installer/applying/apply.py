# SPDX-License-Identifier: Apache-2.0
"""Carries a plan out, independent steps at a time, each recorded as soon as it is whole."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmb.errors import Fault, LlmbError
from llmb.system import console, locks
from llmb_installer.answers import to_yaml
from llmb_installer.applying import schedule
from llmb_installer.applying.display import Display
from llmb_installer.applying.schedule import Results
from llmb_installer.execution.runner import Runner
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent, Plan, look, own_config, strangers, written_before
from llmb_installer.record import cleanup, record
from llmb_installer.record.record import InstallRecord, StepRecord
from llmb_installer.steps import Context, Facts, Progress, Step
from llmb_installer.steps.kinds import is_there
from llmb_installer.steps.nodes import runner_for

WORKERS = 4  # steps at a time: most of them wait for a network or a disk


class StepsFailed(LlmbError):
    """Steps that failed, each with its fix; the others were carried out (exit code 1)."""

    def __init__(self, faults: list[Fault], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint=hint)
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an installation came to: the record now, sentences that the user should read, the workloads that are ready
    and those that are not (with the steps that they lack), and what failed."""

    record: InstallRecord
    said: tuple[str, ...]
    ready: tuple[str, ...]
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def require(self) -> None:
        """Raise StepsFailed when a step did."""
        if self.faults:
            raise StepsFailed([*self.faults], hint="the same command goes on from here")


class Aloud:
    """Progress before the work has begun: what is said is a line on standard error."""

    def total(self, bytes: int) -> None:
        """Nothing."""

    def advance(self, bytes: int) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Print it."""
        console.echo(text, err=True)


def context_for(intent: Intent, stop: threading.Event) -> Context:
    """Where and how the steps of ``intent`` are carried out."""
    install = intent.site.install
    runner: Runner = runner_for(intent.answers, install)
    return Context(
        install=install,
        environ={**os.environ, **cleanup.mark(install)},
        home=Path.home(),
        log=install / record.FOLDER / "logs" / "check.log",
        progress=Aloud(),
        runner=runner,
        stop=stop,
    )


def apply(intent: Intent, *, workers: int = WORKERS) -> Outcome:
    """Do what is still to do for ``intent``; steps that fail are in the outcome. Raises LockHeldError before any.

    The plan is made again under the lock: another installer may have done all of it meanwhile.
    """
    install = intent.site.install
    make_folder(install)
    with locks.hold(install / record.FOLDER, record.LOCK):
        cleanup.end_programs(install)
        cleanup.tidy(install)
        record.save_answers(install, to_yaml(intent.asked))
        plan = look(intent)
        results = _build_all(plan, workers)
        outcome = _configure(plan, results)
        if not outcome.faults:
            cleanup.tidy_parts(install)
    return outcome


def make_folder(install: Path) -> None:
    """Have the install directory with its own folder. Raises LlmbError."""
    try:
        (install / record.FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{install} cannot be made: {error.strerror}"
        raise LlmbError(message, hint="choose a folder that you may write: --install DIR") from error


def _build_all(plan: Plan, workers: int) -> Results:
    """Build what is not there, and record each step as soon as it is."""
    stop = threading.Event()
    context = context_for(plan.intent, stop)
    found = plan.record

    def note(step: Step, facts: Facts) -> None:
        nonlocal found
        users = _users(step, found, plan.intent)
        found = found.finished(step.key, StepRecord(digest=step.digest, facts=facts, workloads=users))
        record.save(plan.install, found)

    with Display(stop) as display:

        def work(step: Step) -> Facts:
            with display.step(step) as progress:
                return step.build(_of_step(context, step, progress))

        done = [step.key for step in plan.done]
        return schedule.carry_out(
            plan.todo,
            done,
            work,
            note,
            workers=workers,
            stop=stop,
            on_stop=lambda: display.say("Stopping what is under way, which takes a few seconds ..."),
        )


def _of_step(context: Context, step: Step, progress: Progress) -> Context:
    name = re.sub(r"[^\w.@+-]+", "-", step.key)
    return replace(context, log=context.log.with_name(f"{name}.log"), progress=progress)


def _configure(plan: Plan, results: Results) -> Outcome:
    """Write the configuration for the workloads whose steps are there, and the record of it."""
    intent, found = plan.intent, record.load(plan.install)
    missing = [step for step in intent.steps if not _usable(step, found, plan.install)]
    lacking = {
        key: tuple(step.key for step in missing if key in step.workloads)
        for key in intent.workloads
        if any(key in step.workloads for step in missing)
    }
    ready = tuple(key for key in intent.workloads if key not in lacking)
    gone = [step.key for step in missing if step.key not in {**results.failed, **results.skipped}]
    faults = (
        *(Fault(place=key, message=error.message, hint=error.hint) for key, error in sorted(results.failed.items())),
        *(Fault(place=key, message="it was made, and is not there any more") for key in gone),
    )
    if not ready:
        return Outcome(record=found, said=(), ready=(), lacking=lacking, faults=faults)
    own = own_config(intent, ready, found)
    there = config.read_config(plan.install)
    change = config.plan_config(written_before(intent, found, there), there, own)
    said = config.write_config(plan.install, change) if change.changed else None
    now = replace(found, config=own, steps=_with_workloads(found, intent))
    if now != found:
        record.save(plan.install, now)
    notes = [f"{key}: {facts['note']}" for key, facts in results.built.items() if "note" in facts]
    sentences = (*notes, *change.kept, *([said] if said else []))
    return Outcome(record=now, said=sentences, ready=ready, lacking=lacking, faults=faults)


def _users(step: Step, found: InstallRecord, intent: Intent) -> tuple[str, ...]:
    """The workloads that a step is for: those that are wanted, and those of before whose plugin is not here."""
    before = found.steps[step.key].workloads if step.key in found.steps else ()
    gone = strangers(intent, found)
    return (*step.workloads, *(key for key in before if key in gone))


def _with_workloads(found: InstallRecord, intent: Intent) -> dict[str, StepRecord]:
    """The recorded steps with the workloads that they are for now."""
    now = {step.key: _users(step, found, intent) for step in intent.steps}
    return {key: replace(done, workloads=now.get(key, done.workloads)) for key, done in found.steps.items()}


def _usable(step: Step, found: InstallRecord, install: Path) -> bool:
    """Whether what it makes is there, perhaps still with the content of an earlier plan."""
    done = found.steps.get(step.key)
    return done is not None and is_there(step.key, done, install)
