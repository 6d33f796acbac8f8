# SPDX-License-Identifier: Apache-2.0
"""Chooses the groups of nodes to test next, and interprets results. Pure: no clock, no chance.

A test runs a collective within a group, and all groups of a round run at the same time. Every group
has the same number of nodes, so that each result is compared with those of healthy groups:

1. screen: the nodes of one switch group in groups of about the square root of their number
2. across: half of each healthy group with half of the next one
3. bisect: halves of a slow group, each filled up with nodes that are known to be good
4. mix: if both halves are healthy, parts of both, for a pair that is slow only together
5. confirm: the suspect once more, with other good nodes

If the groups of the first round differ, it is repeated to learn how much the value of a group
changes from one test to the next. The more that is, the more often each later test is repeated, and
means are compared.

A search is a generator that yields the tests it needs and is sent their answers. Searches for
several faults take their steps in the same rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

FLOOR = 0.10  # a group is slow if it is further below the usual value than this share of it
EVEN = 0.05  # values that differ by less than this share are not measured again
PRECISE = 0.03  # the standard deviation that tests are repeated for, as a share
REPEATS = 3  # of a test at most
NVLINK, NETWORK = "all", "network"  # every path of the cluster, or without NVLink between nodes
NODE, PAIR, SWITCH, LINK = "node", "pair", "switch", "link"
GROUP, EVERYWHERE = "group", "everywhere"
_CERTAIN = 8  # repeated tests that tell the noise well enough
_TWO = 2  # switch groups: of two, none is the odd one
_FEWEST = 3  # nodes of a switch group that is named instead of them


@dataclass(frozen=True)
class SearchPlan:
    """The task of a diagnosis."""

    #: Names in the order of the job.
    nodes: tuple[str, ...]
    #: The switch group of each node, empty if the scheduler does not tell.
    switches: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = (NVLINK,)
    #: The bandwidth that a healthy group reaches, in GB/s, None if it is unknown.
    expected: float | None = None

    @property
    def size(self) -> int:
        """Nodes of each group: even, since groups are halved, and at most about the root."""
        return max(2, 2 * int(math.sqrt(len(self.nodes)) / 2 + 0.25))


@dataclass(frozen=True)
class GroupTest:
    """A group of nodes to run a collective in."""

    #: In the order of the ranks.
    nodes: tuple[str, ...]
    #: screen, across, bisect, mix or confirm.
    stage: str
    path: str = NVLINK
    #: The nodes that the test is about. The others are known to be good.
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a test."""

    #: Bus bandwidth in GB/s, None if the collective did not end.
    value: float | None = None
    #: Why there is no value.
    problem: str = ""


Round = Sequence["tuple[GroupTest, Outcome]"]


@dataclass(frozen=True)
class NodeFinding:
    """A fault, or a suspicion that was not confirmed."""

    #: NODE, PAIR, SWITCH (slow to all others), LINK (between its two halves), GROUP (slow, and its
    #: parts are healthy) or EVERYWHERE.
    kind: str
    nodes: tuple[str, ...]
    #: False if the suspect was healthy in the last test.
    confirmed: bool = True
    path: str = NVLINK
    #: The bandwidth of its last test, in GB/s. None if it did not end.
    value: float | None = None
    #: What healthy groups reach.
    usual: float | None = None
    #: Why a test of it did not end.
    problem: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The end of a search."""

    findings: tuple[NodeFinding, ...]
    #: The median bandwidth of healthy groups by path, in GB/s.
    usual: Mapping[str, float]
    #: The same of groups across switch groups. A path without any is absent.
    across: Mapping[str, float]
    #: The share of all pairs of nodes that were in one group that was tested, by path.
    pairs: Mapping[str, float]
    #: Nodes whose groups had no others to be compared with.
    unjudged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Request:
    """A test that a search needs."""

    core: tuple[str, ...]
    stage: str
    #: Nodes that must not fill up the group if others are there.
    avoid: frozenset[str] = frozenset()
    #: The switch group that the test must not leave if enough of its nodes are good.
    home: str = ""


@dataclass(frozen=True)
class _Answer:
    """A test as a search sees it. ``slow`` is None if no good node was there for the test."""

    test: GroupTest
    outcome: Outcome
    slow: bool | None
    usual: float | None


_Search = Generator["list[_Request]", "list[_Answer]", Any]
Rounds = Generator["list[GroupTest]", "list[Outcome]", Any]


def next_round(plan: SearchPlan, history: Sequence[Round]) -> list[GroupTest] | Diagnosis:
    """Return the tests of the round after ``history``, or the diagnosis if it is complete."""
    steps = search(plan)
    try:
        tests = next(steps)
        for results in history:
            tests = steps.send([outcome for _, outcome in results])
    except StopIteration as end:
        diagnosis: Diagnosis = end.value
        return diagnosis
    return tests


def usual_of(values: Collection[float], share: float = 0.5) -> float | None:
    """Return the value that healthy groups reach, the least of the fastest ``share`` of groups.

    A fault makes a group slower and never faster, so the faster half tells what is usual even if
    the other half is slow. One bad switch slows two groups, so that of three only the fastest one
    is healthy. None without a value.
    """
    count = len(values)
    fastest = sorted(values, reverse=True)[: max(1, min(math.ceil(count * share), count - 2))]
    return fastest[-1] if fastest else None


def search(plan: SearchPlan) -> Rounds:
    """Yield the tests of each round, and take their outcomes. Returns the Diagnosis."""
    findings: list[NodeFinding] = []
    usual: dict[str, float] = {}
    across: dict[str, float] = {}
    pairs: dict[str, float] = {}
    judged: set[str] = set()
    for path in plan.paths:
        book = _Book(plan, path)
        findings += yield from book.run(_search(plan, book))
        pairs[path] = book.share_of_pairs()
        judged |= book.judged
        if values := book.healthy_values():
            usual[path] = statistics.median(values)
            if plan.expected is not None and usual[path] < (1 - FLOOR) * plan.expected:
                findings.append(_everywhere(plan, path, usual[path]))
        if values := book.healthy_values(is_across=True):
            across[path] = statistics.median(values)
    unjudged = tuple(node for node in plan.nodes if node not in judged)
    return Diagnosis(tuple(findings), usual, across, pairs, unjudged)


def _everywhere(plan: SearchPlan, path: str, value: float) -> NodeFinding:
    return NodeFinding(EVERYWHERE, plan.nodes, path=path, value=value, usual=plan.expected)


class _Book:
    """The knowledge of the nodes on one path: results, good nodes, and groups for requests."""

    def __init__(self, plan: SearchPlan, path: str) -> None:
        self.plan, self.path = plan, path
        #: Nodes that may fill up a group.
        self.good: dict[str, None] = {}
        #: The standard deviation of a group's value from test to test, as a share.
        self.noise = 0.0
        self.is_first = True
        #: Nodes of groups that were compared with others.
        self.judged: set[str] = set()
        #: Values by size and whether they are across switch groups.
        self._healthy: dict[tuple[int, bool], list[float]] = {}
        self._pairs: set[tuple[str, str]] = set()

    def run(self, search: _Search) -> Rounds:
        """Run a search: its requests become rounds of groups that have no node in common."""
        try:
            requests = next(search)
            while True:
                answers: dict[int, _Answer] = {}
                while len(answers) < len(requests):
                    tests = self._wave(requests, answers)
                    if tests:
                        outcomes = yield from self._measure([*tests.values()])
                        answers.update(self._judge(tests, outcomes))
                requests = search.send([answers[number] for number in range(len(requests))])
        except StopIteration as end:
            return end.value

    def set_aside(self, nodes: Collection[str]) -> None:
        """Fill up no group with nodes that are slow outside of theirs, as long as others are left.

        Without any good node, no fault in a group could be found.
        """
        remaining = {node: None for node in self.good if node not in nodes}
        self.good = remaining or self.good

    def _measure(self, tests: Sequence[GroupTest]) -> Rounds:
        """Run the tests of a round as often as their noise demands. Return the mean outcomes."""
        outcomes: dict[GroupTest, list[Outcome]] = {test: [] for test in tests}
        rounds, repeats = 0, self._repeats()
        while rounds < repeats:
            running = [test for test, values in outcomes.items() if not _has_failed(values)]
            if not running:
                break
            for test, outcome in zip(running, (yield running), strict=True):
                outcomes[test].append(outcome)
            rounds += 1
            if self.is_first and rounds == 1 and _is_uneven(outcomes.values()):
                repeats = 2
            elif rounds > 1:
                noise = _noise(outcomes.values())
                is_vague = len(running) * (rounds - 1) < _CERTAIN and noise > PRECISE / 2
                self.noise = max(noise, self.noise) if not self.is_first else noise
                repeats = max(rounds + 1 if self.is_first and is_vague else rounds, self._repeats())
        self.is_first = False
        return [_mean(values) for values in outcomes.values()]

    def _repeats(self) -> int:
        return min(REPEATS, max(1, math.ceil((self.noise / PRECISE) ** 2)))

    def _wave(
        self, requests: Sequence[_Request], answers: dict[int, _Answer]
    ) -> dict[int, GroupTest]:
        """Return the tests that can run at the same time. One that never can is answered."""
        used: set[str] = set()
        tests: dict[int, GroupTest] = {}
        waiting = {n: request for n, request in enumerate(requests) if n not in answers}
        # A node that is still to be tested in this round does not fill up another group before.
        reserved = {node for request in waiting.values() for node in request.core}
        for number, request in waiting.items():
            if used.intersection(request.core):
                continue
            filling = self._filling(request, used | reserved)
            if len(filling) + len(request.core) < self.plan.size:
                if tests:
                    continue  # in a later round there are more nodes for it
                filling = self._filling(request, used)
            nodes = (*request.core, *filling)
            if len(nodes) < 2:
                test = GroupTest(nodes, request.stage, self.path, request.core)
                answers[number] = _Answer(test, Outcome(), None, None)
                continue
            used.update(nodes)
            tests[number] = GroupTest(nodes, request.stage, self.path, request.core)
        return tests

    def _filling(self, request: _Request, used: Collection[str]) -> list[str]:
        missing = self.plan.size - len(request.core)
        free = [node for node in self.good if node not in used and node not in request.core]
        free.sort(key=lambda node: node in request.avoid)
        if not self._is_slower_across():
            return free[:missing]
        inside = [node for node in free if self.plan.switches.get(node, "") == request.home]
        candidates = [node for node in self.good if node not in request.core]
        at_home = sum(self.plan.switches.get(node, "") == request.home for node in candidates)
        chosen = inside if at_home >= missing else free
        return chosen[:missing]

    def _is_slower_across(self) -> bool:
        """Return True unless groups across switch groups are known to be as fast as within."""
        within, across = (
            usual_of(self._healthy.get((self.plan.size, is_across), []))
            for is_across in (False, True)
        )
        return within is None or across is None or across < (1 - FLOOR) * within

    def _class(self, test: GroupTest) -> tuple[int, bool]:
        """Groups of one size, within or across switch groups, are compared."""
        return len(test.nodes), len({self.plan.switches.get(node, "") for node in test.nodes}) > 1

    def _share(self, test: GroupTest) -> float:
        """Return the share of groups that one bad switch group leaves healthy, at most half."""
        count = len(set(self.plan.switches.values()))
        return min(0.5, 1 - 2 / count) if self._class(test)[1] and count > _TWO else 0.5

    def _judge(
        self, tests: Mapping[int, GroupTest], outcomes: Sequence[Outcome]
    ) -> dict[int, _Answer]:
        """Compare the results of a round with each other and with the healthy ones before it."""
        pool = {key: [*values] for key, values in self._healthy.items()}
        for test, outcome in zip(tests.values(), outcomes, strict=True):
            if outcome.value is not None:
                pool.setdefault(self._class(test), []).append(outcome.value)
        answers, healthy = {}, []
        for (number, test), outcome in zip(tests.items(), outcomes, strict=True):
            peers = pool.get(self._class(test), [])
            healthy_values = self._healthy.get(self._class(test), [])
            # A round may test a suspect in most of its groups: the rounds before know better.
            usual = usual_of(
                healthy_values if len(healthy_values) > 1 else peers, self._share(test)
            )
            value = outcome.value
            if value is None or len(peers) > 1:
                self.judged.update(test.nodes)
            slow = value is None or (usual is not None and value < (1 - FLOOR) * usual)
            if value is not None and not slow:
                healthy.append((test, value))
            ordered = sorted(test.nodes)
            self._pairs.update((a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :])
            answers[number] = _Answer(test, outcome, slow, usual)
        for test, value in healthy:
            self._healthy.setdefault(self._class(test), []).append(value)
        return answers

    def healthy_values(self, *, is_across: bool = False) -> list[float]:
        """Return the values of the groups that were not slow, within or across switch groups."""
        return [
            value
            for (_, across), values in self._healthy.items()
            if across == is_across
            for value in values
        ]

    def share_of_pairs(self) -> float:
        """Return the share of all pairs of nodes that were in one group."""
        count = len(self.plan.nodes)
        return 2 * len(self._pairs) / (count * (count - 1)) if count > 1 else 0.0


def _has_failed(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.value is None for outcome in outcomes)


def _is_uneven(series: Iterable[Sequence[Outcome]]) -> bool:
    values = [outcome.value for outcomes in series for outcome in outcomes]
    measured = [value for value in values if value is not None]
    return bool(measured) and (
        len(measured) < len(values) or min(measured) < (1 - EVEN) * max(measured)
    )


def _noise(series: Iterable[Sequence[Outcome]]) -> float:
    """Return the standard deviation of one test as a share, from groups that were tested twice."""
    deviations = []
    for outcomes in series:
        values = [outcome.value for outcome in outcomes if outcome.value]
        if len(values) > 1:
            deviations.append(statistics.stdev(values) / statistics.fmean(values))
    return (
        math.sqrt(statistics.fmean([deviation**2 for deviation in deviations]))
        if deviations
        else 0.0
    )


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    failed = next((outcome for outcome in outcomes if outcome.value is None), None)
    return failed or Outcome(
        statistics.fmean([outcome.value for outcome in outcomes if outcome.value])
    )


def _together(searches: Sequence[_Search]) -> _Search:
    """Run searches at the same time, a step of each in every round. Return their results."""
    results: dict[int, Any] = {}
    requests: dict[int, list[_Request]] = {}

    def step(number: int, advance: Callable[[], list[_Request]]) -> None:
        try:
            requests[number] = advance()
        except StopIteration as end:
            requests.pop(number, None)
            results[number] = end.value

    for number, search in enumerate(searches):
        step(number, search.__next__)
    while requests:
        order = [*requests]
        answers = yield [request for number in order for request in requests[number]]
        for number in order:
            count = len(requests[number])
            batch, answers = answers[:count], answers[count:]
            step(number, partial(searches[number].send, batch))
    return [results[number] for number in range(len(searches))]


def _search(plan: SearchPlan, book: _Book) -> _Search:
    """All stages on one path. Returns the findings."""
    groups, remainders = _groups(plan)
    answers = yield [_Request(group, "screen", home=_home(plan, group)) for group in groups]
    slow = [answer for answer in answers if answer.slow]
    healthy = [group for group, answer in zip(groups, answers, strict=True) if not answer.slow]
    for group in healthy:
        book.good.update(dict.fromkeys(group))
    if not book.good:
        return [replace(_finding(EVERYWHERE, plan.nodes, slow[0]), usual=plan.expected)]
    failing, across = yield from _together(
        [_screen_others(plan, remainders, book), _across(plan, healthy)]
    )
    for suspicion in across:
        book.set_aside((*suspicion.first, *suspicion.second))
    results = yield from _together(
        [
            *(_fault_within(plan, answer) for answer in (*slow, *failing)),
            *(_fault_across(plan, suspicion) for suspicion in across),
        ]
    )
    return _merged(plan, [finding for findings in results for finding in findings])


def _home(plan: SearchPlan, nodes: Iterable[str]) -> str:
    names = {plan.switches.get(node, "") for node in nodes}
    return names.pop() if len(names) == 1 else ""


def _groups(plan: SearchPlan) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return groups of the plan's size within switch groups, and groups of the other nodes.

    Neighbours in the first list are of different switch groups as far as there are several. If
    most switch groups are too small for a group, all are taken as one.
    """
    size = plan.size
    by_switch: dict[str, list[str]] = {}
    for node in plan.nodes:
        by_switch.setdefault(plan.switches.get(node, ""), []).append(node)
    if 2 * sum(len(nodes) // size * size for nodes in by_switch.values()) < len(plan.nodes):
        by_switch = {"": [node for nodes in by_switch.values() for node in nodes]}
    columns = [_chunks(nodes[: len(nodes) // size * size], size) for nodes in by_switch.values()]
    leftover = [node for nodes in by_switch.values() for node in nodes[len(nodes) // size * size :]]
    longest = max(map(len, columns))
    groups = [column[n] for n in range(longest) for column in columns if n < len(column)]
    return groups, _chunks(leftover, size)


def _chunks(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(nodes[start : start + size]) for start in range(0, len(nodes), size)]


def _screen_others(plan: SearchPlan, groups: Sequence[tuple[str, ...]], book: _Book) -> _Search:
    """GroupTest the nodes that are in no group yet. Return the slow answers."""
    requests = [_Request(group, "screen", home=_home(plan, group)) for group in groups]
    answers = (yield requests) if requests else []
    for answer in answers:
        if answer.slow is False:
            book.good.update(dict.fromkeys(answer.test.about))
    return [answer for answer in answers if answer.slow]


@dataclass(frozen=True)
class _Suspicion:
    """Halves of two healthy groups that were slow together, or a group that was slow to both."""

    first: tuple[str, ...]
    #: Empty for a group or switch group that was slow to all others.
    second: tuple[str, ...]
    answer: _Answer


def _across(plan: SearchPlan, groups: Sequence[tuple[str, ...]]) -> _Search:
    """GroupTest half of each group with half of the next. Return the suspicions.

    Each group is in two tests. If all tests of a switch group, or of a group without a topology,
    are slow, its way out is suspected, else the two halves of the slow test.
    """
    if len(groups) < 2:
        return []
    half = plan.size // 2
    names = [_home(plan, group) or f"group {number}" for number, group in enumerate(groups)]
    neighbours = [(number, (number + 1) % len(groups)) for number in range(len(groups))]
    halves = [(groups[a][:half], groups[b][half:]) for a, b in neighbours]
    answers = yield [_Request((*a, *b), "across") for a, b in halves]
    by_name: dict[str, list[_Answer]] = {}
    for (a, b), answer in zip(neighbours, answers, strict=True):
        if names[a] != names[b]:
            by_name.setdefault(names[a], []).append(answer)
            by_name.setdefault(names[b], []).append(answer)
    suspects = [name for name, tests in by_name.items() if all(answer.slow for answer in tests)]
    if len(suspects) == len(by_name):
        suspects = []  # of two, none is the odd one
    suspicions = [
        _Suspicion(
            tuple(
                node
                for group, name in zip(groups, names, strict=True)
                if name == suspect
                for node in group
            ),
            (),
            by_name[suspect][0],
        )
        for suspect in suspects
    ]
    for (a, b), (first, second), answer in zip(neighbours, halves, answers, strict=True):
        if answer.slow and names[a] not in suspects and names[b] not in suspects:
            suspicions.append(_Suspicion(first, second, answer))
    return suspicions


def _fault_within(plan: SearchPlan, answer: _Answer) -> _Search:
    """Find the fault in a group that was slow."""
    nodes = answer.test.about
    return (yield from _bisect(nodes, answer, _home(plan, nodes)))


def _fault_across(plan: SearchPlan, suspicion: _Suspicion) -> _Search:
    """Find the fault between groups that are healthy by themselves."""
    if suspicion.second:
        return (yield from _mix(suspicion.first, suspicion.second, suspicion.answer, ""))
    # The other half of its nodes than before, with nodes of other groups.
    request = _Request(suspicion.first[-(plan.size // 2) :], "confirm")
    (answer,) = yield [request]
    return [_finding(SWITCH, suspicion.first, answer)]


def _bisect(suspects: tuple[str, ...], last: _Answer, home: str) -> _Search:
    """Halve a slow group until one node is left, and confirm it."""
    avoid = frozenset(last.test.nodes)
    if len(suspects) == 1:
        (answer,) = yield [_Request(suspects, "confirm", avoid, home)]
        return [_finding(NODE, suspects, answer)]
    halves = _halves(suspects)
    answers = yield [_Request(half, "bisect", avoid, home) for half in halves]
    slow = [(half, answer) for half, answer in zip(halves, answers, strict=True) if answer.slow]
    if not slow:
        return (yield from _mix(halves[0], halves[1], last, home))
    results = yield from _together([_bisect(half, answer, home) for half, answer in slow])
    return [finding for findings in results for finding in findings]


def _mix(first: tuple[str, ...], second: tuple[str, ...], last: _Answer, home: str) -> _Search:
    """Find the pairs of nodes that are slow together, one of each side."""
    avoid = frozenset(last.test.nodes)
    if len(first) == len(second) == 1:
        pair = (*first, *second)
        # Each of them alone once more: one bad node makes every pair slow that it is in.
        groups = (pair, first, second)
        answers = yield [_Request(group, "confirm", avoid, home) for group in groups]
        alone = [_finding(NODE, answer.test.about, answer) for answer in answers[1:] if answer.slow]
        return alone or [_finding(PAIR, pair, answers[0])]
    parts = [(a, b) for a in _halves(first) for b in _halves(second)]
    requests = [_Request((*a, *b), "mix", avoid, home) for a, b in parts]
    answers = yield requests
    slow = [(pair, answer) for pair, answer in zip(parts, answers, strict=True) if answer.slow]
    if len(slow) == len(parts):
        again = yield [_Request(half, "confirm", avoid, home) for half in (first, second)]
        slow_halves = [answer for answer in again if answer.slow]
        if not slow_halves:
            return [_finding(LINK, (*first, *second), slow[0][1])]
        results = yield from _together(
            [_bisect(answer.test.about, answer, home) for answer in slow_halves]
        )
        return [finding for findings in results for finding in findings]
    if not slow:
        return [_finding(GROUP, (*first, *second), last, confirmed=False)]
    results = yield from _together([_mix(a, b, answer, home) for (a, b), answer in slow])
    return [finding for findings in results for finding in findings]


def _halves(nodes: tuple[str, ...]) -> list[tuple[str, ...]]:
    half = (len(nodes) + 1) // 2
    return [part for part in (nodes[:half], nodes[half:]) if part]


def _finding(
    kind: str, nodes: tuple[str, ...], answer: _Answer, *, confirmed: bool | None = None
) -> NodeFinding:
    return NodeFinding(
        kind,
        nodes,
        confirmed=bool(answer.slow) if confirmed is None else confirmed,
        path=answer.test.path,
        value=answer.outcome.value,
        usual=answer.usual,
        problem=answer.outcome.problem,
    )


def _merged(plan: SearchPlan, findings: Sequence[NodeFinding]) -> list[NodeFinding]:
    """Name the switch group instead of its nodes, and two of its links as one."""
    slow_nodes = {
        finding.nodes[0]: finding
        for finding in findings
        if finding.kind == NODE and finding.confirmed
    }
    members: dict[str, list[str]] = {}
    for node in plan.nodes:
        members.setdefault(plan.switches.get(node, ""), []).append(node)
    ways_out = {
        _home(plan, finding.nodes): finding for finding in findings if finding.kind == SWITCH
    }
    merged = []
    for name, nodes in members.items():
        if name and (name in ways_out or (len(nodes) >= _FEWEST and slow_nodes.keys() >= {*nodes})):
            first = ways_out.get(name) or slow_nodes[nodes[0]]
            merged.append(replace(first, kind=SWITCH, nodes=tuple(nodes)))
    explained = {node for finding in merged for node in finding.nodes}
    distinct = {(finding.kind, frozenset(finding.nodes)): finding for finding in findings}
    return merged + [
        finding for finding in distinct.values() if not explained.issuperset(finding.nodes)
    ]
