# SPDX-License-Identifier: Apache-2.0
"""Carries steps out several at a time, each after those it depends on; a failure stops only what depends on it."""

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from llmb.errors import LlmbError
from llmb.system.parallel import held_interrupts
from llmb_installer.steps import Facts, Step

LISTEN = 0.2  # seconds between two looks for a Ctrl-C


@dataclass(slots=True)
class Results:
    """What became of the steps, by their keys: facts, errors, and the key of the failed step that others waited for."""

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
    """Call ``work`` for each step, ``done`` being the keys of steps that need none; ``on_built`` is called here.

    Ctrl-C calls ``on_stop``, sets ``stop``, waits for what is under way, and is raised again; so is what is not an
    LlmbError.
    """
    results, waiting = Results(), list(steps)
    going: dict[Future[Facts], Step] = {}
    raised: BaseException | None = None
    with held_interrupts(lambda: None) as came, ThreadPoolExecutor(workers) as pool:
        while waiting or going:
            try:
                while raised is None and len(going) < workers and (step := _next(waiting, going, done, results)):
                    going[pool.submit(work, step)] = step
                if not going:
                    break
                ended, _ = wait(going, LISTEN, return_when=FIRST_COMPLETED)
                for future in ended:
                    raised = _settle(going.pop(future), future, results, on_built) or raised
            except KeyboardInterrupt as error:  # the second one
                raised = error
            if raised is None and came():
                raised = KeyboardInterrupt()
            if raised is not None:
                if not stop.is_set():
                    on_stop()
                stop.set()
                waiting.clear()
    if raised is not None:
        raise raised
    return results


def _next(
    waiting: list[Step], going: dict[Future[Facts], Step], done: Collection[str], results: Results
) -> Step | None:
    """Take the first step whose turn has come."""
    while _skip_one(waiting, results):
        pass
    planned = {step.key for step in (*waiting, *going.values())}.difference(done)
    for step in waiting:
        if planned.isdisjoint(step.after):
            waiting.remove(step)
            return step
    if waiting and not going:  # what two workloads share may be ordered in two ways
        names = ", ".join(step.key for step in waiting)
        error = LlmbError(f"{names} wait for each other", hint="install their workloads into folders of their own")
        results.failed.update({step.key: error for step in waiting})
        waiting.clear()
    return None


def _skip_one(waiting: list[Step], results: Results) -> bool:
    """Skip a step that waits for one that failed, if there is one."""
    for step in waiting:
        lost = next((key for key in step.after if key in results.failed or key in results.skipped), None)
        if lost is not None:
            waiting.remove(step)
            results.skipped[step.key] = results.skipped.get(lost, lost)
            return True
    return False


def _settle(
    step: Step, future: Future[Facts], results: Results, on_built: Callable[[Step, Facts], None]
) -> BaseException | None:
    """Note what a step came to; what is no LlmbError is given back, to be raised when all is at rest."""
    error = future.exception()
    if isinstance(error, LlmbError):
        results.failed[step.key] = error
    elif error is not None:
        return error
    else:
        try:
            on_built(step, future.result())
            results.built[step.key] = future.result()
        except LlmbError as unrecorded:  # on a full disk
            results.failed[step.key] = unrecorded
    return None
