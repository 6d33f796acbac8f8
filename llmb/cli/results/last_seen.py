# SPDX-License-Identifier: Apache-2.0
"""The states of runs for a command that shows them once: as the cluster says, or as they were seen last."""

from collections.abc import Sequence

from llmb.cli.context import Context, say
from llmb.runs import store
from llmb.runs.record import RunRecord
from llmb.runs.state import UNKNOWN, JobState


def states_of(context: Context, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The state of each run by its id. A cluster that does not answer is no reason to show nothing."""
    if context.cluster is None:
        return {run.id: store.seen_state(run) or JobState(state=UNKNOWN) for run in runs}
    from llmb.clusters.base import HINT_ELSEWHERE
    from llmb.submission.follow import look

    states, trouble = look(context.cluster, runs)
    if trouble is not None:
        say(f"note: states as they were seen last: {trouble.message}" + (f" ({trouble.hint})" if trouble.hint else ""))
    away = [state for state in states.values() if state.is_elsewhere]
    if away:
        count = f"{len(away)} runs are" if len(away) > 1 else "a run is"
        context.warn(f"{count} elsewhere: {away[0].detail} ({HINT_ELSEWHERE})")
    return states
