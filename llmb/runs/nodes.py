# SPDX-License-Identifier: Apache-2.0
"""The nodes that a run had, as its scheduler names them: from its last state, else from what its script wrote."""

import contextlib
from pathlib import Path

from llmb.config.own_types import own_types
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState
from llmb.text.node_lists import expand

SCHEDULER_ID = "scheduler_id"  # the file that a script writes into the run's folder as its first act


def nodes_of(run: RunRecord, state: JobState | None = None) -> tuple[str, ...]:
    """The nodes of the run's current attempt; empty where it had none yet, or nothing names them.

    Of a cluster type with one machine it is the host.
    """
    if state is not None and state.nodes:
        return tuple(expand(state.nodes))
    kind = own_types().get(run.cluster_type)
    if kind is not None and kind.traits_of(None).one_machine:
        return (run.submitter.host,) if state is not None and state.started is not None else ()
    written = written_nodes(run.place / SCHEDULER_ID)
    return tuple(expand(written.get("nodes") or written.get("host", "")))


def written_nodes(path: Path) -> dict[str, str]:
    """What the file of a script's first act says: ``nodes``, as Slurm lists them, and ``host``, where it started."""
    return {name: value for name, value in written_words(path).items() if name in ("nodes", "host")}


def written_words(path: Path) -> dict[str, str]:
    """Everything that the file of a script's first act says, by its first word: also ``cluster``, as Slurm calls it."""
    with contextlib.suppress(OSError):
        words = (line.partition(" ") for line in path.read_text("utf-8", "replace").splitlines()[1:])
        return {name: value for name, _, value in words}
    return {}
