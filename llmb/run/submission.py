# SPDX-License-Identifier: Apache-2.0
"""Submit recorded runs, each exactly once: only the holder of a run's lock submits it, and records
that.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from llmb.contract import record
from llmb.contract.cluster import (
    HINT_ELSEWHERE,
    Cluster,
    QueueFullError,
    UnclearError,
    elsewhere,
    identity_of,
)
from llmb.contract.state import FAILED, NOT_SUBMITTED, REFUSED, REFUSED_CODE, JobState
from llmb.core import files, locks, parallel
from llmb.core.process import ProcessId
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.run import store

T = TypeVar("T")
LOCK = "submission"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """A run given to a cluster."""

    run: record.RunRecord
    error: LlmbError | None = None  #: the refusal, or UnclearError if the answer is unknown

    @property
    def is_recorded(self) -> bool:
        """True if the record is on disk. A full disk prevents it, and nothing is submitted then."""
        return (self.run.directory / record.RECORD).is_file()

    @property
    def is_turned_away(self) -> bool:
        """True if the queue had no place for the run, which is submitted again later."""
        return isinstance(self.error, QueueFullError)


def submission_lock(run: record.RunRecord) -> contextlib.AbstractContextManager[None]:
    """Return the lock of a run. Only its holder may submit. Raises LockHeldError or LlmbError."""
    return locks.hold(run.directory, LOCK)


def submitter_of(run: record.RunRecord) -> ProcessId | None:
    """Return the process that is submitting the run now, or None."""
    return locks.holder(run.directory, LOCK)


def check_is_here(cluster: Cluster, run: record.RunRecord) -> None:
    """Raise LlmbError for a run that another cluster has, and if this one does not answer."""
    if (other_cluster := elsewhere(cluster, run)) is not None:
        raise LlmbError(
            f"{run.id} is elsewhere: {other_cluster}",
            hint=HINT_ELSEWHERE,
            code="run-elsewhere",
            value=run.id,
        )


def start_attempt(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    """Write the record and script of a new attempt, and submit it, holding the run's lock."""
    try:
        # The record names its cluster, so that no other one is taken for it. A cluster that does
        # not answer now refuses the submission too, which then reports it.
        run = replace(run, cluster=_answer(lambda: identity_of(cluster)))
        files.make_folder(run.place)
        # The record is on disk before the submission: a run that the cluster has is never unknown.
        record.save(run)
        _sync_folders_above(run)
    except LlmbError as error:
        return SubmitResult(run=run, error=error)
    except OSError as error:
        message, hint = (
            f"cannot create {run.place}: {error.strerror}",
            "free space there, or fix its permissions",
        )
        return SubmitResult(run=run, error=LlmbError(message, hint=hint, code="run-folder"))
    return submit_recorded(run, cluster)


_synced: set[Path] = set()  # folders of experiments whose own names survive a crash


def _sync_folders_above(run: record.RunRecord) -> None:
    """Make the names of the run's folder and of its experiment's survive a crash.

    That of the experiment does so after the first of its runs.
    """
    experiment = run.directory.parent
    files.sync_folder(experiment)
    if experiment not in _synced:
        files.sync_folder(experiment.parent)
        _synced.add(experiment)


def submit_recorded(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    """Submit a run whose record is on disk. The caller holds the run's lock.

    A run that is refused ends with that reason. If the answer is unclear, ``reconcile`` finds out
    later.
    """
    store.forget_full_queue(run)
    try:
        files.write_text(
            run.script, cluster.render(run.launch, run.stamp), durable=False
        )  # not durable: it can be rendered again
        scheduler_id = cluster.submit(run)
    except UnclearError as error:
        # The answer was lost, the submission may have succeeded: only the cluster knows.
        known_id = _answer(lambda: cluster.find([run]).get(run.id))
        if known_id is None:
            if isinstance(error, QueueFullError):
                _note_full_queue(run, error)
            return SubmitResult(run=run, error=error)
        scheduler_id = known_id
    except LlmbError as error:
        return _refused(run, error)
    return store_id(run, scheduler_id)


def store_id(run: record.RunRecord, scheduler_id: str) -> SubmitResult:
    """Write the scheduler's id into the record. On a full disk, the run is found again later."""
    sent = run.submitted(scheduler_id)
    # Without this write nothing is lost: the run is found by its id in the job's name.
    with contextlib.suppress(LlmbError):
        record.save_scheduler_id(sent)
    return SubmitResult(run=sent)


def submit_each(
    tasks: Iterator[T],
    work: Callable[[T], SubmitResult],
    cluster: Cluster,
    *,
    keep_going: bool,
    on_result: Callable[[SubmitResult], None],
    on_interrupt: Callable[[], None],
) -> tuple[list[SubmitResult], bool]:
    """Do ``work`` on each task, as many at a time as the cluster allows.

    Returns the results, and True if Ctrl-C interrupted. The first refusal ends it unless
    ``keep_going``. A full queue and Ctrl-C end it too. Submissions under way are finished first.
    Results and calls of ``on_result`` are in the order of the tasks. After an exception and a
    second Ctrl-C, ``on_result`` is called for what was finished early too: its runs may be
    submitted.
    """
    results: list[SubmitResult] = []
    early: dict[int, SubmitResult] = {}

    def done(numbered: tuple[int, SubmitResult]) -> bool:
        early.update([numbered])
        while (result := early.pop(len(results), None)) is not None:
            results.append(result)
            on_result(result)
        error = numbered[1].error
        return error is None or (keep_going and not isinstance(error, QueueFullError))

    with parallel.held_interrupts(on_interrupt) as interrupted:
        try:
            parallel.run_bounded(
                enumerate(tasks),
                lambda task: (task[0], work(task[1])),
                done,
                workers=cluster.pace.parallel,
                stop=interrupted,
            )
        except BaseException:
            # These runs may be submitted: a caller that never hears of them would leave them alone.
            for number in sorted(early):
                on_result(early.pop(number))
            raise
        return results, interrupted()


def _answer(ask: Callable[[], str | None]) -> str | None:
    """Return the answer of a cluster, or None if it gives none."""
    try:
        return ask()
    except LlmbError:
        return None


def _note_full_queue(run: record.RunRecord, error: QueueFullError) -> None:
    """Store why the run is not submitted, and what submits it, for commands that list it later."""
    command = None if run.session is None else run.session.command
    if command is None or run.attempt > 1:
        fix = "llmb-run jobs reconcile submits it"
    else:
        resume = command if "--resume" in command.split() else f"{command} --resume"
        fix = f"{resume} submits it and the rest of its session"
    limit = f" ({error.value})" if error.value else ""
    state = JobState(state=NOT_SUBMITTED, reason=f"the queue was full{limit}; {fix}")
    with contextlib.suppress(LlmbError):  # on a full disk it is taken for interrupted
        store.save_state(run, state)


def _refused(run: record.RunRecord, error: LlmbError) -> SubmitResult:
    reason = f"{REFUSED}{error.message}"
    end = JobState(
        state=FAILED, code=REFUSED_CODE, reason=reason, ended=time.time(), fix=error.hint or ""
    )
    with contextlib.suppress(LlmbError):  # on a full disk the record stays as NOT_SUBMITTED
        store.save_state(run, end)
    return SubmitResult(run=run, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Generic[T]):
    """The outcome of a submission, or of a part of it, in the order of its jobs or runs."""

    #: Of every job that was tried.
    results: tuple[SubmitResult, ...]
    #: After a refusal, a full queue or Ctrl-C.
    untried: tuple[T, ...] = ()
    interrupted: bool = False

    @property
    def submitted(self) -> tuple[record.RunRecord, ...]:
        """The runs that the cluster has."""
        return tuple(result.run for result in self.results if result.error is None)

    @property
    def refused(self) -> tuple[SubmitResult, ...]:
        """The results of the other jobs, also those of unknown outcome."""
        return tuple(result for result in self.results if result.error is not None)


def remove_parts(run: record.RunRecord) -> None:
    """Remove half-written files of a run. The caller holds the run's lock."""
    for path in (run.directory / record.RECORD, run.script):
        for part in path.parent.glob(f".{path.name}.*.part"):
            with contextlib.suppress(OSError):
                part.unlink()
