# SPDX-License-Identifier: Apache-2.0
"""Submit runs, each exactly once: only the holder of a run's lock submits it, and records that.

Removes what an interrupted submission leaves: directories without a recorded run, half-written
files.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from llmb.contract.launch import Launch
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import FAILED, REFUSED, REFUSED_CODE, JobState
from llmb.core import files, locks, parallel
from llmb.core.process import ProcessId
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.prepare import Prepared, launches_of

T = TypeVar("T")
LOCK = "submission"
_YOUNG = 3600.0  # seconds: a younger directory may not have its lock yet


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
    try:
        files.write_text(
            run.script, cluster.render(run.launch, run.stamp), durable=False
        )  # not durable: it can be rendered again
        scheduler_id = cluster.submit(run)
    except UnclearError as error:
        # The answer was lost, the submission may have succeeded: only the cluster knows.
        known_id = _answer(lambda: cluster.find([run]).get(run.id))
        if known_id is None:
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


def submit(
    items: Sequence[Prepared],
    cluster: Cluster,
    config: ClusterConfig,
    version: str,
    *,
    session: record.Session | None = None,
    keep_going: bool = False,
    on_result: Callable[[SubmitResult], None] = lambda results: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Sent[Prepared]:
    """Record and submit the jobs of ``session``, started in order.

    As many are submitted at a time as the cluster allows.

    The record is on disk before the run is submitted, so that no running job is unknown. The first
    refusal ends it unless ``keep_going``. A full queue and Ctrl-C end it too. Submissions under way
    are finished first. A job that is not tried leaves no files, nor does one whose record cannot be
    written. Raises LlmbError, with nothing submitted, for a job that no plugin launches.
    """
    launches = launches_of(items, config)
    remove_leftovers(
        {
            config.experiments(item.job.workload) / launch.name
            for item, launch in zip(items, launches, strict=True)
        }
    )
    begun: list[record.RunRecord] = []
    # the next timestamp that may be free: repeats need not try the earlier ones
    free: dict[str, int] = {}

    def new() -> Iterator[record.RunRecord]:
        for item, launch in zip(items, launches, strict=True):
            begun.append(
                replace(
                    _new_run(item, launch, config, version, after=free.get(launch.name, 0)),
                    session=session,
                )
            )
            free[launch.name] = int(begun[-1].stamp.timestamp) + 1
            yield begun[-1]

    results, interrupted = submit_each(
        new(),
        lambda run: _submit_new(run, cluster),
        cluster,
        keep_going=keep_going,
        on_result=on_result,
        on_interrupt=on_interrupt,
    )
    return Sent(
        results=tuple(results),
        untried=tuple(items[len(begun) :]),
        interrupted=interrupted,
    )


def _submit_new(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    """Submit a new run, and remove its directory again if its record cannot be written."""
    try:
        # From its first file on, the run is locked: no other command takes it for abandoned.
        with locks.hold(run.directory, LOCK, is_new=True):
            result = start_attempt(run, cluster)
    except LlmbError as error:  # the lock cannot be written
        result = SubmitResult(run=run, error=error)
    if result.error is not None and not result.is_recorded:
        shutil.rmtree(run.directory, ignore_errors=True)
    return result


def _new_run(
    item: Prepared, launch: Launch, config: ClusterConfig, version: str, *, after: int
) -> record.RunRecord:
    """Return the record of a new run, whose directory was just created."""
    now, job = time.time(), item.job
    stamp = store.new_directory(config.experiments(job.workload), launch.name, max(int(now), after))
    return record.RunRecord(
        id=stamp.id,
        created=now,
        llmb_version=version,
        cluster_type=config.cluster_type,
        directory=stamp.path,
        job=job,
        launch=launch,
        script_name=f"launch_{launch.name}",
        submitter=ProcessId.current(),
        software=item.software,
        pair=item.pair,
    )


def remove_leftovers(experiments: Iterable[Path]) -> None:
    """Remove directories without a recorded run from these folders, one for each experiment.

    A directory whose submitter is alive stays, and so does one with files that a submission does
    not create.
    """
    for folder in experiments:
        with contextlib.suppress(OSError, LlmbError):
            for directory in folder.iterdir():
                if directory.is_dir() and not (directory / record.RECORD).exists():
                    _remove(directory)


def remove_parts(run: record.RunRecord) -> None:
    """Remove half-written files of a run. The caller holds the run's lock."""
    for path in (run.directory / record.RECORD, run.script):
        for part in path.parent.glob(f".{path.name}.*.part"):
            with contextlib.suppress(OSError):
                part.unlink()


def _remove(directory: Path) -> None:
    if (
        not any(directory.glob(f"{LOCK}.lock.*"))
        and time.time() - directory.stat().st_mtime < _YOUNG
    ):
        return
    # Holding the lock proves that no submitter is at work here.
    with contextlib.suppress(LlmbError), locks.hold(directory, LOCK):
        if all(map(_is_left_over, directory.iterdir())):
            shutil.rmtree(directory, ignore_errors=True)


def _is_left_over(path: Path) -> bool:
    if path.is_dir():
        return not any(path.iterdir())
    return path.name.startswith(f"{LOCK}.lock.") or (
        path.name.startswith(".") and path.name.endswith(".part")
    )
