# SPDX-License-Identifier: Apache-2.0
"""`--resume`: submits the jobs of a list that have not succeeded and are not waiting or running."""

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from llmb.cli.context import Context, say
from llmb.cli.results import results_of
from llmb.cli.submit.announce import resubmit
from llmb.results.description import configuration_of
from llmb.results.result import SUCCESS, UNKNOWN
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, NOT_SUBMITTED, JobState
from llmb.submission.follow import poll
from llmb.submission.prepare import Prepared
from llmb.system import locks
from llmb.system.process import ProcessId

_WAIT = 600.0  # seconds for another --resume, which may be about to submit the same jobs


def key_of(job: Job) -> Hashable:
    """Equal for two jobs of one configuration and one repeat."""
    return configuration_of(job).key, job.repeat, job.max_steps, job.switches


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The jobs to submit, and the runs of the others: those that succeeded, and those under way."""

    items: tuple[Prepared, ...]
    done: tuple[RunRecord, ...]
    live: tuple[RunRecord, ...]


def remaining(items: Sequence[Prepared], succeeded: Sequence[RunRecord], live: Sequence[RunRecord]) -> Remaining:
    """The jobs of ``items`` without a run. A run is for one job only, where the list has the same job several times."""
    unused = {"done": _by_key(succeeded), "live": _by_key(live)}
    used: dict[str, list[RunRecord]] = {"done": [], "live": []}
    left = []
    for item in items:
        kind = next((kind for kind in unused if unused[kind].get(key_of(item.job))), None)
        if kind is None:
            left.append(item)
        else:
            used[kind].append(unused[kind][key_of(item.job)].pop(0))
    return Remaining(items=tuple(left), done=tuple(used["done"]), live=tuple(used["live"]))


def _by_key(runs: Sequence[RunRecord]) -> dict[Hashable, list[RunRecord]]:
    found: dict[Hashable, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(key_of(run.job), []).append(run)
    return found


def resume_lock(context: Context) -> AbstractContextManager[None]:
    """The lock between commands that resume; two at once would submit the same jobs, so the second waits."""

    def announce_wait(owner: ProcessId) -> None:
        say(f"waiting for process {owner.pid} on {owner.host}, which resumes a list")

    folder = store.runs_root(context.config) / ".locks"
    return locks.hold(folder, "resume", wait=_WAIT, on_wait=announce_wait)


def rest_of(context: Context, items: Sequence[Prepared], *, dry_run: bool) -> Remaining:
    """The jobs of ``items`` that remain on this install; prints how many do not.

    Unless ``dry_run``, first submits the runs of an interrupted submission.
    """
    wanted = {key_of(item.job) for item in items}
    runs = [run for run in context.runs() if run.origin is None and key_of(run.job) in wanted]
    states = poll(context.need_cluster(), runs) if runs else {}
    unsent = [run for run in runs if states[run.id].state == NOT_SUBMITTED]
    if unsent and not dry_run:
        say(f"submitting {len(unsent)} of an interrupted submission:")
        resubmit(context, unsent)
        states = poll(context.need_cluster(), runs)
    live = [run for run in runs if not states[run.id].is_end]
    found = remaining(items, _succeeded(context, runs, states), live)
    under_way = f", {len(found.live)} running or waiting" if found.live else ""
    say(f"{len(found.done)} of {len(items)} are done{under_way}")
    return found


def _succeeded(context: Context, runs: Sequence[RunRecord], states: dict[str, JobState]) -> list[RunRecord]:
    """The runs that succeeded; also those that completed and whose logs cannot be read any more."""
    ended = [run for run in runs if states[run.id].is_end]
    done = ((SUCCESS, None), (UNKNOWN, COMPLETED))
    results = zip(ended, results_of(context, ended), strict=True)
    return [run for run, one in results if (one.status, one.state if one.status == UNKNOWN else None) in done]
