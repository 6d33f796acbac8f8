# SPDX-License-Identifier: Apache-2.0
"""The search for the bad node by simulation: planted faults, rounds, groups, and its page."""

import math
from collections import Counter
from collections.abc import Callable, Collection
from itertools import pairwise

import pytest

from llmb_nodes.program import strategy
from llmb_nodes.program.strategy import Diagnosis, GroupTest, NodeFinding, Outcome, SearchPlan
from llmb_nodes.simulation import Faults, most_rounds, simulate


def plan_of(count: int, width: int = 0, expected: float | None = None) -> SearchPlan:
    """A cluster of n0, n1, ... with ``width`` nodes at each switch (0: no topology)."""
    nodes = tuple(f"n{number}" for number in range(count))
    switches = (
        {node: f"leaf{number // width}" for number, node in enumerate(nodes)} if width else {}
    )
    return SearchPlan(nodes, switches, expected=expected)


def found(findings: Collection[NodeFinding]) -> set[tuple[str, tuple[str, ...]]]:
    return {(one.kind, tuple(sorted(one.nodes))) for one in findings if one.confirmed}


History = list[list[tuple[GroupTest, Outcome]]]


def run(plan: SearchPlan, answer: Callable[[GroupTest, int], Outcome]) -> tuple[Diagnosis, History]:
    """Run a diagnosis whose tests have the outcome ``answer(test, number of the round)``."""
    history: History = []
    while not isinstance(tests := strategy.next_round(plan, history), Diagnosis):
        history.append([(test, answer(test, len(history))) for test in tests])
    return tests, history


SIZES = [4, 5, 8, 10, 12, 16, 17, 31, 64, 72, 100, 256]


@pytest.mark.parametrize("count", SIZES)
def test_healthy_nodes_take_two_rounds_and_none_is_blamed(count: int) -> None:
    done = simulate(plan_of(count))
    assert done.diagnosis.findings == ()
    assert done.diagnosis.usual == {"all": pytest.approx(100.0)}
    assert done.diagnosis.unjudged == ()
    assert len(done.rounds) <= 3  # the third one has the nodes that filled no group
    assert {node for tests in done.rounds for test in tests for node in test.nodes} == {
        f"n{number}" for number in range(count)
    }


@pytest.mark.parametrize("factor", [0.7, 0.0])
@pytest.mark.parametrize("count", SIZES)
def test_one_bad_node_is_found_wherever_it_is(count: int, factor: float) -> None:
    plan = plan_of(count)
    promised = 5 + math.ceil(math.log2(plan.size))
    for bad in {0, 1, count // 2, count - 1}:
        done = simulate(plan, Faults(nodes={f"n{bad}": factor}))
        assert found(done.diagnosis.findings) == {("node", (f"n{bad}",))}
        assert len(done.rounds) <= promised <= most_rounds(plan) + 1
        (finding,) = done.diagnosis.findings
        assert (finding.value is None) == (factor == 0)
        assert bool(finding.problem) == (factor == 0)


@pytest.mark.parametrize("count", [8, 16, 64])
def test_two_bad_nodes_are_both_found(count: int) -> None:
    for bad in [(0, 1), (0, count - 1), (count // 2, count // 2 + 1)]:
        done = simulate(plan_of(count), Faults(nodes={f"n{number}": 0.6 for number in bad}))
        assert found(done.diagnosis.findings) == {("node", (f"n{number}",)) for number in bad}


@pytest.mark.parametrize("count", [8, 16, 64, 1024])
def test_a_pair_is_found_and_its_nodes_are_not_blamed(count: int) -> None:
    plan = plan_of(count)
    for a, b in [(0, 1), (0, plan.size - 1), (plan.size, plan.size + 1)]:
        pair = (f"n{a}", f"n{b}")
        done = simulate(plan, Faults(pairs={frozenset(pair): 0.5}))
        assert found(done.diagnosis.findings) == {("pair", tuple(sorted(pair)))}


def test_a_pair_of_two_groups_is_found_if_it_meets() -> None:
    plan = plan_of(16)
    across = next(test for test in simulate(plan).rounds[1] if test.stage == "across")
    pair = (across.nodes[0], across.nodes[-1])
    done = simulate(plan, Faults(pairs={frozenset(pair): 0.5}))
    assert found(done.diagnosis.findings) == {("pair", tuple(sorted(pair)))}
    # Others are not seen, and the diagnosis says for how many pairs that is so.
    assert simulate(plan).diagnosis.pairs["all"] == pytest.approx(40 / 120)


@pytest.mark.parametrize(("count", "width"), [(12, 4), (16, 4), (64, 8), (64, 16), (1024, 32)])
def test_a_switch_group_with_a_bad_way_out_is_named(count: int, width: int) -> None:
    plan = plan_of(count, width)
    for number in (0, count // width - 1):
        done = simulate(plan, Faults(switches={f"leaf{number}": 0.5}))
        members = {node for node, name in plan.switches.items() if name == f"leaf{number}"}
        assert found(done.diagnosis.findings) == {("switch", tuple(sorted(members)))}


def test_a_switch_group_whose_nodes_are_all_bad_is_named_once() -> None:
    plan = plan_of(16, 4)
    bad = Faults(nodes={f"n{number}": 0.5 for number in range(4, 8)})
    done = simulate(plan, bad)
    assert found(done.diagnosis.findings) == {("switch", ("n4", "n5", "n6", "n7"))}


def test_of_two_switch_groups_the_link_is_named() -> None:
    done = simulate(
        plan_of(16, 8),
        Faults(pairs={frozenset({f"n{a}", f"n{b}"}): 0.5 for a in (0, 1) for b in range(8, 16)}),
    )
    kinds = {kind for kind, _ in found(done.diagnosis.findings)}
    assert kinds == {"link"}
    assert all({"n0", "n1"} <= {*one.nodes} for one in done.diagnosis.findings)


def test_only_an_expected_value_tells_that_all_are_slow() -> None:
    slow = Faults(everywhere=0.8)
    assert simulate(plan_of(16), slow).diagnosis.findings == ()
    (finding,) = simulate(plan_of(16, expected=100.0), slow).diagnosis.findings
    assert (finding.kind, finding.usual) == ("everywhere", 100.0)
    assert finding.value == pytest.approx(80.0)
    assert simulate(plan_of(16, expected=100.0)).diagnosis.findings == ()


def test_if_every_group_fails_no_node_is_blamed() -> None:
    (finding,) = simulate(plan_of(8), Faults(everywhere=0.0)).diagnosis.findings
    assert finding.kind == "everywhere"
    assert finding.problem


def test_a_fault_of_one_path_is_searched_on_each() -> None:
    nodes = tuple(f"n{number}" for number in range(8))
    plan = SearchPlan(nodes, paths=("all", "network"))
    done = simulate(plan, Faults(nodes={"n3": 0.5}))
    assert [(one.path, one.nodes) for one in done.diagnosis.findings] == [
        ("all", ("n3",)),
        ("network", ("n3",)),
    ]
    assert {test.path for test in done.rounds[-1]} == {"network"}


def test_a_slow_domain_is_filled_up_with_its_own_nodes() -> None:
    """Groups across domains are slower by design, and would hide a fault within one."""
    plan = plan_of(72, 18)

    def answer(test: GroupTest, number: int) -> Outcome:
        across = len({plan.switches[node] for node in test.nodes}) > 1
        return Outcome(200.0 if across else 450.0 if "n3" in test.nodes else 900.0)

    diagnosis, history = run(plan, answer)
    assert found(diagnosis.findings) == {("node", ("n3",))}
    bisected = [test for tests in history for test, _ in tests if test.stage == "bisect"]
    assert bisected
    assert all({plan.switches[node] for node in test.nodes} == {"leaf0"} for test in bisected)


@pytest.mark.parametrize("fault", [Faults(), Faults(nodes={"n5": 0.7}), Faults(nodes={"n1": 0.0})])
@pytest.mark.parametrize("count", [5, 16, 17, 64])
def test_groups_of_a_round_are_disjoint_and_equal(count: int, fault: Faults) -> None:
    plan = plan_of(count)
    for tests in simulate(plan, fault).rounds:
        members = Counter(node for test in tests for node in test.nodes)
        assert set(members.values()) == {1}
        assert {len(test.nodes) for test in tests} == {plan.size}


def test_a_suspect_is_confirmed_with_other_good_nodes() -> None:
    rounds = simulate(plan_of(64), Faults(nodes={"n9": 0.5})).rounds
    *_, (last,), (confirm,) = [[t for t in tests if "n9" in t.nodes] for tests in rounds]
    assert (last.stage, confirm.stage) == ("bisect", "confirm")
    assert set(last.nodes) & set(confirm.nodes) == {"n9"}


def test_the_next_round_follows_from_the_rounds_before() -> None:
    plan = plan_of(16)
    diagnosis, history = run(
        plan, lambda test, number: Outcome(50.0 if "n6" in test.nodes else 100.0)
    )
    assert found(diagnosis.findings) == {("node", ("n6",))}
    again = [strategy.next_round(plan, history[:number]) for number in range(len(history))]
    assert [[test for test, _ in done] for done in history] == again
    assert len(history) == 6


@pytest.mark.parametrize(("spread", "most"), [(0.01, 0), (0.02, 0), (0.05, 1)])
def test_no_healthy_node_is_blamed_in_fifty_noisy_diagnoses(spread: float, most: int) -> None:
    blamed = [
        found(simulate(plan_of(32), None, spread, seed).diagnosis.findings) for seed in range(50)
    ]
    assert sum(map(bool, blamed)) <= most


@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_a_bad_node_is_found_among_noisy_ones(spread: float) -> None:
    for seed in range(30):
        done = simulate(plan_of(32), Faults(nodes={"n7": 0.75}), spread, seed)
        assert found(done.diagnosis.findings) == {("node", ("n7",))}


def test_noise_repeats_the_tests() -> None:
    quiet, noisy = (len(simulate(plan_of(64), None, spread).rounds) for spread in (0.001, 0.05))
    assert (quiet, noisy) == (2, 2 * strategy.REPEATS)


def test_a_failure_that_does_not_come_back_blames_nobody() -> None:
    plan = plan_of(16)

    def answer(test: GroupTest, number: int) -> Outcome:
        hangs = number == 0 and "n6" in test.nodes
        return Outcome(None, "it did not end") if hangs else Outcome(100.0)

    (finding,) = run(plan, answer)[0].findings
    assert (finding.kind, finding.confirmed) == ("group", False)
    assert "n6" in finding.nodes


def test_a_node_that_fails_is_found_although_all_others_are_slow_across_their_groups() -> None:
    def answer(test: GroupTest, _: int) -> Outcome:
        if "n2" in test.nodes:
            return Outcome(None, "n2: no such interface")
        return Outcome(50.0 if test.stage == "across" else 100.0)

    diagnosis, _ = run(plan_of(6), answer)
    failing = [finding for finding in diagnosis.findings if finding.problem]
    assert found(failing) == {("node", ("n2",))}


def test_the_usual_value_is_that_of_the_faster_half() -> None:
    assert strategy.usual_of([]) is None
    assert strategy.usual_of([50.0, 100.0, 50.0, 99.0]) == 99.0
    assert strategy.usual_of([50.0, 100.0, 51.0]) == 100.0
    values = [float(number) for number in range(1, 100)]
    assert strategy.usual_of(values) == 50.0
    assert all(a <= b for a, b in pairwise([strategy.usual_of(values, s) for s in (0.5, 0.3)]))  # type: ignore[operator]
