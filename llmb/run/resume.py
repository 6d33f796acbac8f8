# SPDX-License-Identifier: Apache-2.0
"""Which jobs of a list remain to be submitted: each run of a session is for one of them."""

from collections.abc import Hashable, Sequence

from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.core.grouping import grouped
from llmb.core.values import dataclass
from llmb.run.prepare import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The jobs to submit, and the runs of jobs that succeeded, are under way, or are unsent.

    An unsent run is recorded: a full queue turned it away, or its submission was cut off.
    """

    items: tuple[Prepared, ...]
    done: tuple[RunRecord, ...] = ()
    live: tuple[RunRecord, ...] = ()
    unsent: tuple[RunRecord, ...] = ()


def key_of(job: Job) -> Hashable:
    """Equal for two jobs of one configuration and one repeat."""
    return job.settings.key, job.repeat, job.max_steps, job.switches


def planned_key(planned: Prepared | RunRecord) -> Hashable:
    """Return a key that a planned job and its run share.

    The two sides of a pair may have the same job: they may differ in an option of sbatch.
    """
    return key_of(planned.job), planned.pair


def _key_on_nodes(planned: Prepared | RunRecord) -> Hashable:
    """Return a key that also has the nodes that were asked for, if any were."""
    options = {} if planned.launch is None else planned.launch.slurm_args
    return planned_key(planned), options.get("nodelist")


def remaining(
    items: Sequence[Prepared],
    succeeded: Sequence[RunRecord],
    live: Sequence[RunRecord],
    unsent: Sequence[RunRecord] = (),
) -> Remaining:
    """Find the jobs of ``items`` without a run. Each run is for one job of the list only.

    Of equal jobs on several lists of nodes, each gets the run on its own. A job that is now sent to
    other nodes than before has its run nevertheless.
    """
    runs = {"done": succeeded, "live": live, "unsent": unsent}
    matches_by_kind: dict[str, list[RunRecord]] = {kind: [] for kind in runs}
    jobless = [*items]
    for key in (_key_on_nodes, planned_key):
        used = {run.id for matches in matches_by_kind.values() for run in matches}
        unused = {
            kind: grouped((key(run), run) for run in members if run.id not in used)
            for kind, members in runs.items()
        }
        jobless, tried = [], jobless
        for item in tried:
            kind = next((kind for kind in unused if unused[kind].get(key(item))), None)
            if kind is None:
                jobless.append(item)
            else:
                matches_by_kind[kind].append(unused[kind][key(item)].pop(0))
    matched = {kind: tuple(matches) for kind, matches in matches_by_kind.items()}
    return Remaining(items=tuple(jobless), **matched)
