# SPDX-License-Identifier: Apache-2.0
"""Submits runs, each exactly once: the holder of a run's lock submits it, and the record says whether it was.

Removes what an interrupted submission leaves: directories without a recorded run, half-written files.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from llmb.clusters.base import HINT_ELSEWHERE, Cluster, UnclearError, elsewhere, identity_of
from llmb.config import ClusterConfig
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.job import Job
from llmb.runs.launch import Launch
from llmb.runs.state import FAILED, REFUSED, REFUSED_CODE, JobState
from llmb.submission.prepare import Prepared, launches_of
from llmb.system import files, locks, parallel
from llmb.system.process import ProcessId

T = TypeVar("T")
LOCK = "submission"
_YOUNG = 3600.0  # seconds in which a new directory may not have its lock yet


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """A run given to a cluster; ``error``: why it was refused, or that this is not known (UnclearError)."""

    run: record.RunRecord
    error: LlmbError | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether the record is on disk; on a full disk it cannot be written, and nothing is submitted."""
        return (self.run.directory / record.RECORD).is_file()


def submission_lock(run: record.RunRecord) -> contextlib.AbstractContextManager[None]:
    """The lock of a run; only its holder may submit the run. Raises LockHeldError or LlmbError."""
    return locks.hold(run.directory, LOCK)


def submitter_of(run: record.RunRecord) -> ProcessId | None:
    """The process that is submitting the run now; None without one."""
    return locks.holder(run.directory, LOCK)


def check_is_here(cluster: Cluster, run: record.RunRecord) -> None:
    """Raise LlmbError for a run that another cluster has, and where this one does not answer."""
    if (where := elsewhere(cluster, run)) is not None:
        raise LlmbError(f"{run.id} is elsewhere: {where}", hint=HINT_ELSEWHERE, code="run-elsewhere", value=run.id)


def start_attempt(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    """Write the record and the script of a new attempt, and submit it. The caller holds the run's lock."""
    try:
        run = replace(run, cluster=_answer(lambda: identity_of(cluster)))  # else the submission reports it
        files.make_folder(run.place)
        record.save(run)
        for folder in run.directory.parents[:2]:  # the folders that contain the run's new one
            files.sync_folder(folder)
    except LlmbError as error:
        return SubmitResult(run=run, error=error)
    except OSError as error:
        message, hint = f"cannot create {run.place}: {error.strerror}", "free space there, or fix its permissions"
        return SubmitResult(run=run, error=LlmbError(message, hint=hint, code="run-folder"))
    return submit_recorded(run, cluster)


def submit_recorded(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    """Submit a run whose record is on disk. The caller holds the run's lock.

    A run that is refused ends with that reason. Where the answer is unclear, ``reconcile`` settles it later.
    """
    try:
        files.write_text(
            run.script, cluster.render(run.launch, run.stamp), durable=False
        )  # not durable: it can be rendered again
        scheduler_id = cluster.submit(run)
    except UnclearError as error:
        found = _answer(lambda: cluster.find([run]).get(run.id))
        if found is None:
            return SubmitResult(run=run, error=error)
        scheduler_id = found
    except LlmbError as error:
        return _refused(run, error)
    return store_id(run, scheduler_id)


def store_id(run: record.RunRecord, scheduler_id: str) -> SubmitResult:
    """Write the scheduler's id into the record; where that fails, on a full disk, the run is found again later."""
    sent = run.submitted(scheduler_id)
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
    """Do ``work`` on each task, as many at a time as the cluster allows; the results, and whether Ctrl-C interrupted.

    The first refusal ends it unless ``keep_going``; so does Ctrl-C. Submissions under way are finished first. Whichever
    is finished first, the results are in the order of the tasks, as are the calls of ``on_result``. After an exception
    and a second Ctrl-C, ``on_result`` is called for what was finished early too: its runs may be submitted.
    """
    results: list[SubmitResult] = []
    early: dict[int, SubmitResult] = {}

    def done(numbered: tuple[int, SubmitResult]) -> bool:
        early.update([numbered])
        while (one := early.pop(len(results), None)) is not None:
            results.append(one)
            on_result(one)
        return numbered[1].error is None or keep_going

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
            for number in sorted(early):
                on_result(early.pop(number))
            raise
        return results, interrupted()


def _answer(ask: Callable[[], str | None]) -> str | None:
    """What a cluster answers; None where it does not."""
    try:
        return ask()
    except LlmbError:
        return None


def _refused(run: record.RunRecord, error: LlmbError) -> SubmitResult:
    reason = f"{REFUSED}{error.message}"
    end = JobState(state=FAILED, code=REFUSED_CODE, reason=reason, ended=time.time(), fix=error.hint or "")
    with contextlib.suppress(LlmbError):  # on a full disk the record stays as NOT_SUBMITTED
        store.save_state(run, end)
    return SubmitResult(run=run, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a submission: the runs submitted and those refused, in order, and the jobs not tried."""

    submitted: tuple[record.RunRecord, ...] = ()
    refused: tuple[SubmitResult, ...] = ()
    left: tuple[Job, ...] = ()
    interrupted: bool = False


def submit(
    items: Sequence[Prepared],
    cluster: Cluster,
    config: ClusterConfig,
    version: str,
    *,
    keep_going: bool = False,
    on_result: Callable[[SubmitResult], None] = lambda results: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Outcome:
    """Record and submit the jobs, started in order, as many at a time as the cluster allows.

    The record is on disk before the run is submitted, so that no running job is unknown. The first refusal ends it
    unless ``keep_going``; so does Ctrl-C; submissions under way are finished first. A job that is not tried leaves no
    files, nor does one whose record cannot be written. Raises LlmbError, with nothing submitted, for a job that no
    plugin launches.
    """
    launches = launches_of(items, config)
    remove_leftovers(
        {config.experiments(item.job.workload) / launch.name for item, launch in zip(items, launches, strict=True)}
    )
    begun: list[record.RunRecord] = []
    free: dict[str, int] = {}  # the next timestamp that may be free: repeats need not try the earlier ones

    def new() -> Iterator[record.RunRecord]:
        for item, launch in zip(items, launches, strict=True):
            begun.append(_new_run(item.job, launch, config, version, after=free.get(launch.name, 0)))
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
    return Outcome(
        submitted=tuple(one.run for one in results if one.error is None),
        refused=tuple(one for one in results if one.error is not None),
        left=tuple(item.job for item in items[len(begun) :]),
        interrupted=interrupted,
    )


def _submit_new(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    """Submit a new run, whose directory goes again where its record cannot be written."""
    try:
        with submission_lock(run):
            one = start_attempt(run, cluster)
    except LlmbError as error:  # the lock cannot be written
        one = SubmitResult(run=run, error=error)
    if one.error is not None and not one.is_recorded:
        shutil.rmtree(run.directory, ignore_errors=True)
    return one


def _new_run(job: Job, launch: Launch, config: ClusterConfig, version: str, *, after: int) -> record.RunRecord:
    """The record of a new run, whose directory was just created."""
    now = time.time()
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
    )


def remove_leftovers(experiments: Iterable[Path]) -> None:
    """Remove from these folders, one for each experiment, directories in which no run was recorded.

    A directory whose submitter is alive stays, and so does one with files that a submission does not create.
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
    if not any(directory.glob(f"{LOCK}.lock.*")) and time.time() - directory.stat().st_mtime < _YOUNG:
        return
    with contextlib.suppress(LlmbError), locks.hold(directory, LOCK):
        if all(map(_is_left_over, directory.iterdir())):
            shutil.rmtree(directory, ignore_errors=True)


def _is_left_over(path: Path) -> bool:
    if path.is_dir():
        return not any(path.iterdir())
    return path.name.startswith(f"{LOCK}.lock.") or (path.name.startswith(".") and path.name.endswith(".part"))
