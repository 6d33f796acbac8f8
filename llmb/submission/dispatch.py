# SPDX-License-Identifier: Apache-2.0
"""Hands recorded runs to a cluster, each exactly once: whoever does it holds the run's lock, and the record tells."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from llmb.clusters.base import Cluster, UnclearError, identity_of
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.runs.state import FAILED, REFUSED, REFUSED_CODE, JobState
from llmb.system import files, locks
from llmb.system.parallel import held_interrupts, run_bounded
from llmb.system.process import ProcessId

LOCK = "submission"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A run that a cluster was asked to take; ``error`` says why it did not, or that nobody knows (UnclearError)."""

    run: RunRecord
    error: LlmbError | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether the run is on disk: on a full one its record cannot be written, and nothing was submitted."""
        return (self.run.directory / record.RECORD).is_file()


def owned(run: RunRecord) -> AbstractContextManager[None]:
    """Hold the run's lock: a record that is not submitted belongs to its holder. Raises LockHeldError or LlmbError."""
    return locks.hold(run.directory, LOCK)


def owner(run: RunRecord) -> ProcessId | None:
    """Who submits the run at this moment, None when nobody does."""
    return locks.holder(run.directory, LOCK)


def begin(run: RunRecord, cluster: Cluster) -> Handed:
    """Write the record and the script of a new attempt, and hand it over. For the holder of the run's lock alone."""
    try:
        run = replace(run, cluster=_identity(cluster))
        files.make_folder(run.place)
        record.save(run)
        for folder in run.directory.parents[:2]:  # in which the run's own was just made
            files.sync_folder(folder)
    except (OSError, LlmbError) as error:
        return Handed(run=run, error=error if isinstance(error, LlmbError) else _cannot_make(run, error))
    return hand_over(run, cluster)


def hand_over(run: RunRecord, cluster: Cluster) -> Handed:
    """Submit a run whose record is on disk. For the holder of the run's lock alone.

    A run that is refused has come to its end with that reason. One of which nobody knows is left for ``reconcile``.
    """
    try:
        files.write_text(run.script, cluster.render(run.launch, run.stamp), durable=False)  # else rendered again
        scheduler_id = cluster.submit(run)
    except UnclearError as error:
        found = _found(run, cluster)
        if found is None:
            return Handed(run=run, error=error)
        scheduler_id = found
    except LlmbError as error:
        return _refused(run, error)
    return keep_id(run, scheduler_id)


def keep_id(run: RunRecord, scheduler_id: str) -> Handed:
    """Keep the scheduler's id in the record; where that fails, on a full disk, the run is found again later."""
    sent = run.submitted(scheduler_id)
    with contextlib.suppress(LlmbError):
        record.save_scheduler_id(sent)
    return Handed(run=sent)


def hand_over_all(
    tasks: Iterator[T],
    work: Callable[[T], Handed],
    cluster: Cluster,
    *,
    keep_going: bool,
    on_handed: Callable[[Handed], None],
    on_interrupt: Callable[[], None],
) -> tuple[list[Handed], bool]:
    """Do ``work`` on each task, as many at a time as the cluster takes; what became of them, and whether Ctrl-C came.

    The first that is not taken ends it but with ``keep_going``; so does Ctrl-C. What is under way is finished first.
    """
    handed: list[Handed] = []

    def done(one: Handed) -> bool:
        handed.append(one)
        on_handed(one)
        return one.error is None or keep_going

    with held_interrupts(on_interrupt) as interrupted:
        run_bounded(tasks, work, done, workers=cluster.pace.parallel, stop=interrupted)
        return handed, interrupted()


def _identity(cluster: Cluster) -> str | None:
    try:
        return identity_of(cluster)
    except LlmbError:  # it does not answer: the submission will say so
        return None


def _found(run: RunRecord, cluster: Cluster) -> str | None:
    try:
        return cluster.find([run]).get(run.id)
    except LlmbError:  # the scheduler does not answer this either
        return None


def _cannot_make(run: RunRecord, error: OSError) -> LlmbError:
    return LlmbError(f"{run.place} cannot be made: {error.strerror}", hint="free space or permission there")


def _refused(run: RunRecord, error: LlmbError) -> Handed:
    end = JobState(
        state=FAILED,
        code=REFUSED_CODE,
        reason=f"{REFUSED}{error.message}",
        ended=time.time(),
        fix=error.hint or "",
    )
    with contextlib.suppress(LlmbError):  # on a full disk the record stays as one that nobody submits
        store.save_state(run, end)
    return Handed(run=run, error=error)
