# SPDX-License-Identifier: Apache-2.0
"""The checks of an install directory, read from the folders of their runs: the history of nodes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llmb_nodes import words
from llmb_nodes.program import exchange

if TYPE_CHECKING:
    from llmb import api

WORKLOAD = "node_check"
SIZES = ("check", "quick")  # of the workload that are checks
TABLE = "checks.json"  # the table of a check, staged in its run's folder
_NODE_FAILED = ("NODE_FAIL", "BOOT_FAIL")  # states of a job that a node's failure ended
_RECORD = "llmb-run.json"  # has the table
_PRINTED = f"{__name__}.printed"  # the messages of a command, in the meta data of its context


@dataclass(frozen=True, kw_only=True)
class PastCheck:
    """One check, which may have written nothing."""

    run: api.RunRecord

    @property
    def time(self) -> float:
        """The time of its submission, in seconds since the epoch."""
        return self.run.submitted_at

    @cached_property
    def nodes(self) -> Sequence[words.NodeReport]:
        """Its nodes, worst first. After its end also those that wrote nothing."""
        return read(self.run, is_complete=has_ended(self.run))


def is_check(run: api.RunRecord) -> bool:
    """Return True if a run is a check of nodes, and no diagnosis."""
    return run.job.workload == WORKLOAD and run.job.model_size in SIZES


def checks_of(runs: Iterable[api.RunRecord]) -> list[PastCheck]:
    """Return the checks among the runs, oldest first."""
    checks = [PastCheck(run=run) for run in runs if is_check(run)]
    return sorted(checks, key=lambda check: check.time)


def has_ended(run: api.RunRecord) -> bool:
    """Return True if the last poll of a run found that it has ended."""
    from llmb import api

    state = api.seen_state(run)
    return state is not None and state.is_end


def is_open(run: api.RunRecord) -> bool:
    """Return True if the last poll of a run found that its job still runs or will run."""
    from llmb import api

    state = api.seen_state(run)
    return state is not None and not state.is_over


def read(run: api.RunRecord, *, is_complete: bool) -> list[words.NodeReport]:
    """Return the nodes of one check, worst first. Empty without a file of it.

    ``is_complete``: no more files come, so a node is UNKNOWN if it or one of its ranks wrote
    nothing. What is damaged or cannot be applied is omitted, with a message.
    """
    from llmb import api

    reports, damaged = exchange.read_files(run.work)
    for path in damaged:
        say_once(f"{path} is damaged. The check {run.id} is judged without it.")
    expected = api.expand_nodes(nodes_of_job(run)) if is_complete else []
    names = {report["node"] for report in reports}
    if names and names.isdisjoint(expected):
        expected = []  # ranks in pods know other names than those of the scheduler
    if not reports and not expected:
        return []
    ranks = run.launch.ranks_per_node if is_complete else 0
    failed = failed_nodes(run, {*expected, *names}) if is_complete else {}
    return words.judge(reports, table_of(run), expected, run.id, ranks, failed)


def failed_nodes(run: api.RunRecord, nodes: Collection[str]) -> dict[str, str]:
    """Return the nodes whose failure ended a run, each with the reason that names it."""
    from llmb import api

    state = api.seen_state(run)
    if state is None or state.state not in _NODE_FAILED:
        return {}
    named = {*api.expand_nodes(state.reason.replace(":", " "))}
    return {name: state.reason for name in nodes if name in named}


def table_of(run: api.RunRecord) -> Mapping[str, Any]:
    """Return what can be judged of the table that a check was given."""
    from llmb_nodes.row_faults import usable

    text = next((file.text for file in run.launch.files if file.name == TABLE), "{}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    table, faults = usable(data)
    for fault in faults:
        # A rule of the site is in many checks.
        say_once(
            f"{fault.key or TABLE} {fault.problem}. Checks with it are judged without it.",
            f"{run.directory / _RECORD}: ",
        )
    return table


def say_once(text: str, place: str = "") -> None:
    """Print a message on standard error once in a command, after the first ``place`` with it."""
    import click

    from llmb import api

    command = click.get_current_context(silent=True)
    printed = command.meta.setdefault(_PRINTED, set()) if command is not None else set()
    if text not in printed:
        printed.add(text)
        api.say(f"{place}{text}")


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
    from llmb import api

    state = api.seen_state(run)
    return "" if state is None else state.nodes
