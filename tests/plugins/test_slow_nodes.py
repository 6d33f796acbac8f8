# SPDX-License-Identifier: Apache-2.0
"""The statistics that blame nodes for slow runs: exact chances, days, simulated months."""

import importlib.util
import itertools
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmb_nodes import history, slow_nodes
from llmb_nodes.past_runs import MeasuredRun, measured, observations
from llmb_nodes.slow_nodes import Observation
from llmb_nodes.suspects import from_runs

ROOT = Path(__file__).resolve().parents[2]


def day(name: str, *runs: tuple[str, float], time: float = 0.0) -> list[Observation]:
    """A day's observations of nodes, written ``a b c``, with their speeds."""
    return [
        Observation(day=name, nodes=frozenset(nodes.split()), speed=speed, time=time)
        for nodes, speed in runs
    ]


def days(count: int, *runs: tuple[str, float], first: int = 0) -> list[Observation]:
    """Equal days, one after the other."""
    numbers = range(first, first + count)
    return [each for number in numbers for each in day(str(number), *runs, time=number)]


def named(runs: Iterable[Observation]) -> list[tuple[str, ...]]:
    return [found.nodes for found in slow_nodes.find(list(runs))]


def a_result(run: str = "r1", **changes: Any) -> dict[str, Any]:
    """A measured result, as `results --format json` has it, as far as it is read."""
    figure = {"mean": 2.0, "better": "lower"}
    return {
        "run": run,
        "status": "Success",
        "invalid": [],
        "headline": "step_time",
        "metrics": {"step_time": figure},
        "configuration": {"scale": 16},
        "window": "11-44",
        "log": {"hosts": ["n1", "n2"]},
        **changes,
    }


def a_run(name: str = "r1", workload: str = "pretrain_nemotron4") -> Any:
    job, launch = SimpleNamespace(workload=workload), SimpleNamespace(nodes=2)
    return SimpleNamespace(id=name, job=job, launch=launch, place="/nowhere", submitted_at=0.0)


def test_only_trusted_runs_whose_nodes_are_all_known_are_evidence() -> None:
    (run,) = measured([a_run()], [a_result()])
    assert (run.id, sorted(run.nodes), run.gpus, run.speed) == ("r1", ["n1", "n2"], 16, 0.5)
    untrusted: list[dict[str, Any]] = [
        {"run": "of another folder"},
        {"status": "Failed"},  # it may have been slow before it failed
        {"invalid": ["the loss is not a number"]},
        {"metrics": {}},
        {"metrics": None},
        {"metrics": {"step_time": {"mean": 0.0, "better": "lower"}}},
        {"configuration": None},
        {"log": {"hosts": ["n1"]}},
        {"log": {"hosts": None}},
        {"log": None},
    ]
    for changes in untrusted:
        assert measured([a_run()], [a_result(**changes)]) == []
    # a check of nodes measures other things on each of them
    assert measured([a_run(workload="node_check")], [a_result()]) == []


def test_a_month_before_the_newest_measured_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def nodes_of_job(run: Any) -> str:
        asked.append(run.id)
        return "n[1-2]"

    monkeypatch.setattr(history, "nodes_of_job", nodes_of_job)
    days_ago = {"failed": 0, "newest": 1, "month": 31, "older": 31.1, "oldest": 300}
    runs = [a_run(name) for name in days_ago]
    for run in runs:
        run.submitted_at = (400 - days_ago[run.id]) * 86400.0
    rows = [
        a_result(run.id, **({"status": "Failed"} if run.id == "failed" else {})) for run in runs
    ]
    assert [run.id for run in measured(runs, rows[::-1])] == ["newest", "month"]
    assert asked == ["newest", "month"]  # no file of an older run is read


def test_the_chance_is_that_of_all_ways_to_choose_the_slow_runs() -> None:
    units = [
        (frozenset({"a"} if number < 3 else {"b"}), number in (0, 1, 5)) for number in range(7)
    ]
    ways = list(itertools.combinations(range(7), 3))
    as_many = sum(len({0, 1, 2} & set(slow)) >= 2 for slow in ways)
    assert slow_nodes.p_value("a", [units]) == pytest.approx(as_many / len(ways))
    other = [(frozenset({"a"}), True), (frozenset({"b"}), False)]
    # Both strata: 3 hits of the first, or 2 and the hit of the second.
    three = sum(len({0, 1, 2} & set(slow)) >= 3 for slow in ways)
    expected = three / len(ways) + (as_many - three) / len(ways) / 2
    assert slow_nodes.p_value("a", [units, other]) == pytest.approx(expected)


ROUND = (("a b", 0.90), ("c d", 1.0), ("e f", 1.0), ("g h", 1.0))
SHUFFLED = (("a h", 0.90), ("c b", 1.0), ("e d", 1.0), ("g f", 1.0))


def test_a_node_is_blamed_and_not_those_that_ran_with_it() -> None:
    runs = days(4, *ROUND) + days(4, *SHUFFLED, first=4)
    (found,) = slow_nodes.find(runs)
    assert (found.nodes, found.total, found.slow, found.total_without, found.slow_without) == (
        ("a",),
        8,
        8,
        24,
        0,
    )
    assert found.loss == pytest.approx(0.1)
    assert found.chance == pytest.approx(8 * 0.25**8)


def test_the_lost_speed_is_shown_as_gpus_of_the_newest_slow_run() -> None:
    runs = days(4, *ROUND) + days(4, *SHUFFLED, first=4)
    large = [replace(run, gpus=512 if run.time == 7 else 64) for run in runs]
    (evidence,) = from_runs(large).values()
    assert evidence.loss == "51 of 512 GPUs lost"
    (evidence,) = from_runs([replace(run, gpus=4) for run in runs]).values()
    assert evidence.loss == "10 % of the speed lost"


def test_nodes_that_ran_only_together_are_named_together() -> None:
    assert named(days(6, *ROUND)) == [("a", "b")]


def test_a_companion_of_a_repaired_node_needs_evidence_of_its_own() -> None:
    """With x, y is in all slow runs, but alone its chance is above 1 %, and x is fast again."""
    beside = [
        (("x y n6", 0.9), ("n1 n5 n9", 1.0), ("n0 n4 n7", 0.9)),
        (("x y n6", 0.9), ("n0 n2 n9", 1.0)),
        (("x y n5", 0.9), ("n0 n1 n2", 1.0)),
        (("x y n1", 0.9), ("n0 n2 n7", 1.0), ("n6 n8 n9", 1.0)),
        (("x y n4", 0.9), ("n1 n5 n7", 1.0), ("n0 n3 n8", 1.0)),
        (("x y n0", 0.9), ("n5 n6 n9", 1.0), ("n2 n3 n4", 1.0)),
        (("x y n3", 0.9), ("n0 n1 n8", 1.0)),
        (("x y n7", 0.9), ("n4 n5 n8", 1.0), ("n1 n6 n9", 1.0)),
    ]
    runs = [
        run
        for number, of_day in enumerate(beside)
        for run in day(str(number), *of_day, time=number)
    ]
    fast_y, fast_x = day("7", ("y n2 n3", 1.0), time=6.5), day("8", ("x n0 n5", 1.0), time=8.0)
    assert named([*runs, *fast_y, *fast_x]) == []


def test_few_fast_runs_among_many_slow_ones_clear_no_node() -> None:
    fast = day("0", *[("a", 1.0)] * slow_nodes.FAST_WITHOUT)
    assert slow_nodes._cleared(fast) == {"a"}
    assert slow_nodes._cleared([*fast, *day("1", *[("a", 0.9)] * 12)]) == set()


def test_many_nodes_that_ran_only_together_are_not_blamed() -> None:
    five = (("a b c d e", 0.9), ("f g h i j", 1.0), ("k l m n o", 1.0), ("p q r s t", 1.0))
    assert named(days(9, *five)) == []


def test_two_slow_nodes_are_both_found() -> None:
    first, second = (("a b", 0.9), ("c d", 0.8)), (("a d", 0.9), ("c b", 0.8))
    rest = (("e f", 1.0), ("g h", 1.0), ("i j", 1.0), ("k l", 1.0))
    runs = days(6, *first, *rest) + days(6, *second, *rest, first=6)
    assert set(named(runs)) == {("a",), ("c",)}


def test_a_few_slow_runs_may_be_chance() -> None:
    assert named(days(2, *ROUND) + days(1, *SHUFFLED, first=2)) == []


@pytest.mark.parametrize(("speed", "blamed"), [(0.97, False), (0.96, True)])
def test_a_small_loss_is_no_slow_run(speed: float, blamed: bool) -> None:
    runs = days(5, ("a b", speed), *ROUND[1:]) + days(5, ("a h", speed), *SHUFFLED[1:], first=5)
    assert bool(named(runs)) == blamed


def test_slow_days_blame_no_node_that_ran_often_on_them() -> None:
    fast = (("a b", 1.0), ("c d", 1.0), ("e f", 1.0), ("g h", 1.0))
    slow = day("slow", *((f"a x{number}", 0.8) for number in range(20)), time=99)
    assert named(days(12, *fast) + slow) == []


def test_a_node_is_found_by_days_on_which_all_runs_have_it() -> None:
    runs = [
        each
        for number in range(24)
        for each in day(
            str(number),
            (
                f"{'a' if number % 4 == 0 else 'b'} {'cdefg'[number % 5]}",
                0.9 if number % 4 == 0 else 1.0,
            ),
            time=number,
        )
    ]
    assert named(runs[:-1]) == [("a",)]


def test_a_fast_run_after_all_slow_ones_acquits() -> None:
    runs = days(4, *ROUND) + days(4, *SHUFFLED, first=4)
    assert named([*runs, *day("9", ("a c", 1.0), time=9.0)]) == []


def test_repeats_of_a_day_on_the_same_nodes_are_one_observation() -> None:
    def runs(count: int, speed: float, nodes: str, configuration: str) -> list[MeasuredRun]:
        one = MeasuredRun(
            id="r",
            time=0.0,
            nodes=frozenset(nodes.split()),
            gpus=16,
            configuration=configuration,
            speed=speed,
        )
        return [one] * count

    found = observations(
        [
            *runs(5, 9.0, "a b", "x"),
            *runs(1, 80.0, "a b", "y"),
            *runs(8, 10.0, "c d", "x"),
            *runs(2, 100.0, "c d", "y"),
        ]
    )
    assert sorted((sorted(each.nodes), each.speed, len(each.runs)) for each in found) == [
        (["a", "b"], 0.9, 6),
        (["c", "d"], 1.0, 10),
    ]


def third_node_days(count: int) -> list[Observation]:
    """Days on which x is slow with y and a third node, and the other nodes are fast without x."""
    with_x = [(f"x y z{number}", 0.9) for number in range(5)]
    return days(count, *with_x, ("z2 z3 z4", 1.0), ("y z0 z1", 1.0))


def test_a_fast_run_of_a_node_does_not_acquit_the_one_that_ran_with_it() -> None:
    runs = third_node_days(6)
    # after the newest run of x, which is slow
    assert named([*runs, *day("5", ("y z0 z1", 1.0), time=9.0)]) == [("x",)]
    assert named(runs) == [("x",)]


def test_of_two_nodes_that_ran_together_the_one_with_a_fast_run_since_is_acquitted() -> None:
    since = [*day("10", ("a c", 0.9), time=10.0), *day("10", ("b d", 1.0), time=11.0)]
    (found,) = slow_nodes.find([*days(10, *ROUND), *since])
    assert (found.nodes, found.total, found.slow) == (("a",), 11, 11)


def test_a_node_that_is_fast_without_the_slow_one_is_distinguishable() -> None:
    fast_without = days(3, ("b c", 1.0), ("e f", 1.0), ("g h", 1.0))
    assert named(fast_without + days(12, *ROUND, first=3)) == [("a",)]


def test_the_slow_node_is_found_if_another_node_is_in_all_runs() -> None:
    with_bad = [(f"bad head n{number}", 0.9) for number in range(5)]
    (found,) = slow_nodes.find(days(8, *with_bad, ("head n0 n1", 1.0)))
    assert found.nodes == ("bad",)
    assert found.loss == pytest.approx(0.1)


def test_the_loss_is_that_against_the_usual_speed_if_every_run_has_a_suspect() -> None:
    others = itertools.combinations(range(15), 2)
    slow = [(f"x y n{first} n{second}", 0.9) for first, second in others]
    # y is fast too seldom to be distinguished from x
    runs = [*days(2, *slow, ("y n0 n1 n2", 1.0)), *day("2", *slow, time=2.0)]
    (found,) = slow_nodes.find(runs)
    assert (found.nodes, found.total_without) == (("x", "y"), 0)
    assert found.loss == pytest.approx(0.1)


def of_configuration(name: str, day_number: float, nodes: str, speed: float) -> MeasuredRun:
    """A run with a speed of any unit, as its configuration has it."""
    return MeasuredRun(
        id="r",
        time=1.7e9 + day_number * 86400.0,
        nodes=frozenset(nodes.split()),
        gpus=16,
        configuration=name,
        speed=speed,
    )


def slow_with_a(configuration: str, first: int, count: int) -> list[MeasuredRun]:
    """Runs of days, slow by 10 % if they have the node ``a``, which has each partner in turn."""
    others = "bcdefgh"
    runs = []
    for number in range(first, first + count):
        turn = others[number % 7 :] + others[: number % 7]
        for pair, speed in ((f"a {turn[0]}", 9.0), (turn[1:3], 10.0), (turn[3:5], 10.0)):
            nodes = pair if " " in pair else " ".join(pair)
            runs.append(of_configuration(configuration, number, nodes, speed))
    return runs


@pytest.mark.parametrize("nodes", ["a b", "a h"])
def test_the_only_run_of_a_configuration_acquits_no_node(nodes: str) -> None:
    runs = slow_with_a("usual", 0, 10)
    assert named(observations(runs)) == [("a",)]
    assert named(observations([*runs, of_configuration("once", 10, nodes, 0.9)])) == [("a",)]
    same_nodes = [of_configuration("twice", 10.0 + later, nodes, 0.9) for later in (0.0, 1.0)]
    assert named(observations(runs + same_nodes)) == [("a",)]


def test_runs_that_all_have_the_slow_node_do_not_acquit_it() -> None:
    runs = slow_with_a("usual", 0, 10)
    with_a = [of_configuration("new", 10, f"a {other}", 0.9) for other in "bcdefgh"]
    assert named(observations(runs + with_a)) == [("a",)]


def test_the_first_night_of_new_software_acquits_no_node() -> None:
    night = [
        of_configuration(f"new {number}", 10, nodes, 0.9 if "a" in nodes else 1.0)
        for number, nodes in enumerate(("a b", "c d", "e f"))
    ]
    assert named(observations(slow_with_a("old", 0, 10) + night)) == [("a",)]


def test_a_fast_run_beside_other_nodes_in_the_new_software_acquits_still() -> None:
    night = [of_configuration("new", 10, nodes, 1.0) for nodes in ("a b", "c d", "e f")]
    assert named(observations(slow_with_a("old", 0, 10) + night)) == []


def test_configurations_that_keep_their_nodes_accuse_nobody() -> None:
    runs = [
        of_configuration(nodes, number, nodes, 9.0 if number > 4 else 10.0)
        for number in range(20)
        for nodes in ("a b", "c d", "e f")
    ]
    assert named(observations(runs)) == []


def test_a_run_that_says_nothing_hides_no_slow_run_of_its_day() -> None:
    runs = slow_with_a("usual", 0, 10)
    once = [
        of_configuration(f"once {number} {again}", number, " ".join(sorted(run.nodes)), 0.9)
        for number, run in enumerate(runs[::3])
        for again in range(3)
    ]
    (found,) = slow_nodes.find(observations(runs + once))
    assert (found.nodes, found.total, found.slow) == (("a",), 10, 10)


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulation", ROOT / "benchmarks/suspects.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulation"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("place", ["any nodes", "neighbours", "the same all day"])
@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_no_healthy_node_is_blamed_in_simulated_months(
    simulation: ModuleType, place: str, spread: float
) -> None:
    counts = simulation.outcomes(30, place, spread)
    assert counts["healthy"] == 0
    assert counts["wrong"] <= 1
    if place == "any nodes":
        assert counts["alone"] >= 20
