# SPDX-License-Identifier: Apache-2.0
"""Carries out steps, several at a time and each after those it needs; a failure skips only what depends on it."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from llmb.errors import LlmbError
from llmb.system.parallel import held_interrupts, run_bounded
from llmb_installer.steps import Facts, Step


@dataclass(slots=True)
class Results:
    """The outcome of each step by its key: facts, an error, or the key of the failed step that it needed."""

    built: dict[str, Facts] = field(default_factory=dict)
    failed: dict[str, LlmbError] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def carry_out(
    steps: Sequence[Step],
    done: Collection[str],
    work: Callable[[Step], Facts],
    on_built: Callable[[Step, Facts], None],
    *,
    workers: int,
    stop: threading.Event,
    on_stop: Callable[[], None] = lambda: None,
) -> Results:
    """Call ``work`` for each step in a thread, and ``on_built`` here; steps with keys in ``done`` are finished already.

    The first Ctrl-C calls ``on_stop``, sets ``stop``, and raises KeyboardInterrupt when all running steps have ended; a
    second one raises it at once. An exception other than LlmbError sets ``stop`` and is raised likewise.
    """
    results = Results()

    def attempt(step: Step) -> tuple[Step, Facts | LlmbError]:
        try:
            return step, work(step)
        except LlmbError as error:
            return step, error
        except BaseException:
            stop.set()
            raise

    def settle(outcome: tuple[Step, Facts | LlmbError]) -> bool:
        step, facts = outcome
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

    with held_interrupts(interrupt) as interrupted:
        run_bounded(_ready(steps, done, results), attempt, settle, workers=workers, stop=stop.is_set)
        if interrupted():
            raise KeyboardInterrupt
    return results


def _ready(steps: Sequence[Step], done: Collection[str], results: Results) -> Iterator[Step | None]:
    """Each step when those it needs are finished; None while all remaining steps need one that is running."""
    waiting, started = list(steps), list[Step]()
    while waiting:
        while skipped := _skippable(waiting, results):
            waiting.remove(skipped)
        finished = {*done, *results.built}
        pending = {step.key for step in (*waiting, *started)} - finished
        ready = next((step for step in waiting if pending.isdisjoint(step.after)), None)
        if ready is not None:
            waiting.remove(ready)
            started.append(ready)
            yield ready
        elif waiting and all(step.key in results.built or step.key in results.failed for step in started):
            names = ", ".join(step.key for step in waiting)  # two workloads may need shared steps in opposite orders
            error = LlmbError(f"{names} wait for each other", hint="install their workloads into separate folders")
            results.failed.update({step.key: error for step in waiting})
            return
        elif waiting:
            yield None


def _skippable(waiting: Sequence[Step], results: Results) -> Step | None:
    """A step that needs one that failed, noted as skipped, if there is one."""
    for step in waiting:
        for key in step.after:
            if key in results.failed or key in results.skipped:
                results.skipped[step.key] = results.skipped.get(key, key)
                return step
    return None
