# SPDX-License-Identifier: Apache-2.0
"""Find the nodes that slow runs have and fast runs lack, and how sure that is. Pure.

The test of one node is Fisher's exact test, one-sided, over several strata at once: within each
stratum every way to spread the slow runs over the runs is equally likely if no node has an effect,
so that the number of slow runs with the node is hypergeometric, and their sum over the strata is
compared with its own distribution. The p-value is multiplied by the number of nodes (Bonferroni).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from statistics import median

#: A run is slow if it is below the fast quarter of its configuration by more than this fraction.
SLOWER = 0.035
#: The largest chance of blaming any healthy node, over all nodes together.
CHANCE = 0.01
#: The least share of slow runs among the runs of a suspect.
SHARE = 0.8
#: More nodes that ran only together are not blamed: nobody could say which of them it is.
MOST_TOGETHER = 4
#: The share of a suspect's slow runs that make another node indistinguishable from it.
ALIKE = 0.9
#: A node with as many fast runs without a suspect, and few slow ones, is distinguishable from it.
#: If a fifth of the runs of a slow node are fast (SHARE), three fast ones have a chance of 0.8 %.
FAST_WITHOUT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The runs of one day on the same nodes, which count as one however many they are."""

    day: str
    nodes: frozenset[str]
    #: The median of its runs, each as a fraction of the speed of its configuration's fast quarter.
    speed: float
    #: The newest of its runs was submitted then, in seconds since the epoch.
    time: float
    #: The ids of its runs, and the number of GPUs of the largest one.
    runs: tuple[str, ...] = ()
    gpus: int = 0
    #: Its nodes that no run of its configuration lacks. They slow all of them alike, or none.
    not_compared: frozenset[str] = frozenset()

    @property
    def compared(self) -> frozenset[str]:
        """The nodes that its speed accuses or acquits."""
        return self.nodes - self.not_compared

    @property
    def is_slow(self) -> bool:
        """Return True if it is slower than chance makes a healthy run."""
        return self.speed < 1 - SLOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Nodes of which one slows runs. They ran only together, so usually it is one node."""

    nodes: tuple[str, ...]
    #: The observations that tell of these nodes, and the slow ones among them.
    total: int
    slow: int
    #: Those without these nodes and without stronger suspects, and the slow ones among them.
    total_without: int
    slow_without: int
    #: The chance that any healthy node of the cluster looks as bad as this.
    chance: float
    #: The fraction of the speed that is lost with them.
    loss: float


#: A unit of the test: the nodes, and whether it is slow.
Unit = tuple[frozenset[str], bool]


def find(observations: Iterable[Observation]) -> list[Blame]:
    """Return the nodes to blame, the surest first.

    What a stronger suspect explains is not held against the nodes that ran with it.
    """
    telling = [observation for observation in observations if observation.compared]
    remaining, blamed = telling, list[Blame]()
    nodes = len({node for observation in telling for node in observation.nodes})
    while chances := _strongest(remaining, nodes):
        still = tuple(node for node in chances if _is_slow_still(node, telling))
        chance = min((chances[node] for node in still), default=1.0)
        if chance <= CHANCE and len(chances) <= MOST_TOGETHER:
            blamed.append(_blame(still, chance, remaining))
        remaining = _lacking(chances, remaining)
    return blamed


def _strongest(observations: Sequence[Observation], nodes: int) -> dict[str, float]:
    """Return the strongest suspects, each with its chance, none if chance explains all."""
    candidates = sorted(_often_slow(observations))
    groups = within_days(observations), between_days(observations)
    chances = {node: min(1.0, nodes * chance_of(node, *groups)) for node in candidates}
    best = min(candidates, key=lambda node: chances[node], default=None)
    if best is None or chances[best] > CHANCE:
        return {}
    return {node: chances[node] for node in _together(best, candidates, observations)}


def _blame(suspects: tuple[str, ...], chance: float, observations: Sequence[Observation]) -> Blame:
    """Return the blame of these nodes with what the observations say of them."""
    with_suspects = [
        observation for observation in observations if not observation.compared.isdisjoint(suspects)
    ]
    without = [
        observation for observation in observations if observation.nodes.isdisjoint(suspects)
    ]
    # Where every run has one of them, the fast quarter is left: speeds are fractions of it.
    usual = median(observation.speed for observation in without) if without else 1.0
    return Blame(
        nodes=suspects,
        total=len(with_suspects),
        slow=sum(observation.is_slow for observation in with_suspects),
        total_without=len(without),
        slow_without=sum(observation.is_slow for observation in without),
        chance=chance,
        loss=1 - median(observation.speed for observation in with_suspects) / usual,
    )


def _together(
    best: str, candidates: Iterable[str], observations: Sequence[Observation]
) -> tuple[str, ...]:
    """Return the candidates that nearly all slow runs of ``best`` have too, itself among them.

    A run of a day on which all are slow says nothing about that, if there are others. A candidate
    that is fast without ``best`` is not one of them.
    """
    fast_days = {observation.day for observation in observations if not observation.is_slow}
    all_slow = [
        observation
        for observation in observations
        if observation.is_slow and best in observation.compared
    ]
    slow = [observation.compared for observation in all_slow if observation.day in fast_days]
    slow = slow or [observation.compared for observation in all_slow]
    cleared = _cleared(_lacking([best], observations))
    return tuple(
        node
        for node in candidates
        if sum(node in nodes for nodes in slow) >= ALIKE * len(slow) and node not in cleared
    )


def _lacking(nodes: Iterable[str], observations: Iterable[Observation]) -> list[Observation]:
    """Return the observations that tell nothing of these nodes."""
    return [observation for observation in observations if observation.compared.isdisjoint(nodes)]


def _often_slow(observations: Iterable[Observation]) -> Iterator[str]:
    """Yield the nodes that hardly any fast run has."""
    for node, slow in _slowness(observations).items():
        if sum(slow) >= SHARE * len(slow):
            yield node


def _cleared(observations: Iterable[Observation]) -> set[str]:
    """Return the nodes that have too many fast runs to be slow."""
    return {
        node
        for node, slow in _slowness(observations).items()
        if slow.count(False) >= FAST_WITHOUT and sum(slow) < SHARE * len(slow)
    }


def _slowness(observations: Iterable[Observation]) -> dict[str, list[bool]]:
    """Return whether each run of each node is slow."""
    slowness: dict[str, list[bool]] = {}
    for observation in observations:
        for node in observation.compared:
            slowness.setdefault(node, []).append(observation.is_slow)
    return slowness


def _is_slow_still(node: str, observations: Iterable[Observation]) -> bool:
    """Return False if the newest run with the node is fast, as after a repair."""
    with_node = [observation for observation in observations if node in observation.compared]
    return max(with_node, key=lambda observation: observation.time).is_slow


def within_days(observations: Iterable[Observation]) -> list[list[Unit]]:
    """Return the units of each day and number of nodes that has slow and fast ones.

    What slows a whole day, such as the network, blames no node. Large jobs are slow more often, so
    that only jobs of equally many nodes are compared.
    """
    days: dict[tuple[str, int], list[Unit]] = {}
    for observation in observations:
        days.setdefault((observation.day, len(observation.nodes)), []).append(
            (observation.compared, observation.is_slow)
        )
    return [units for units in days.values() if _differ(units)]


def between_days(observations: Iterable[Observation]) -> list[list[Unit]]:
    """Return a unit for each day that is slow or fast as a whole, by the number of nodes."""
    days: dict[tuple[str, int], list[Observation]] = {}
    for observation in observations:
        days.setdefault((observation.day, len(observation.nodes)), []).append(observation)
    by_size: dict[int, list[Unit]] = {}
    for (_, size), members in days.items():
        if len({observation.is_slow for observation in members}) == 1:
            by_size.setdefault(size, []).append((_usual_nodes(members), members[0].is_slow))
    return [units for units in by_size.values() if _differ(units)]


def _differ(units: Sequence[Unit]) -> bool:
    return len({is_slow for _, is_slow in units}) == 2


def _usual_nodes(members: Sequence[Observation]) -> frozenset[str]:
    """Return the nodes of at least half of the observations of a day."""
    counts = Counter(node for observation in members for node in observation.compared)
    return frozenset(node for node, count in counts.items() if 2 * count >= len(members))


def chance_of(
    node: str, within: Sequence[Sequence[Unit]], between: Sequence[Sequence[Unit]]
) -> float:
    """Return the chance that a node without effect is in as many slow units as this one.

    Jobs of several sizes on one slow day are not independent. So the days count for one size at a
    time, the one that says most, and its chance is multiplied by the number of sizes.
    """
    if not between:
        return p_value(node, within)
    return min(1.0, len(between) * min(p_value(node, [*within, units]) for units in between))


def p_value(node: str, strata: Iterable[Sequence[Unit]]) -> float:
    """Return the chance of one choice of units, by Fisher's exact test over all strata."""
    observed = 0
    chances: tuple[float, ...] = (1.0,)
    for units in strata:
        slow = sum(is_slow for _, is_slow in units)
        with_node = [is_slow for nodes, is_slow in units if node in nodes]
        observed += sum(with_node)
        chances = _sum_of(chances, _hypergeometric(len(units), slow, len(with_node)))
    return min(1.0, sum(chances[observed:]))


@lru_cache(maxsize=4096)
def _hypergeometric(units: int, slow: int, drawn: int) -> tuple[float, ...]:
    """Return the chances of 0, 1, ... slow units among ``drawn`` of all units."""
    ways = comb(units, drawn)
    return tuple(
        comb(slow, hits) * comb(units - slow, drawn - hits) / ways
        for hits in range(min(slow, drawn) + 1)
    )


def _sum_of(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    """Return the chances of the sum of two independent numbers."""
    chances = [0.0] * (len(first) + len(second) - 1)
    for hits, chance in enumerate(first):
        for more_hits, second_chance in enumerate(second):
            chances[hits + more_hits] += chance * second_chance
    return tuple(chances)
