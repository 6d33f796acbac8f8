# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan: builds its steps, records each, and writes the configuration."""

import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmb.core import locks, parallel, permissions
from llmb.errors import Fault, LlmbError, as_fault, os_errors
from llmb_installer import record
from llmb_installer.answers.schema import to_yaml
from llmb_installer.execution.runner import cancel_jobs
from llmb_installer.planning import config
from llmb_installer.planning.plan import (
    InstallPlan,
    Intent,
    find_unoffered,
    find_written_part,
    make_own_part,
    plan_install,
)
from llmb_installer.step import BuildContext, Facts, InstallStep, Lines
from llmb_installer.steps.from_needs import make_runner
from llmb_installer.steps.kinds import is_there

WORKERS = 4  # steps at a time: most of them wait for a network or a disk


class StepsFailed(LlmbError):
    """The steps that failed, each with its fix (exit code 1)."""

    def __init__(self, faults: list[Fault], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint=hint, code="steps-failed")
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOutcome:
    """The result of an installation: record, notes for the user, faults, and ready workloads.

    ``lacking`` are the other workloads, each with the steps that it lacks.
    """

    record: record.InstallRecord
    notes: tuple[str, ...]
    ready: tuple[str, ...]
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def require(self) -> None:
        if self.faults:
            raise StepsFailed(
                [*self.faults],
                hint="fix the cause, then run the same command again: finished steps are kept",
            )


@dataclass(slots=True)
class StepResults:
    """The results of steps by key: facts, an error, or the failed step that it needed."""

    built: dict[str, Facts] = field(default_factory=dict)
    failed: dict[str, LlmbError] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def make_context(intent: Intent, stop: threading.Event) -> BuildContext:
    """Return the context in which the steps of ``intent`` are built."""
    install = intent.site.install
    return BuildContext(
        install=install,
        environ={**os.environ, **record.mark(install)},
        home=Path.home(),
        log=install / record.FOLDER / "logs" / "check.log",
        progress=Lines(),
        runner=make_runner(intent.answers, install),
        stop=stop,
    )


def apply(intent: Intent, *, workers: int = WORKERS) -> InstallOutcome:
    """Build what is missing for ``intent``. The outcome has the steps that failed.

    The plan is made again under the lock, as another installer may have finished it meanwhile.
    Raises LockHeldError before anything is built.
    """
    install = intent.site.install
    make_folder(install)
    with locks.hold(install / record.FOLDER, record.LOCK):
        record.end_leftover_programs(install)
        record.remove_leftovers(install)
        record.save_answers(install, to_yaml(intent.asked))
        record.mark_unfinished(install, os.environ)
        plan = plan_install(intent)
        results = _build_all(plan, workers)
        outcome = _configure(plan, results)
        if not outcome.faults:
            record.remove_unwanted_parts(install)
            record.mark_finished(install, os.environ)
    return outcome


def make_folder(install: Path) -> None:
    """Make the install directory and the installer's folder in it. Raises LlmbError."""
    hint = "choose a folder that you may write: --install DIR"
    with os_errors(
        f"{install} cannot be created", hint=hint, code="not-writable", value=str(install)
    ):
        install.mkdir(parents=True, exist_ok=True)
        if not (install / record.FOLDER).exists():
            (install / record.FOLDER).mkdir()
            permissions.mode_of_install.cache_clear()  # it is an install directory from now on
            permissions.share_folder(install / record.FOLDER)


def _build_all(plan: InstallPlan, workers: int) -> StepResults:
    """Build the missing steps, and record each as soon as it is finished."""
    from llmb_installer.applying.display import Display  # rich is imported only when it is used

    stop = threading.Event()
    context = make_context(plan.intent, stop)
    install_record = plan.record

    def note(step: InstallStep, facts: Facts) -> None:
        nonlocal install_record
        users = _users(step, install_record, plan.intent)
        install_record = install_record.finished(
            step.key, record.FinishedStep(digest=step.digest, facts=facts, workloads=users)
        )
        record.save(plan.install, install_record)

    with Display(stop) as display:

        def work(step: InstallStep) -> Facts:
            with display.step(step) as progress:
                name = re.sub(r"[^\w.@+-]+", "-", step.key)
                log = context.log.with_name(f"{name}.log")
                return step.build(replace(context, log=log, progress=progress))

        def say_stopping() -> None:
            names = ", ".join(display.running) or "no step"
            display.say(
                f"Stopping {names}; this takes a few seconds. Press Ctrl-C again to end at once."
            )

        finished_keys = [step.key for step in plan.done]
        try:
            return run_steps(
                plan.todo,
                finished_keys,
                work,
                note,
                workers=workers,
                stop=stop,
                on_stop=say_stopping,
            )
        except KeyboardInterrupt:
            # the second Ctrl-C: the threads of these steps end with this process
            if display.running:
                record.end_leftover_programs(plan.install)
                cancel_jobs()
            raise


def _configure(plan: InstallPlan, results: StepResults) -> InstallOutcome:
    """Write and record the configuration of the workloads whose steps are finished."""
    intent, install_record = plan.intent, record.load(plan.install)
    missing = [
        step
        for step in intent.steps
        if (finished := install_record.steps.get(step.key)) is None
        or not is_there(step.key, finished, plan.install)
    ]
    lacking = {
        key: tuple(step.key for step in missing if key in step.workloads)
        for key in intent.workloads
        if any(key in step.workloads for step in missing)
    }
    ready = tuple(key for key in intent.workloads if key not in lacking)
    vanished = [
        step.key for step in missing if step.key not in {**results.failed, **results.skipped}
    ]
    faults = (
        *(as_fault(error, key) for key, error in sorted(results.failed.items())),
        *(
            Fault(place=key, message="was finished, and is missing now", code="step-vanished")
            for key in vanished
        ),
    )
    if not ready:
        return InstallOutcome(
            record=install_record, notes=(), ready=(), lacking=lacking, faults=faults
        )
    own_part = make_own_part(intent, ready, install_record)
    current = config.read_config(plan.install)
    change = config.plan_config(
        find_written_part(intent, install_record, current), current, own_part
    )
    backup = config.write_config(plan.install, change) if change.changed else None
    users = {step.key: _users(step, install_record, intent) for step in intent.steps}
    steps = {
        key: replace(finished, workloads=users.get(key, finished.workloads))
        for key, finished in install_record.steps.items()
    }
    now = replace(install_record, config=own_part, steps=steps)
    if now != install_record:
        record.save(plan.install, now)
    notes = [f"{key}: {facts['note']}" for key, facts in results.built.items() if "note" in facts]
    notes += [*change.kept, *([backup] if backup else [])]
    return InstallOutcome(
        record=now, notes=tuple(notes), ready=ready, lacking=lacking, faults=faults
    )


def _users(
    step: InstallStep, install_record: record.InstallRecord, intent: Intent
) -> tuple[str, ...]:
    """Return the workloads of a step: requested ones, and recorded ones without a plugin here."""
    before = install_record.steps[step.key].workloads if step.key in install_record.steps else ()
    orphans = find_unoffered(intent, install_record)
    return (*step.workloads, *(key for key in before if key in orphans))


def run_steps(
    steps: Sequence[InstallStep],
    finished_keys: Collection[str],
    work: Callable[[InstallStep], Facts],
    on_built: Callable[[InstallStep, Facts], None],
    *,
    workers: int,
    stop: threading.Event,
    on_stop: Callable[[], None] = lambda: None,
) -> StepResults:
    """Call ``work`` for each step in a thread, and ``on_built`` here.

    Steps with keys in ``finished_keys`` are finished already. The first Ctrl-C calls ``on_stop``,
    sets ``stop``, and raises KeyboardInterrupt when all running steps have ended. A second one
    raises it at once. An exception other than LlmbError sets ``stop`` and is raised likewise.
    """
    results = StepResults()

    def attempt(step: InstallStep) -> tuple[InstallStep, Facts | LlmbError]:
        try:
            return step, work(step)
        except LlmbError as error:
            return step, error
        except BaseException:
            stop.set()
            raise

    def settle(attempt_result: tuple[InstallStep, Facts | LlmbError]) -> bool:
        step, facts = attempt_result
        try:
            if isinstance(facts, LlmbError):
                raise facts
            on_built(step, facts)
            results.built[step.key] = facts
        except LlmbError as error:  # also where it cannot be recorded, on a full disk
            results.failed[step.key] = error
        return True

    def interrupt() -> None:
        on_stop()
        stop.set()

    with parallel.held_interrupts(interrupt) as interrupted:
        parallel.run_bounded(
            _ready(steps, finished_keys, results),
            attempt,
            settle,
            workers=workers,
            stop=stop.is_set,
        )
        if interrupted():
            raise KeyboardInterrupt
    return results


def _ready(
    steps: Sequence[InstallStep], finished_keys: Collection[str], results: StepResults
) -> Iterator[InstallStep | None]:
    """Yield each step when the steps it needs are finished, and None while all must wait."""
    waiting, started = list(steps), list[InstallStep]()
    while waiting:
        while skipped := _skippable(waiting, results):
            waiting.remove(skipped)
        finished = {*finished_keys, *results.built}
        pending = {step.key for step in (*waiting, *started)} - finished
        ready = next((step for step in waiting if pending.isdisjoint(step.after)), None)
        if ready is not None:
            waiting.remove(ready)
            started.append(ready)
            yield ready
        elif waiting and all(
            step.key in results.built or step.key in results.failed for step in started
        ):
            # two workloads may need shared steps in opposite orders
            names = ", ".join(step.key for step in waiting)
            error = LlmbError(
                f"{names} wait for each other", hint="install their workloads into separate folders"
            )
            results.failed.update({step.key: error for step in waiting})
            return
        elif waiting:
            yield None


def _skippable(waiting: Sequence[InstallStep], results: StepResults) -> InstallStep | None:
    """A step that needs one that failed, noted as skipped, if there is one."""
    for step in waiting:
        for key in step.after:
            if key in results.failed or key in results.skipped:
                results.skipped[step.key] = results.skipped.get(key, key)
                return step
    return None
