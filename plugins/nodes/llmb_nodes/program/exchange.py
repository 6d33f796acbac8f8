# SPDX-License-Identifier: Apache-2.0
"""The files by which the ranks of a check know of each other, in the run's folder.

Each rank has one, and nothing else goes between nodes. A rank writes its file whole, under
another name first.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmb_nodes.program import peers

SCHEMA = 1
FILES = "check-*.json"
_UNSAFE = re.compile(r"[^\w.-]")
_POLL = 0.25  # seconds

#: {"node", "local_rank", "facts" (of one rank of each node), "rounds": [{MEASURE: {"value": V} or
#: {"fault": TEXT} or {"absent": TEXT}}]}
Report = dict[str, Any]


def path_of(folder: Path, node: str, local_rank: int) -> Path:
    """Return the file of a rank."""
    return folder / f"check-{_UNSAFE.sub('_', node)}-{local_rank}.json"


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the file of a rank, in place of an earlier one."""
    path = path_of(folder, report["node"], report["local_rank"])
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps({"schema": SCHEMA, **report}), encoding="utf-8")
    part.replace(path)


def read_all(folder: Path) -> list[Report]:
    """Return the reports in a folder by node and rank, without those that cannot be read."""
    return read_files(folder)[0]


def read_files(folder: Path) -> tuple[list[Report], list[Path]]:
    """Return the reports in a folder by node and rank, and the files that cannot be read."""
    reports, damaged = [], []
    for path in sorted(folder.glob(FILES)):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            report = None
        if _is_report(report):
            reports.append(report)
        else:
            damaged.append(path)
    return sorted(reports, key=lambda report: (report["node"], report["local_rank"])), damaged


def _is_report(data: Any) -> bool:
    """Return True if data of a file have the form of a Report."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return False
    rounds, facts = data.get("rounds"), data.get("facts", {})
    return (
        isinstance(data.get("node"), str)
        and isinstance(data.get("local_rank"), int)
        and isinstance(rounds, list)
        and all(_are_outcomes(outcomes, (int, float, type(None))) for outcomes in rounds)
        and _are_outcomes(facts, (int, float, str, list, type(None)))
    )


def _are_outcomes(data: Any, kinds: tuple[type, ...]) -> bool:
    """Return True if data are outcomes by name, with values of these kinds."""
    return isinstance(data, dict) and all(
        isinstance(outcome, dict)
        and isinstance(outcome.get("value"), kinds)
        and all(isinstance(outcome.get(key, ""), str) for key in ("fault", "absent"))
        and not {"value", "fault", "absent"}.isdisjoint(outcome)
        for outcome in data.values()
    )


def wait(
    folder: Path, is_enough: Callable[[Sequence[Report]], bool], patience: float
) -> list[Report]:
    """Return the reports as soon as they are enough, and those that exist after ``patience`` s."""
    end = time.monotonic() + patience
    while True:
        reports = read_all(folder)
        if is_enough(reports) or time.monotonic() > end:
            return reports
        time.sleep(_POLL)


def is_of_node(name: str, row: Mapping[str, Any]) -> bool:
    """Return True for a measure of the table that only the first rank of each node does."""
    return name == "disk" or "command" in row


def values_of(reports: Sequence[Report], number: int) -> dict[str, dict[str, float]]:
    """Return the value of each node in round ``number`` from 0, by measure: of its worst GPU.

    A node has none if one of its GPUs gave no value, or none in this round.
    """
    columns: dict[str, dict[str, list[float | None]]] = {}
    for report in reports:
        rounds = report["rounds"]
        outcomes = rounds[number] if number < len(rounds) else {}
        for name in rounds[0] if rounds else ():
            column = columns.setdefault(name, {}).setdefault(report["node"], [])
            column.append(outcomes.get(name, {}).get("value"))
    return {
        name: {
            node: value
            for node, per_gpu in column.items()
            if None not in per_gpu and (value := peers.worst(per_gpu)) is not None
        }
        for name, column in columns.items()
    }
