# SPDX-License-Identifier: Apache-2.0
"""Tests of the causes of verdicts: what differs from the runs that pass is named, and nothing
else.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.samples import (
    Environment,
    MeasuredClock,
    Node,
    Samples,
    Straggler,
    Telemetry,
)
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.judge.correctness import speed_word
from llmb.judge.judge import judge
from llmb.judge.value import FAIL, INCONCLUSIVE, INVALID, PASS, SUSPICIOUS
from llmb.judge.verdict_causes import with_causes
from llmb.measure.columns import csv_rows, report
from llmb.measure.facts import NETWORK, NODE, STRAGGLER, LogFacts, facts_of
from llmb.measure.result import FAILED, SUCCESS, MetricVerdict, Result, Verdict
from llmb.measure.uneven import DRIVER, ECC, POWER_LIMIT, SLOWED, SM_CLOCK, Uneven, uneven_nodes
from llmb.plan.published import Figure
from llmb.show.results_table import table_of
from llmb_testing.results import result_of

GOOD = LogFacts(
    networks=("IB",),
    nccl_version="2.26.3",
    nodes=2,
    hosts=("n1", "n2"),
    drivers=("570.86",),
    gpu_models=("H100",),
    max_sm_clock_mhz=1980.0,
    sm_clock_mhz=1980.0,
    slowed_by=(),
    ecc_uncorrected=0,
    power_limit_w=700.0,
)
FIGURES = tuple(
    Figure(
        release="25.05",
        source="a table",
        window=Window(11, 44),
        steps=50,
        workload="w",
        model_size="15b",
        dtype="bf16",
        gpu_type=gpu_type,
        scale=scale,
        gbs=64,
        seq_length=4096,
        num_layers=32,
        value=2.0,
    )
    for scale in (16, 32, 64)
    for gpu_type in ("h100", "h200")
)


def run(
    name: str,
    seconds: float = 2.0,
    scale: int = 16,
    gpu_type: str = "h100",
    gpus_per_node: int = 8,
    **facts: Any,
) -> Result:
    """A run whose published step time is 2 s."""
    configuration = Settings(
        framework="nemo",
        workload="w",
        model_size="15b",
        dtype="bf16",
        gpu_type=gpu_type,
        scale=scale,
        gbs=64,
        seq_length=4096,
        num_layers=32,
        gpus_per_node=gpus_per_node,
    )
    return result_of(
        {
            "experiment": f"w_15b_gpus{scale}",
            "path": f"/x/{name}",
            "run": name,
            "status": SUCCESS,
            "window": Window(11, 44),
            "max_iteration": 49,
            "steps": 50,
            "time_mean_seconds": seconds,
            "configuration": configuration,
            "log": replace(GOOD, **facts),
        }
    )


def causes(*runs: Result, known: tuple[Result, ...] = ()) -> dict[str, list[tuple[str, str, str]]]:
    """Condition, value and usual value of each cause, by run; runs without one are omitted."""
    found = with_causes(judge(runs, FIGURES), judge(known, FIGURES))
    return {
        one.identity.name: [
            (cause.condition, cause.value, cause.usual) for cause in one.verdict.causes
        ]
        for one in found
        if one.verdict.causes
    }


PASSING = (run("good1"), run("good2", scale=64, hosts=("n3", "n4")))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"sm_clock_mhz": 1395.0}, (SM_CLOCK, "1395 MHz", "1980 MHz")),
        ({"slowed_by": ("heat (driver)",)}, (SLOWED, "heat (driver)", "nothing")),
        ({"ecc_uncorrected": 2}, (ECC, "2", "0")),
        ({"power_limit_w": 500.0}, (POWER_LIMIT, "500 W", "700 W")),
        ({"drivers": ("535.1",)}, (DRIVER, "535.1", "570.86")),
        ({"hosts": ("n1", "n9")}, (NODE, "n9", "")),
    ],
)
def test_what_differs_from_the_runs_that_pass_is_the_cause(
    facts: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert causes(*PASSING, run("slow", 2.3, 32, **facts)) == {"slow": [expected]}


def test_nothing_is_named_that_good_runs_have_too() -> None:
    assert causes(*PASSING, run("slow", 2.3, 32)) == {}
    low = run("low", scale=64, sm_clock_mhz=1395.0, hosts=("n3", "n4"))
    assert causes(PASSING[0], low, run("slow", 2.3, 32, sm_clock_mhz=1395.0)) == {}
    # as far apart as the clocks of healthy GPUs
    assert causes(*PASSING, run("slow", 2.3, 32, sm_clock_mhz=1920.0)) == {}
    assert causes(*PASSING, run("slow", 2.3, 32, sm_clock_mhz=None, hosts=())) == {}


def test_a_faster_clock_does_not_explain_a_slow_run_but_a_fast_one() -> None:
    assert causes(*PASSING, run("slow", 2.3, 32, sm_clock_mhz=2100.0)) == {}
    fast = causes(*PASSING, run("fast", 1.8, 32, sm_clock_mhz=2100.0))
    assert fast == {"fast": [(SM_CLOCK, "2100 MHz", "1980 MHz")]}
    assert causes(*PASSING, run("fast", 1.8, 32, sm_clock_mhz=1395.0)) == {}
    hot = run("fast", 1.8, 32, slowed_by=("heat (driver)",), ecc_uncorrected=1)
    assert causes(*PASSING, hot) == {}


def test_a_gpu_type_is_compared_with_itself() -> None:
    assert causes(*PASSING, run("slow", 2.3, 32, "h200", sm_clock_mhz=1395.0)) == {}


def test_tcp_is_the_cause_between_nodes_alone() -> None:
    one_node = run("within", 2.3, 32, gpus_per_node=32, networks=("Socket",), nodes=1)
    assert causes(*PASSING, one_node) == {}
    over_tcp = run("tcp", 2.3, 32, networks=("Socket",))
    assert causes(*PASSING, over_tcp) == {"tcp": [(NETWORK, "Socket", "IB")]}
    invalid = replace(over_tcp, metrics=replace(over_tcp.metrics, invalid=("ran over TCP",)))
    (found,) = [
        one
        for one in with_causes(judge((*PASSING, invalid), FIGURES))
        if one.identity.name == "tcp"
    ]
    assert (found.verdict.word, [cause.condition for cause in found.verdict.causes]) == (
        INVALID,
        [NETWORK],
    )
    assert "TCP" in found.verdict.causes[0].text


def test_an_invalid_run_differs_in_its_network_alone() -> None:
    over_tcp = run("tcp", 2.3, 32, networks=("Socket",), drivers=("535.1",))
    invalid = replace(over_tcp, metrics=replace(over_tcp.metrics, invalid=("ran over TCP",)))
    assert causes(*PASSING, invalid) == {"tcp": [(NETWORK, "Socket", "IB")]}


def test_a_condition_of_single_nodes_is_named_once() -> None:
    node = Uneven(
        condition=SM_CLOCK, value="1395 MHz", usual="1980 MHz", hosts=("n1",), nodes=1, others=1
    )
    slow = run("slow", 2.3, 32, sm_clock_mhz=1395.0, uneven=(node,))
    assert causes(*PASSING, slow) == {"slow": [(SM_CLOCK, "1395 MHz", "1980 MHz")]}


def test_runs_without_a_log_or_a_measurement_are_not_compared_with() -> None:
    bare = replace(run("bare"), log=None)
    slow = run("slow", 2.3, 32, sm_clock_mhz=1395.0)
    assert causes(*PASSING, bare, slow) == {"slow": [(SM_CLOCK, "1395 MHz", "1980 MHz")]}
    others = [run(name, scale=64, drivers=("535.1",)) for name in "ab"]
    failed = [replace(other, status=FAILED) for other in others]
    invalid = [
        replace(other, metrics=replace(other.metrics, invalid=("profiled",))) for other in others
    ]
    for useless in (failed, invalid):
        assert causes(*useless, run("slow", 2.3, 32)) == {}


def test_a_run_that_is_too_fast_is_no_slow_run_of_its_node() -> None:
    fast = run("fast", 1.8, 64, hosts=("n1", "n9"))
    slow = run("slow", 2.3, 32, hosts=("n1", "n9"))
    found = with_causes(judge((PASSING[0], fast, slow), FIGURES))[-1]
    assert [cause.text for cause in found.verdict.causes] == [
        "node n9 in this run and in no run that passes"
    ]


@pytest.mark.parametrize(
    ("name", "word"), [("loss", FAIL), ("peak_memory", FAIL), ("peak_memory", SUSPICIOUS)]
)
def test_a_wrong_loss_or_memory_has_no_cause_and_is_no_slow_run(name: str, word: str) -> None:
    judged = judge(
        (
            PASSING[0],
            run("wrong", 1.99, 64, sm_clock_mhz=1395.0, hosts=("n1", "n9")),
            run("slow", 2.3, 32, hosts=("n1", "n9")),
        ),
        FIGURES,
    )
    wrong = judged[1].verdict
    fault = MetricVerdict(word=word, reason=f"wrong {name}", repeats=1)
    metrics = {**wrong.metrics, name: fault}
    judged[1] = replace(judged[1], verdict=replace(wrong, word=word, metrics=metrics))
    *_, of_wrong, of_slow = (result.verdict.causes for result in with_causes(judged))
    assert of_wrong == ()
    assert [cause.text for cause in of_slow] == ["node n9 in this run and in no run that passes"]


def test_a_wrong_loss_of_a_run_that_is_too_fast_is_no_fault_of_its_node() -> None:
    judged = judge((PASSING[0], run("wrong", 1.5, 64, hosts=("n1", "n9"))), FIGURES)
    too_fast = judged[1].verdict
    assert too_fast.word == SUSPICIOUS
    metrics = {**too_fast.metrics, "loss": MetricVerdict(word=FAIL, reason="wrong", repeats=1)}
    judged[1] = replace(judged[1], verdict=replace(too_fast, word=FAIL, metrics=metrics))
    assert with_causes(judged)[1].verdict.causes == ()


def test_a_wrong_loss_alone_says_nothing_of_the_speed() -> None:
    metrics = {"loss": MetricVerdict(word=FAIL, reason="wrong", repeats=1)}
    assert speed_word(Verdict(word=FAIL, metrics=metrics)) is None


def test_one_of_several_repeats_is_named() -> None:
    repeats = [run("r1", 2.0, 32), run("r2", 2.01, 32), run("r3", 2.4, 32, sm_clock_mhz=1395.0)]
    found = with_causes(judge((*PASSING, *repeats), FIGURES))
    assert {one.verdict.word for one in found[2:]} == {INCONCLUSIVE}
    (cause,) = found[2].verdict.causes
    assert (cause.runs, cause.condition) == (("r3",), SM_CLOCK)
    assert found[3].verdict.causes == found[4].verdict.causes == (cause,)


def test_where_no_run_passes_all_others_are_compared_with() -> None:
    slow, other = run("slow", 2.3, 32, sm_clock_mhz=1395.0), run("other", 2.2, 64)
    assert causes(slow, other) == {"slow": [(SM_CLOCK, "1395 MHz", "1980 MHz")]}
    driver = run("driver", 2.3, 32, drivers=("535.1",))
    assert causes(driver, other) == {}  # which of two is unusual, nobody knows
    assert causes(driver, other, run("third", 2.2, 16)) == {"driver": [(DRIVER, "535.1", "570.86")]}


def test_runs_known_from_before_are_compared_with_too() -> None:
    slow = run("slow", 2.3, 32, sm_clock_mhz=1395.0)
    assert causes(slow) == {}
    assert causes(slow, known=PASSING) == {"slow": [(SM_CLOCK, "1395 MHz", "1980 MHz")]}


def sampled(host: str, clock: float = 1980.0, **telemetry: Any) -> Node:
    measured = Telemetry(sm_clock_mhz=MeasuredClock(median=clock, p5=clock), **telemetry)
    return Node(host=host, driver="570", max_sm_clock_mhz=1980.0, telemetry=measured)


def differences(nodes: Iterable[Node]) -> list[tuple[str, str, str, tuple[str, ...], int, int]]:
    return [
        (own.condition, own.value, own.usual, own.hosts, own.nodes, own.others)
        for own in uneven_nodes([*nodes])
    ]


def test_nodes_of_one_run_that_differ_need_no_other_run() -> None:
    nodes = [sampled(f"n{i}", 1395.0 if i == 3 else 1980.0) for i in range(8)]
    facts = facts_of(Samples(environment=Environment(described=tuple(nodes))))
    assert (facts.sm_clock_mhz, facts.max_sm_clock_mhz) == (1395.0, 1980.0)
    assert differences(nodes) == [(SM_CLOCK, "1395 MHz", "1980 MHz", ("n3",), 1, 7)]
    slow = replace(run("slow", 2.3, 32), log=facts)
    (found,) = with_causes(judge([slow], FIGURES))
    (cause,) = found.verdict.causes
    assert (cause.condition, cause.nodes, cause.runs) == (SM_CLOCK, ("n3",), ("slow",))
    half = [sampled(f"n{i}", 1395.0 if i < 2 else 1980.0) for i in range(4)]
    assert differences(half) == [(SM_CLOCK, "1395 MHz", "1980 MHz", ("n0", "n1"), 2, 2)]
    clocks = (1980, 1395, 1980, 1200, 1980, 1395, 1980, 1980)
    several = [sampled(f"n{i}", float(clock)) for i, clock in enumerate(clocks)]
    assert differences(several) == [(SM_CLOCK, "1200 MHz", "1980 MHz", ("n3", "n1", "n5"), 3, 5)]
    assert differences([Node(host="a", driver="1"), Node(host="b")]) == []


def test_what_a_board_can_reach_is_no_cause() -> None:
    """Locked clocks, heat and power caps do not change the maximum."""
    boards = [Node(host=f"n{i}", max_sm_clock_mhz=1395.0 if i else 1980.0) for i in range(8)]
    assert differences(boards) == []
    assert causes(*PASSING, run("slow", 2.3, 32, max_sm_clock_mhz=1395.0)) == {}


def test_clocks_that_differ_as_those_of_healthy_nodes_are_no_difference() -> None:
    few = [sampled(f"n{i}", clock) for i, clock in enumerate((1980.0, 1920.0))]
    assert differences(few) == []
    # at their power limit, all of them deviate by several percent
    spread = [sampled(f"n{i}", 1500.0 + 15 * (i % 11)) for i in range(32)]
    assert differences(spread) == []
    assert len(differences([*spread, sampled("n99", 1005.0)])) == 1


def test_a_reason_for_low_clocks_is_named_if_the_other_nodes_do_not_have_it() -> None:
    capped = [sampled(f"n{i}", throttle={"sw_power_cap": 0.9}) for i in range(8)]
    assert differences(capped) == []  # what training does to a GPU
    one = [*capped[1:], sampled("n0", throttle={"sw_power_cap": 1.0, "sw_thermal": 0.62})]
    value = "heat (driver) 62 % of the time"
    assert differences(one) == [(SLOWED, value, "0 %", ("n0",), 1, 7)]
    cold = [sampled(f"n{i}", throttle={}) for i in range(3)]
    capped_alone = [sampled("n9", throttle={"sw_power_cap": 0.9}), *cold]
    value = "the power cap 90 % of the time"
    assert differences(capped_alone) == [(SLOWED, value, "0 %", ("n9",), 1, 3)]
    both = [sampled("n9", throttle={"hw_slowdown": 1.0, "hw_thermal": 1.0}), *cold]
    assert [own[1] for own in differences(both)] == ["heat (hardware) 100 % of the time"]


def test_between_runs_a_power_cap_is_no_reason() -> None:
    throttle = {"sw_power_cap": 1.0, "hw_power_brake": 0.3, "sw_thermal": 0.01}
    nodes = (sampled("n0", throttle=throttle), sampled("n1", throttle=throttle))
    facts = facts_of(Samples(environment=Environment(described=nodes)))
    assert facts.slowed_by == ("the power brake",)
    assert facts_of(Samples(environment=Environment(described=(Node(host="n"),)))).slowed_by is None


def test_new_errors_of_a_node_are_named() -> None:
    nodes = [sampled(f"n{i}", ecc_uncorrected=2 * (i == 5)) for i in range(8)]
    assert differences(nodes) == [(ECC, "2", "0", ("n5",), 1, 7)]


def test_errors_of_all_nodes_make_none_of_them_differ() -> None:
    assert differences([sampled(f"n{i}", ecc_uncorrected=2) for i in range(8)]) == []


@pytest.mark.parametrize(
    ("hosts_of_slow_runs", "texts"),
    [
        ([("n1", "n9")], {"node n9 in this run and in no run that passes"}),
        ([("n1", "n9")] * 2, {"node n9 in 2 slow runs and in no run that passes"}),
    ],
)
def test_a_node_is_named_with_the_runs_that_had_it(
    hosts_of_slow_runs: list[tuple[str, ...]], texts: set[str]
) -> None:
    slow = [run(f"slow{n}", 2.3, 32, hosts=hosts) for n, hosts in enumerate(hosts_of_slow_runs)]
    found = with_causes(judge((*PASSING, *slow), FIGURES))[len(PASSING) :]
    assert {cause.text for one in found for cause in one.verdict.causes} == texts


def test_the_cause_comes_first_and_everywhere(wording: Any) -> None:
    slow = run("slow", 2.3, 32, sm_clock_mhz=1395.0, drivers=("535.1",))
    found = with_causes(judge((*PASSING, slow), FIGURES))
    own = found[-1].verdict
    assert own.word == FAIL
    assert own.reason is not None
    assert own.reason.startswith(own.causes[0].text)
    assert own.reason.endswith(own.bare_reason)
    assert own.bare_reason.startswith("0.870")
    wording("results", own.reason)
    row = report(found)["results"][-1]
    assert row["reason"] == row["verdict_reason"] == own.reason
    assert [cause["condition"] for cause in row["causes"]] == [SM_CLOCK, DRIVER]
    assert own.causes[0].text in csv_rows(found)[-1]["causes"]
    assert own.causes[0].text in table_of(found)[1][-1]["reason"]
    assert [one.verdict.causes for one in found[:2]] == [(), ()]
    assert found[0].verdict.word == PASS
    assert SUSPICIOUS not in own.reason


def test_a_rank_that_its_program_warned_of_is_a_cause_with_its_lowest_score() -> None:
    warned = Straggler(
        detector="NVRx", measure="GPU relative performance", rank=9, host="n2", flagged=True
    )
    first = run("slow1", 2.3, 32, stragglers=(replace(warned, score=0.61),))
    second = run(
        "slow2",
        2.3,
        32,
        stragglers=(replace(warned, score=0.55), replace(warned, rank=3, flagged=False)),
    )
    cause = (STRAGGLER, "0.55", "")
    assert causes(*PASSING, first, second) == {"slow1": [cause], "slow2": [cause]}
    judged = with_causes(judge([*PASSING, first, second], FIGURES), ())
    nodes = {cause.nodes for result in judged for cause in result.verdict.causes}
    assert nodes == {("n2",)}
