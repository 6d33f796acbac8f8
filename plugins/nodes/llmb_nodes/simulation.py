# SPDX-License-Identifier: Apache-2.0
"""Simulates a diagnosis with planted faults: for ``--dry-run``, the documentation and tests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from llmb_nodes.program import strategy
from llmb_nodes.program.strategy import Diagnosis, GroupTest, Outcome, SearchPlan

USUAL = 100.0  # GB/s of a healthy group


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults of a simulated cluster. A factor of 0.7 is 30 % slower, 0 a hang."""

    nodes: Mapping[str, float] = field(default_factory=dict)
    pairs: Mapping[frozenset[str], float] = field(default_factory=dict)
    #: The way out of a switch group.
    switches: Mapping[str, float] = field(default_factory=dict)
    everywhere: float = 1.0

    def factor(self, test: GroupTest, switches: Mapping[str, str]) -> float:
        """Return the factor of a group, which is as slow as its slowest part."""
        factors = [self.nodes.get(node, 1.0) for node in test.nodes]
        members = set(test.nodes)
        factors += [factor for pair, factor in self.pairs.items() if pair <= members]
        touched = {switches.get(node, "") for node in test.nodes}
        if len(touched) > 1:
            factors += [self.switches.get(name, 1.0) for name in touched]
        return self.everywhere * min(factors)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A simulated diagnosis."""

    diagnosis: Diagnosis
    history: Sequence[strategy.Round]
    #: Rounds in which a group did not end before its time limit.
    hangs: int

    @property
    def rounds(self) -> list[list[GroupTest]]:
        """The groups of each round."""
        return [[test for test, _ in results] for results in self.history]

    @property
    def tests(self) -> int:
        """The number of groups of all rounds."""
        return sum(map(len, self.history))


def simulate(
    plan: SearchPlan, faults: Faults | None = None, spread: float = 0.0, seed: object = 0
) -> Simulated:
    """Run the strategy on a simulated cluster.

    ``spread``: the standard deviation of a group's value from one test to the next, as a fraction.
    Nodes differ for ever by a quarter of it, and a group is as slow as its slowest node.
    """
    faults = faults or Faults()
    chance = random.Random(f"{seed}")
    speeds = {node: chance.gauss(1.0, spread / 4) for node in plan.nodes}
    history: list[list[tuple[GroupTest, Outcome]]] = []
    hangs = 0
    steps = strategy.search(plan)
    try:
        tests = next(steps)
        while True:
            outcomes = []
            for test in tests:
                factor = faults.factor(test, plan.switches)
                speed = min(speeds[node] for node in test.nodes) * chance.gauss(1.0, spread)
                problem = "" if factor else "it did not end within its time limit"
                outcomes.append(Outcome(USUAL * factor * speed if factor else None, problem))
            history.append([*zip(tests, outcomes, strict=True)])
            hangs += any(outcome.value is None for outcome in outcomes)
            tests = steps.send(outcomes)
    except StopIteration as end:
        return Simulated(diagnosis=end.value, history=history, hangs=hangs)


def most_rounds(plan: SearchPlan) -> int:
    """Return the rounds that a diagnosis with one fault may take, from the worst of some faults."""
    nodes = plan.nodes
    sample = [nodes[0], nodes[len(nodes) // 2], nodes[-1]]
    pairs = [frozenset(pair) for pair in combinations(nodes[: plan.size], 2)]
    planted = [
        *(Faults(nodes={node: 0.5}) for node in sample),
        *(Faults(pairs={pair: 0.5}) for pair in (pairs[0], pairs[-1], pairs[len(pairs) // 2])),
        *(Faults(switches={name: 0.5}) for name in [*dict.fromkeys(plan.switches.values())][:1]),
    ]
    return max(len(simulate(plan, faults).rounds) for faults in planted)
