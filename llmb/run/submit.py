# SPDX-License-Identifier: Apache-2.0
"""Record and submit the jobs of a list.

Removes what an interrupted submission leaves: directories without a recorded run, half-written
files.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from llmb.contract import record
from llmb.contract.cluster import Cluster
from llmb.contract.launch import Launch
from llmb.contract.schema import ClusterConfig
from llmb.core import locks
from llmb.core.process import ProcessId
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.prepare import Prepared, launches_of
from llmb.run.submission import LOCK, Sent, SubmitResult, start_attempt, submit_each

_YOUNG = 3600.0  # seconds: a younger directory may not have its lock yet


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
