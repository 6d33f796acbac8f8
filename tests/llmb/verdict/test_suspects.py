# SPDX-License-Identifier: Apache-2.0
"""Tests of the causes of verdicts: what differs from the runs that pass is named, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from llmb.logs.samples import Environment, Node, Samples
from llmb.results.columns import csv_rows, from_json, report
from llmb.results.description import Configuration
from llmb.results.facts import DRIVER, NETWORK, NODE, POWER_LIMIT, SM_CLOCK, LogFacts, facts_of, uneven_nodes
from llmb.results.result import SUCCESS, Result
from llmb.results.table import table_of
from llmb.stats.measure import Window
from llmb.verdict.judge import FAIL, INCONCLUSIVE, INVALID, PASS, SUSPICIOUS, judge
from llmb.verdict.suspects import with_causes
from llmb.workload.published import Figure

GOOD = LogFacts(
    networks=("IB",),
    nccl_version="2.26.3",
    nodes=2,
    hosts=("n1", "n2"),
    drivers=("570.86",),
    gpu_models=("H100",),
    max_sm_clock_mhz=1980.0,
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
    name: str, seconds: float = 2.0, scale: int = 16, gpu_type: str = "h100", gpus_per_node: int = 8, **facts: Any
) -> Result:
    """A run whose published step time is 2 s."""
    configuration = Configuration(
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
    return from_json(
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
        one.identity.name: [(cause.condition, cause.value, cause.usual) for cause in one.verdict.causes]
        for one in found
        if one.verdict.causes
    }


PASSING = (run("good1"), run("good2", scale=64, hosts=("n3", "n4")))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"max_sm_clock_mhz": 1395.0}, (SM_CLOCK, "1395 MHz", "1980 MHz")),
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
    low = run("low", scale=64, max_sm_clock_mhz=1395.0, hosts=("n3", "n4"))
    assert causes(PASSING[0], low, run("slow", 2.3, 32, max_sm_clock_mhz=1395.0)) == {}
    assert causes(*PASSING, run("slow", 2.3, 32, max_sm_clock_mhz=1975.0)) == {}  # less than 1 % lower
    assert causes(*PASSING, run("slow", 2.3, 32, max_sm_clock_mhz=None, hosts=())) == {}


def test_a_faster_clock_does_not_explain_a_slow_run_but_a_fast_one() -> None:
    assert causes(*PASSING, run("slow", 2.3, 32, max_sm_clock_mhz=2100.0)) == {}
    fast = causes(*PASSING, run("fast", 1.8, 32, max_sm_clock_mhz=2100.0))
    assert fast == {"fast": [(SM_CLOCK, "2100 MHz", "1980 MHz")]}
    assert causes(*PASSING, run("fast", 1.8, 32, max_sm_clock_mhz=1395.0)) == {}


def test_a_gpu_type_is_compared_with_itself() -> None:
    assert causes(*PASSING, run("slow", 2.3, 32, "h200", max_sm_clock_mhz=1395.0)) == {}


def test_tcp_is_the_cause_between_nodes_alone() -> None:
    one_node = run("within", 2.3, 32, gpus_per_node=32, networks=("Socket",), nodes=1)
    assert causes(*PASSING, one_node) == {}
    over_tcp = run("tcp", 2.3, 32, networks=("Socket",))
    assert causes(*PASSING, over_tcp) == {"tcp": [(NETWORK, "Socket", "IB")]}
    invalid = replace(over_tcp, metrics=replace(over_tcp.metrics, invalid=("ran over TCP",)))
    (found,) = [one for one in with_causes(judge((*PASSING, invalid), FIGURES)) if one.identity.name == "tcp"]
    assert (found.verdict.word, [cause.condition for cause in found.verdict.causes]) == (INVALID, [NETWORK])
    assert "(TCP)" in found.verdict.causes[0].text


def test_one_of_several_repeats_is_named() -> None:
    repeats = [run("r1", 2.0, 32), run("r2", 2.01, 32), run("r3", 2.4, 32, max_sm_clock_mhz=1395.0)]
    found = with_causes(judge((*PASSING, *repeats), FIGURES))
    assert {one.verdict.word for one in found[2:]} == {INCONCLUSIVE}
    (cause,) = found[2].verdict.causes
    assert (cause.runs, cause.condition) == (("r3",), SM_CLOCK)
    assert found[3].verdict.causes == found[4].verdict.causes == (cause,)


def test_where_no_run_passes_all_others_are_compared_with() -> None:
    slow, other = run("slow", 2.3, 32, max_sm_clock_mhz=1395.0), run("other", 2.2, 64)
    assert causes(slow, other) == {"slow": [(SM_CLOCK, "1395 MHz", "1980 MHz")]}
    driver = run("driver", 2.3, 32, drivers=("535.1",))
    assert causes(driver, other) == {}  # which of two is unusual, nobody knows
    assert causes(driver, other, run("third", 2.2, 16)) == {"driver": [(DRIVER, "535.1", "570.86")]}


def test_runs_known_from_before_are_compared_with_too() -> None:
    slow = run("slow", 2.3, 32, max_sm_clock_mhz=1395.0)
    assert causes(slow) == {}
    assert causes(slow, known=PASSING) == {"slow": [(SM_CLOCK, "1395 MHz", "1980 MHz")]}


def test_nodes_of_one_run_that_differ_need_no_other_run() -> None:
    nodes = [Node(host=f"n{i}", driver="570", max_sm_clock_mhz=1395.0 if i == 3 else 1980.0) for i in range(8)]
    facts = facts_of(Samples(environment=Environment(described=tuple(nodes))))
    (uneven,) = facts.uneven
    assert (uneven.value, uneven.usual, uneven.hosts, uneven.others) == ("1395 MHz", "1980 MHz", ("n3",), 7)
    slow = replace(run("slow", 2.3, 32), log=facts)
    (found,) = with_causes(judge([slow], FIGURES))
    (cause,) = found.verdict.causes
    assert (cause.condition, cause.nodes, cause.runs) == (SM_CLOCK, ("n3",), ("slow",))
    half = [Node(host=f"n{i}", max_sm_clock_mhz=1395.0 if i < 2 else 1980.0) for i in range(4)]
    assert [(own.value, own.usual) for own in uneven_nodes(half)] == [("1395 MHz", "1980 MHz")]
    assert uneven_nodes([Node(host="a", driver="1"), Node(host="b")]) == ()
    clocks = (1980, 1395, 1980, 1200, 1980, 1395, 1980, 1980)
    several = uneven_nodes([Node(host=f"n{i}", max_sm_clock_mhz=float(clock)) for i, clock in enumerate(clocks)])
    assert [(own.value, own.usual, own.hosts, own.nodes, own.others) for own in several] == [
        ("1200 MHz", "1980 MHz", ("n3",), 1, 5),
        ("1395 MHz", "1980 MHz", ("n1", "n5"), 2, 5),
    ]


def test_the_cause_comes_first_and_everywhere(wording: Any) -> None:
    slow = run("slow", 2.3, 32, max_sm_clock_mhz=1395.0, drivers=("535.1",))
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
