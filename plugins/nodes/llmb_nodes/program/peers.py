# SPDX-License-Identifier: Apache-2.0
"""Compares nodes with their peers: the one rule for values that are too far from the median. Pure.

A fixed number of standard deviations flags a healthy node in most sweeps of 64 nodes, and a fixed
share alone does if healthy nodes differ by 2 %. So a node must exceed both limits. The median and
the deviations from it do not move if a few nodes are broken.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

DEVIATIONS = 3.5  # modified deviations below the median
FLOOR = 0.035  # a share of the median
FEWEST = 3  # nodes: of two, nobody can say which one is right
# The standard deviation of normal values in units of their median absolute deviation.
_OF_NORMAL = 1.4826


@dataclass(frozen=True)
class Peers:
    """The usual value of the nodes of a check, and the value below which a node is flagged."""

    median: float
    #: None with fewer than FEWEST nodes.
    limit: float | None
    nodes: int

    def is_below(self, value: float) -> bool:
        """Return True if a node with this value is flagged."""
        return self.limit is not None and value < self.limit


def compare(values: Collection[float], floor: float = FLOOR) -> Peers | None:
    """Return what is usual among the values of all nodes, higher ones better. None without any.

    ``floor``: the share of the median that healthy nodes may be below it.
    """
    if not values:
        return None
    median = statistics.median(values)
    if len(values) < FEWEST:
        return Peers(median, None, len(values))
    spread = _OF_NORMAL * statistics.median(abs(value - median) for value in values)
    return Peers(median, median - max(DEVIATIONS * spread, floor * abs(median)), len(values))


def worst(per_gpu: Collection[float | None]) -> float | None:
    """Return the value of a node, which is that of its worst GPU. None without any."""
    return min((value for value in per_gpu if value is not None), default=None)


def flagged(
    values: Mapping[str, Mapping[str, float]], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, set[str]]:
    """Return the measures for which each flagged node must be measured again.

    ``values``: those of each node, by measure. ``rows``: the measures of the table, whose
    ``minimum`` is the least value that works, and ``spread`` the floor of a measure.
    """
    again: dict[str, set[str]] = {}
    for measure, by_node in values.items():
        row = rows.get(measure, {})
        peers = compare(by_node.values(), row.get("spread") or FLOOR)
        minimum = row.get("minimum")
        for node, value in by_node.items():
            is_slow = peers is not None and peers.is_below(value)
            if is_slow or (minimum is not None and value < minimum):
                again.setdefault(node, set()).add(measure)
    return again
