# SPDX-License-Identifier: Apache-2.0
"""The checks of an install directory, read from the folders of their runs: the history of nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb_nodes import words
from llmb_nodes.program import exchange

if TYPE_CHECKING:
    from llmb import api

WORKLOAD = "node_check"
SIZES = ("check", "quick")  # of the workload that are checks
TABLE = "checks.json"  # the table of a check, staged in its run's folder
_STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class PastCheck:
    """One check that has written something."""

    run: api.RunRecord

    @property
    def time(self) -> float:
        """The time of its submission, in seconds since the epoch."""
        return self.run.submitted_at

    @cached_property
    def nodes(self) -> Sequence[words.NodeReport]:
        """Its nodes, worst first."""
        return read(self.run)


def is_check(run: api.RunRecord) -> bool:
    """Return True if a run is a check of nodes, and no diagnosis."""
    return run.job.workload == WORKLOAD and run.job.model_size in SIZES


def checks_of(runs: Iterable[api.RunRecord]) -> list[PastCheck]:
    """Return the checks among the runs, oldest first."""
    checks = [PastCheck(run=run) for run in runs if is_check(run)]
    return sorted(checks, key=lambda check: check.time)


def read(run: api.RunRecord, expected: Sequence[str] = ()) -> list[words.NodeReport]:
    """Return the nodes of one check, worst first. Empty without a file of it."""
    reports = exchange.read_all(run.work)
    if not reports and not expected:
        return []
    return words.judge(reports, table_of(run), expected)


def table_of(run: api.RunRecord) -> Mapping[str, Any]:
    """Return the table that a check was given."""
    text = next((file.text for file in run.launch.files if file.name == TABLE), "{}")
    table: Mapping[str, Any] = json.loads(text)
    return {"facts": {}, "measures": {}, **table}


def latest(
    checks: Sequence[PastCheck], *, judged_only: bool = False
) -> dict[str, tuple[PastCheck, words.NodeReport]]:
    """Return the newest report of each node, and its check.

    ``judged_only``: only reports that know something of the node.
    """
    return {
        node.name: (check, node)
        for check in checks
        for node in check.nodes
        if not judged_only or node.word != words.UNKNOWN
    }


def nodes_of_job(run: api.RunRecord) -> str:
    """Return the list of nodes that the scheduler gave a run, empty if it is unknown."""
    try:
        state = json.loads(Path(run.place, _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(state.get("nodes") or "") if isinstance(state, dict) else ""
