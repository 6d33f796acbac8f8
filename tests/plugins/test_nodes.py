# SPDX-License-Identifier: Apache-2.0
"""Words for nodes: healthy sweeps by simulation, facts, failures, absent values, a site's file."""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmb import api
from llmb_nodes import words
from llmb_nodes.program import exchange, facts, peers
from llmb_nodes.program.measures import Bench, Rank
from llmb_nodes.row_faults import usable
from llmb_nodes.table import MEASURES, table_for

TABLE = table_for("h100", 8)
NO_LIMITS = {"facts": {}, "measures": {name: {"unit": ""} for name in MEASURES}}


def report(
    node: str,
    *rounds: Mapping[str, Any],
    local_rank: int = 0,
    facts: Mapping[str, Any] | None = None,
) -> exchange.Report:
    """The file of a rank, as the program writes it. A value that is a text is absent."""

    def outcome(value: Any) -> dict[str, Any]:
        return value if isinstance(value, dict) else {"value": value}

    return {
        "node": node,
        "local_rank": local_rank,
        "facts": {name: outcome(value) for name, value in (facts or {}).items()},
        "rounds": [{name: outcome(value) for name, value in one.items()} for one in rounds],
    }


def by_name(
    reports: list[exchange.Report],
    table: Mapping[str, Any] = TABLE,
    expected: tuple[str, ...] = (),
    ranks: int = 0,
) -> dict[str, words.NodeReport]:
    return {node.name: node for node in words.judge(reports, table, expected, "k1", ranks)}


def of_nodes(
    per_gpu: Mapping[str, Sequence[Mapping[str, Any] | None]], rounds: int = 1
) -> list[exchange.Report]:
    """The files of nodes by the outcomes of each GPU, None for one that wrote nothing."""
    return [
        report(node, *[outcomes] * rounds, local_rank=rank)
        for node, ranks in per_gpu.items()
        for rank, outcomes in enumerate(ranks)
        if outcomes is not None
    ]


def sweep(
    chance: random.Random, nodes: int, spread: float, slow: Mapping[str, float]
) -> dict[str, str]:
    """The words of one simulated check. ``slow``: the factor of some nodes.

    ``spread``: of a GPU's values from one measurement to the next. A quarter as much is what the
    GPU itself differs from others for ever: more would be a node that is slow, if only by chance.
    """
    part = spread / 4
    gpus = {
        (f"n{number}", gpu, name): chance.gauss(1, part) * slow.get(f"n{number}", 1.0)
        for number in range(nodes)
        for gpu in range(8)
        for name in MEASURES
    }

    def measure(only: Callable[[str, str], bool]) -> dict[tuple[str, int], dict[str, float]]:
        values: dict[tuple[str, int], dict[str, float]] = {}
        for (node, gpu, name), mean in gpus.items():
            if only(node, name):
                values.setdefault((node, gpu), {})[name] = 100 * chance.gauss(mean, spread)
        return values

    first = measure(lambda node, name: True)
    reports = {key: report(key[0], values, local_rank=key[1]) for key, values in first.items()}
    again = peers.flagged(exchange.values_of([*reports.values()], 0), NO_LIMITS["measures"])
    for (node, gpu), values in measure(lambda node, name: name in again.get(node, ())).items():
        one = {name: {"value": value} for name, value in values.items()}
        reports[node, gpu]["rounds"].append(one)
    return {node.name: node.word for node in words.judge([*reports.values()], NO_LIMITS)}


@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_no_healthy_node_is_blamed_in_fifty_sweeps(spread: float) -> None:
    chance = random.Random(f"healthy {spread}")
    found = Counter(word for _ in range(50) for word in sweep(chance, 32, spread, slow={}).values())
    assert found == {"OK": 50 * 32}


def test_a_slow_node_is_found_among_noisy_ones() -> None:
    chance = random.Random("slow")
    for _ in range(20):
        found = sweep(chance, 16, 0.01, slow={"n7": 0.90})
        assert [name for name, word in found.items() if word != "OK"] == ["n7"]
        assert found["n7"] == "SLOW"


def test_a_node_is_as_fast_as_its_worst_gpu() -> None:
    values = {f"n{node}": [100.0 + node / 10] * 8 for node in range(6)}
    values["n3"][5] = 80.0
    reports = [
        report(node, {"memory": value}, {"memory": value}, local_rank=gpu)
        for node, per_gpu in values.items()
        for gpu, value in enumerate(per_gpu)
    ]
    node = by_name(reports)["n3"]
    assert (node.word, node.measures["memory"].value) == ("SLOW", 80.0)
    assert node.measures["memory"].per_gpu[5] == 80.0
    assert "GPU 5" in node.reasons[0]


@pytest.mark.parametrize(("nodes", "word"), [(2, "OK"), (3, "SLOW")])
def test_of_two_nodes_none_is_the_slow_one(nodes: int, word: str) -> None:
    speeds = [50.0, *([100.0] * (nodes - 1))]
    reports = [
        report(f"n{number}", {"memory": speed}, {"memory": speed})
        for number, speed in enumerate(speeds)
    ]
    assert by_name(reports)["n0"].word == word


def test_a_confirmed_value_below_the_absolute_limit_is_a_fault_even_without_slower_peers() -> None:
    reports = [
        report(f"n{n}", {"host_to_device": 12.0}, {"host_to_device": 12.1}) for n in range(4)
    ]
    assert {node.word for node in words.judge(reports, TABLE)} == {"FAULT"}


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ([100.0] * 5, "the other 5 nodes have 100 (-50.0 %)"),
        ([100.0] * 4 + [102.0], "the median of all 6 nodes is 100 (-50.0 %)"),
        ([100.0] * 4 + [50.0], "the median of all 6 nodes is 100 (-50.0 %)"),
    ],
)
def test_a_slow_node_is_not_counted_among_those_that_have_the_usual_value(
    others: list[float], sentence: str
) -> None:
    speeds = {"slow": 50.0, **{f"n{number}": speed for number, speed in enumerate(others)}}
    reports = [report(node, {"memory": speed}, {"memory": speed}) for node, speed in speeds.items()]
    (reason,) = by_name(reports)["slow"].reasons
    assert reason == f"memory 50 GB/s, measured twice; {sentence}"


def test_a_node_that_wrote_nothing_names_the_command_for_the_log_of_its_run() -> None:
    (node,) = words.judge([], TABLE, ["n1"], "k1")
    assert node.reasons == ("the node wrote nothing; see llmb-run jobs logs k1",)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3", "exits with 3: no message"),
        ("echo bad >&2; exit 3", "exits with 3: bad"),
        ("true", "prints no value"),
        ("echo bad >&2", "prints no value, but the error bad"),
    ],
)
def test_a_command_without_a_value_says_what_was_wrong(command: str, reason: str) -> None:
    outcome = facts.ask_all({"scratch": {"ask": f"command {command}"}})["scratch"]
    assert outcome == {"absent": f"'{command}' {reason}"}


def test_a_flagged_node_that_was_not_measured_again_is_unknown() -> None:
    reports = [report(f"n{n}", {"memory": 100.0}) for n in range(5)] + [
        report("x", {"memory": 50.0})
    ]
    assert by_name(reports)["x"].word == "UNKNOWN"


def test_a_failed_measure_is_a_fault_only_beside_nodes_that_did_it() -> None:
    failed = {"fault": "CUDA error: unspecified launch failure"}
    alone = by_name([report("n1", {"memory": failed})])["n1"]
    beside = by_name([report("n1", {"memory": failed}), report("n2", {"memory": 100.0})])
    assert (alone.word, beside["n1"].word, beside["n2"].word) == ("UNKNOWN", "FAULT", "OK")
    assert "unspecified launch failure" in beside["n1"].reasons[0]


def test_a_node_that_wrote_nothing_is_unknown() -> None:
    found = by_name([report("n1", {"memory": 100.0})], expected=("n1", "n2"))
    assert (found["n1"].word, found["n2"].word) == ("OK", "UNKNOWN")


NO_TORCH = {"absent": "torch is not installed"}
MEASURED = {"matrix_product": 700.0, "memory": 3000.0, "disk": 2.0}


def test_a_node_without_measures_that_its_peers_have_is_unknown() -> None:
    without = {"matrix_product": NO_TORCH, "memory": NO_TORCH, "disk": 2.0}
    reports = of_nodes({**{name: [MEASURED] * 4 for name in "abc"}, "d": [without] * 4})
    found = by_name(reports, ranks=4)
    assert {name: found[name].word for name in "abcd"} == {
        **dict.fromkeys("abc", "OK"),
        "d": "UNKNOWN",
    }
    assert found["d"].reasons == (
        "matrix_product, memory could not be measured: torch is not installed",
    )


def test_measures_of_a_node_are_those_of_its_first_rank() -> None:
    """A site's command is one as the disk is, and its peers' values are expected of rank 0 only."""
    table = {**TABLE, "measures": {**TABLE["measures"], "own": {"command": "x", "spread": 0.1}}}
    first, other = {"disk": 2.0, "own": 5.0, "memory": 9.0}, {"memory": 9.0}
    without = {"disk": {"absent": "no space"}, "own": {"absent": "no x"}, "memory": 9.0}
    found = by_name(of_nodes({"a": [first, other], "b": [without, other]}), table, ranks=2)
    assert found["a"].word == "OK"
    assert found["b"].word == "UNKNOWN"
    assert set(found["b"].reasons) == {
        "disk could not be measured: no space",
        "own could not be measured: no x",
    }


def test_a_fact_may_differ_where_a_site_unsets_its_rule() -> None:
    facts = {"driver": {**TABLE["facts"]["driver"], "rule": {"same": False}}}
    table = {**TABLE, "facts": facts}
    reports = [report(name, facts={"driver": name}) for name in "ab"]
    reports += [report(name, facts={"driver": "a"}) for name in "cd"]
    assert {node.word for node in words.judge(reports, table)} == {"OK"}


def test_what_no_node_could_measure_leaves_all_ok() -> None:
    reports = of_nodes({name: [{"memory": NO_TORCH, "disk": 2.0}] * 2 for name in "ab"})
    assert {node.word for node in words.judge(reports, TABLE, ranks=2)} == {"OK"}


@pytest.mark.parametrize("peers", ["", "abc"])
def test_a_node_with_a_gpu_that_wrote_nothing_is_unknown(peers: str) -> None:
    ranks: list[dict[str, Any] | None] = [MEASURED] * 4
    reports = of_nodes({**dict.fromkeys(peers, ranks), "d": [*ranks[:3], None]})
    found = by_name(reports, ranks=4)
    assert {name: found[name].word for name in peers} == dict.fromkeys(peers, "OK")
    assert (found["d"].word, found["d"].reasons) == (
        "UNKNOWN",
        ("GPU 3 wrote nothing; see llmb-run jobs logs k1",),
    )
    assert found["d"].measures["memory"].per_gpu == (3000.0, 3000.0, 3000.0, None)
    assert found["d"].measures["disk"].per_gpu == (2.0,)
    alone = by_name(of_nodes({"d": [None, MEASURED, None, MEASURED]}), ranks=4)["d"]
    assert alone.reasons[0].startswith("GPUs 0, 2 wrote nothing")


@pytest.mark.parametrize("peers", ["", "abc"])
@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ({"memory": {"absent": "torch sees no GPU"}}, "torch sees no GPU"),
        ({}, "it wrote no value"),
        ({"memory": None}, "it wrote no value"),
    ],
)
def test_a_node_with_a_gpu_that_could_not_be_measured_is_unknown(
    peers: str, outcomes: dict[str, Any], reason: str
) -> None:
    one = {"memory": 3000.0}
    reports = of_nodes({**{name: [one, one] for name in peers}, "d": [one, outcomes]})
    found = by_name(reports, ranks=2)
    assert {name: found[name].word for name in peers} == dict.fromkeys(peers, "OK")
    assert found["d"].word == "UNKNOWN"
    assert found["d"].reasons == (f"memory could not be measured on GPU 1: {reason}",)


def test_a_measure_that_hung_is_the_only_reason_of_its_gpu() -> None:
    hung = {"memory": {"fault": "did not end within 60 s"}}
    both = {"memory": 3000.0, "host_to_device": 55.0}
    found = by_name(of_nodes({"a": [both, both], "b": [both, hung]}), ranks=2)
    assert found["b"].reasons == ("memory: did not end within 60 s",)


def test_a_slow_gpu_that_ended_before_the_second_measurement_is_not_acquitted() -> None:
    fast = {name: [{"memory": 100.0}] * 2 for name in "abc"}
    reports = [
        *of_nodes(fast),
        report("d", {"memory": 100.0}, {"memory": 100.0}),
        report("d", {"memory": 50.0}, local_rank=1),
    ]
    node = by_name(reports, ranks=2)["d"]
    assert (node.word, node.reasons) == (
        "UNKNOWN",
        ("memory was flagged and not measured again",),
    )


def test_the_slowest_gpu_is_named_by_its_rank_beside_gpus_without_a_file_or_value() -> None:
    good, slow = {"memory": 3000.0}, {"memory": 1000.0}
    peers_of = {name: [good] * 4 for name in "abc"}
    for ranks in ([good, None, slow, good], [None, {}, slow, good]):
        reports = [*of_nodes(peers_of), *of_nodes({"d": ranks}, rounds=2)]
        node = by_name(reports, ranks=4)["d"]
        assert node.word == "SLOW"
        assert node.reasons[0].endswith("; GPU 2 is the slowest")
        assert node.measures["memory"].per_gpu[1:3] == (None, 1000.0)
        assert len(node.measures["memory"].per_gpu) == 4


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), NO_TORCH),
        (
            ModuleNotFoundError("No module named 'numpy'", name="numpy"),
            {"fault": "No module named 'numpy'"},
        ),
        (
            ImportError("libcudnn.so.9: cannot open shared object file"),
            {"fault": "libcudnn.so.9: cannot open shared object file"},
        ),
    ],
)
def test_only_torch_that_is_missing_is_called_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: ImportError, outcome: Any
) -> None:
    class Finder:
        """Finds torch, whose import then fails."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name == "torch":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    rank = Rank(node="n1", local_rank=0, local_world=1, folder=tmp_path, seconds=0.1)
    assert Bench(rank).measure("matrix_product", {"unit": "TFLOPS"}) == outcome


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (99.96, "100"),
        (999.4, "999"),
        (999.5, "1000"),
        (999.7, "1000"),
        (1000.0, "1000"),
        (12345.6, "12346"),
    ],
)
def test_values_have_no_exponent(value: float, text: str) -> None:
    assert words.number(value) == text


def test_facts_have_rules_per_gpu_type_severities_and_fixes() -> None:
    good = {"driver": "570", "ecc_uncorrected": [0] * 8, "kernel": "6.1", "nvlinks_up": [18] * 8}
    reports = [
        report("n1", facts=good),
        report("n2", facts=good),
        report("n3", facts={**good, "driver": "550"}),
        report("n4", facts={**good, "ecc_uncorrected": [0] * 7 + [2]}),
        report("n5", facts={**good, "kernel": "6.2"}),
        report("n6", facts={**good, "nvlinks_up": [18] * 6 + [17, 18]}),
        report("n7", facts={**good, "driver": {"absent": "no NVIDIA driver"}}),
    ]
    found = by_name(reports)
    assert {name: node.word for name, node in found.items()} == {
        **dict.fromkeys(["n1", "n2", "n5"], "OK"),
        **dict.fromkeys(["n3", "n4", "n6"], "FAULT"),
        "n7": "UNKNOWN",
    }
    assert "6.2" in found["n5"].notes[0]
    assert "GPU 7" in found["n4"].reasons[0]
    assert "nvidia-smi" in found["n4"].fixes[0]
    assert found["n7"].absent == {"driver": "no NVIDIA driver"}


def test_two_halves_of_different_drivers_blame_no_node() -> None:
    reports = [report(f"n{number}", facts={"driver": str(550 + number % 2)}) for number in range(4)]
    assert {node.word for node in words.judge(reports, TABLE)} == {"OK"}


@pytest.mark.parametrize(
    ("drivers", "blamed"), [("AABCD", 0), ("AABC", 0), ("AB", 0), ("AAB", 1), ("AAABC", 2)]
)
def test_a_driver_is_the_usual_one_only_if_most_nodes_have_it(drivers: str, blamed: int) -> None:
    reports = [report(f"n{n}", facts={"driver": driver}) for n, driver in enumerate(drivers)]
    faults = [node for node in words.judge(reports, TABLE) if node.word == "FAULT"]
    assert len(faults) == blamed


def test_a_site_adds_and_removes_rows(tmp_path: Path) -> None:
    site = tmp_path / "checks.yaml"
    site.write_text(
        "facts:\n  pmix: null\n  scratch: {ask: command ls /scratch, rule: {equals: ready}}\n"
        "measures:\n  disk: {minimum: 2}\n"
    )
    table = table_for("h100", 4, site)
    assert "pmix" not in table["facts"]
    assert table["facts"]["scratch"]["rule"] == {"equals": "ready"}
    assert table["facts"]["gpus"]["rule"] == {"at_least": 4}
    assert (table["measures"]["disk"]["minimum"], table["measures"]["disk"]["spread"]) == (2, 0.5)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("fact: {}", "fact"),
        ("facts: {a: {asks: x}}", "facts.a.asks"),
        ("facts: {a: {rule: {at_most: 1}}}", "facts.a"),
        ("facts: {a: {ask: node cores, rule: {most: 1}}}", "facts.a.rule.most"),
        ("measures: {new: {unit: GB/s}}", "measures.new"),
        ("[1]", ""),
        ("", ""),
        ("{", None),
    ],
)
def test_a_wrong_file_is_refused_at_its_place(tmp_path: Path, text: str, key: str | None) -> None:
    site = tmp_path / "checks.yaml"
    site.write_text(text)
    with pytest.raises(api.UsageError) as caught:
        table_for("h100", 8, site)
    assert str(site) in str(caught.value)
    if key is not None:
        assert caught.value.key == key


@pytest.mark.parametrize(
    ("text", "key", "line", "hint"),
    [
        ("facts:\n  a:\n    rule: {at_least: many}\n", "facts.a.rule.at_least", 3, "number"),
        ("facts:\n  a:\n    rule: {at_most: true}\n", "facts.a.rule.at_most", 3, "number"),
        ("facts:\n  a:\n    rule: {at_most: .nan}\n", "facts.a.rule.at_most", 3, "number"),
        ("facts:\n  a:\n    rule: {equals: on}\n", "facts.a.rule.equals", 3, "quotes"),
        ("facts:\n  a:\n    rule: {equals: [1]}\n", "facts.a.rule.equals", 3, "quotes"),
        ("facts:\n  a:\n    rule: {same: 1}\n", "facts.a.rule.same", 3, "true"),
        ("facts:\n  a:\n    rule: [1]\n", "facts.a.rule", 3, "at_least"),
        ("facts:\n  a:\n    severity: falt\n", "facts.a.severity", 3, "'fault'"),
        ("facts:\n  a:\n    ask: comand echo 3\n", "facts.a.ask", 3, "command TEXT"),
        ("facts:\n  a:\n    ask: command\n", "facts.a.ask", 3, "command TEXT"),
        ("facts:\n  a:\n    more: [1]\n", "facts.a.more", 3, "ask"),
        ("facts:\n  a: {ask: node coers}\nmeasures:\n", "facts.a.ask", 2, "'cores'"),
        ("measures:\n  new: {unit: GB/s}\n", "measures.new", 2, "command"),
        ("facts:\n  on: {asks: x}\n", "facts.True.asks", 1, "'ask'"),
        ("facts:\n  a: {ask: null}\n", "facts.a", 2, "ask"),
        ("facts:\n  a:\n    ask: node coers\n", "facts.a.ask", 3, "'cores'"),
        ("facts:\n  a:\n    ask: nvml drivr\n", "facts.a.ask", 3, "'driver'"),
        ("facts:\n  a:\n    fix: [1]\n", "facts.a.fix", 3, "quotes"),
        (
            "facts:\n  gpus:\n    types:\n      cpu: {at_leest: 4}\n",
            "facts.gpus.types.cpu.at_leest",
            4,
            "'at_least'",
        ),
        (
            "facts:\n  gpus:\n    types:\n      cpu: {at_least: x}\n",
            "facts.gpus.types.cpu.at_least",
            4,
            "number",
        ),
        (
            "measures:\n  disk:\n    types: {cpu: {minimun: 400}}\n",
            "measures.disk.types.cpu.minimun",
            3,
            "'minimum'",
        ),
        (
            "measures:\n  disk:\n    types: {cpu: {minimum: x}}\n",
            "measures.disk.types.cpu.minimum",
            3,
            "number",
        ),
        ("measures:\n  disk: {spread: 50}\n", "measures.disk.spread", 2, "0.5"),
        ("measures:\n  disk: {minimum: x}\n", "measures.disk.minimum", 2, "number"),
        ("hang_seconds: x\n", "hang_seconds", 1, "60"),
        ("patience: null\n", "patience", 1, "remove"),
        ("collective: {seconds: 0}\n", "collective.seconds", 1, "60"),
    ],
)
def test_a_value_without_meaning_is_refused_with_its_line_and_the_fix(
    tmp_path: Path, text: str, key: str, line: int, hint: str
) -> None:
    site = tmp_path / "checks.yaml"
    site.write_text(text)
    with pytest.raises(api.UsageError) as caught:
        table_for("cpu", 8, site)
    assert str(caught.value).startswith(f"{site}:{line}: {key} ")
    assert caught.value.key == key
    assert hint in (caught.value.hint or "")


def test_a_row_that_is_there_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    site = tmp_path / "checks.yaml"
    site.write_text("facts:\n  a: {ask: node cores}\n  a: {ask: node memory}\n")
    with pytest.raises(api.UsageError, match=f"^{site}:3: duplicate key 'a'"):
        table_for("cpu", 8, site)


def test_values_that_have_a_meaning_are_accepted(tmp_path: Path) -> None:
    site = tmp_path / "checks.yaml"
    site.write_text(
        "facts:\n"
        "  a: {ask: command x, rule: {at_least: 1.5, at_most: GPUS}, severity: note, source: null}\n"
        "  b: {ask: file /x, rule: {equals: 'on'}, severity: fault, types: {h100: null}}\n"
        "  c: {ask: node cores, rule: null, types: {h100: {same: false}}, severity: null}\n"
        "measures: {disk: {minimum: null, spread: 0, types: {h100: {minimum: 1}}}}\n"
        "collective: {command: null, limit: 5}\npatience: 0.5\n"
    )
    table = table_for("h100", 4, site)
    assert table["facts"]["a"]["rule"] == {"at_least": 1.5, "at_most": 4}
    assert table["facts"]["b"]["rule"] == {"equals": "on"}
    assert table["facts"]["c"]["rule"] == {"same": False}
    assert [table["facts"][name]["severity"] for name in "abc"] == ["note", "fault", "note"]
    assert table["measures"]["disk"]["minimum"] == 1
    part, faults = usable(table)
    assert faults == []
    assert part["facts"] == table["facts"]


def test_a_kept_table_is_judged_without_what_means_nothing() -> None:
    bad: Mapping[str, Any] = {
        "facts": {
            "a": {"ask": "node a", "rule": {"at_least": "many", "at_most": 2}, "severity": "fault"},
            "b": {"ask": "node b", "rule": {"between": 3}, "severity": "falt"},
            "c": 4,
            "d": None,
            "e": {"rule": None, "severity": None},
        },
        "measures": {"disk": {"unit": "GB/s", "minimum": "x"}, "memory": {"unit": "GB/s"}},
    }
    table, faults = usable(bad)
    assert [fault.key for fault in faults] == [
        *("facts.a.ask", "facts.a.rule.at_least", "facts.b.ask", "facts.b.rule.between"),
        *("facts.b.severity", "facts.c", "measures.disk.minimum"),
    ]
    assert bad["facts"]["a"]["rule"]["at_least"] == "many"
    reports = [report("n1", {"disk": 1.0}, facts={"a": 3.0, "b": 3.0, "c": 1.0, "e": 1.0})]
    node = by_name(reports, table)["n1"]
    assert (node.word, node.reasons) == ("FAULT", ("a is 3; it must be at most 2",))
    assert node.measures["disk"].value == 1.0


@pytest.mark.parametrize("data", [None, [], 3, {"facts": 3, "measures": None}])
def test_a_damaged_table_has_no_rules(data: Any) -> None:
    table, faults = usable(data)
    assert faults
    assert by_name([report("n1", {"disk": 1.0})], table)["n1"].word == "OK"


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": 2},
        {"node": 3},
        {"local_rank": None},
        {"rounds": None},
        {"rounds": [3]},
        {"rounds": [{"disk": 3}]},
        {"rounds": [{"disk": {"value": "fast"}}]},
        {"rounds": [{"disk": {}}]},
        {"facts": []},
        {"facts": {"a": {"value": {}}}},
        {"facts": {"a": {"absent": []}}},
    ],
)
def test_a_damaged_file_of_a_rank_is_named_and_the_others_are_read(
    tmp_path: Path, damage: Mapping[str, Any]
) -> None:
    exchange.write(tmp_path, report("n1", {"disk": 1.0}, facts={"a": {"absent": "no"}}))
    exchange.write(tmp_path, report("n2", {"disk": 1.0}))
    file = exchange.path_of(tmp_path, "n2", 0)
    assert len(exchange.read_files(tmp_path)[0]) == 2
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    reports, damaged = exchange.read_files(tmp_path)
    assert ([one["node"] for one in reports], damaged) == (["n1"], [file])
    file.write_text("{")
    assert exchange.read_files(tmp_path)[1] == [file]


def test_every_fact_of_the_table_says_how_to_see_and_to_fix_it() -> None:
    for name, fact in TABLE["facts"].items():
        assert fact["source"], name
        assert fact["fix"] or not fact["rule"], name
