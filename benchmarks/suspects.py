# SPDX-License-Identifier: Apache-2.0
"""Prints how often past runs blame healthy nodes and find a slow one, in simulated months.

A month is 20 days on 64 nodes with 6 runs a day, on 4 and 16 nodes in turn. Every fifth day is slow
as a whole, by 8 %. Half of the months have a node that takes 10 % of the speed of its runs.

    python benchmarks/suspects.py [MONTHS]
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from llmb_nodes import slow_nodes

NODES, DAYS, RUNS, SIZES = 64, 20, 6, (4, 16)
SLOW_DAYS, SLOW_DAY, SLOW_NODE = 0.2, 0.92, 0.90
BAD = "n17"
#: How a scheduler chooses the nodes of a run.
PLACES = ("any nodes", "neighbours", "the same all day")
SPREADS = (0.01, 0.02, 0.05)


def month(
    chance: random.Random, place: str, spread: float, bad: str
) -> list[slow_nodes.Observation]:
    """Return the runs of a month. ``spread``: of healthy runs, as a fraction of their speed."""
    runs: list[tuple[int, frozenset[str], float]] = []
    for day in range(DAYS):
        of_day = SLOW_DAY if chance.random() < SLOW_DAYS else 1.0
        first = chance.randrange(NODES)
        for number in range(RUNS):
            nodes = frozenset(_nodes(chance, place, SIZES[number % len(SIZES)], first))
            speed = chance.gauss(1, spread) * of_day * (SLOW_NODE if bad in nodes else 1)
            runs.append((day, nodes, speed))
    fast = {
        size: _fast_quarter([v for _, nodes, v in runs if len(nodes) == size]) for size in SIZES
    }
    return [
        slow_nodes.Observation(day=str(day), nodes=nodes, speed=speed / fast[len(nodes)], time=day)
        for day, nodes, speed in runs
    ]


def _nodes(chance: random.Random, place: str, size: int, first: int) -> Iterator[str]:
    if place == "any nodes":
        numbers = chance.sample(range(NODES), size)
    else:
        start = chance.randrange(NODES) if place == "neighbours" else first + chance.randrange(3)
        numbers = [(start + number) % NODES for number in range(size)]
    return (f"n{number}" for number in numbers)


def _fast_quarter(speeds: Sequence[float]) -> float:
    return sorted(speeds)[3 * (len(speeds) - 1) // 4]


def plain(runs: Sequence[slow_nodes.Observation]) -> list[str]:
    """Return the nodes with p < 0.01 by Fisher's test on all runs alike, as is often done."""
    units = [[(run.nodes, run.is_slow) for run in runs]]
    names = {name for run in runs for name in run.nodes}
    return [name for name in names if slow_nodes.p_value(name, units) < slow_nodes.CHANCE]


def outcomes(months: int, place: str, spread: float) -> Counter[str]:
    """Count the healthy months with a blamed node, and the others by who is blamed."""
    counts: Counter[str] = Counter()
    for number in range(months):
        chance = random.Random(f"{place} {spread} {number}")
        healthy, runs = month(chance, place, spread, ""), month(chance, place, spread, BAD)
        named = [found.nodes for found in slow_nodes.find(runs)]
        counts["healthy, plain"] += bool(plain(healthy))
        counts["healthy"] += bool(slow_nodes.find(healthy))
        counts["alone"] += (BAD,) in named
        counts["among few"] += any(BAD in nodes and len(nodes) > 1 for nodes in named)
        counts["wrong"] += any(BAD not in nodes for nodes in named)
    return counts


def main(months: int) -> None:
    """Print the table of docs/nodes.md."""
    columns = ("healthy, plain", "healthy", "alone", "among few", "wrong")
    print(f"| nodes of a run | spread | {' | '.join(columns)} |\n|---|{'---|' * 6}")
    for place in PLACES:
        for spread in SPREADS:
            counts = outcomes(months, place, spread)
            cells = " | ".join(f"{counts[name] / months:.0%}" for name in columns)
            print(f"| {place} | {spread:.0%} | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
