# SPDX-License-Identifier: Apache-2.0
"""Past checks: by every command that reads them, with kept files that are damaged or missing."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.launch import StagedFile
from llmb.contract.record import RunRecord
from llmb.contract.spec import Workload
from llmb.plan.config_layers import load_config
from llmb_installer.cluster_types import all_types
from llmb_nodes.diagnosis import SIZE
from llmb_nodes.history import TABLE, WORKLOAD
from llmb_nodes.program import exchange
from llmb_nodes.table import table_for
from llmb_testing.invented_runs import InventedRuns

Command = Callable[..., subprocess.CompletedProcess[str]]
#: The memory bandwidth of each node, which is measured twice.
Speeds = Mapping[str, float]
HEALTHY = {"n1": 100.0, "n2": 100.0, "n3": 100.0, "n4": 100.0}


@pytest.fixture
def site(cluster: Callable[..., Path], workloads: dict[str, Workload]) -> InventedRuns:
    """An install directory without runs yet."""
    folder = cluster("slurm", "h100", slurm={"account": "bench", "gpu": {"gres": 8}})
    config, _ = load_config(folder, {}, cluster_types=all_types)
    return InventedRuns(folder=folder, config=config, workloads=workloads)


def check(
    site: InventedRuns,
    speeds: Speeds,
    *,
    nodes: str = "n[1-4]",
    state: str = "COMPLETED",
    table: str | None = None,
    size: str = "quick",
    reason: str = "",
) -> RunRecord:
    """Write a check of ``nodes``. All 8 ranks of those with speeds have written their files."""
    job = replace(site.job("nemotron4_15b", "bf16", 32), workload=WORKLOAD, model_size=size)
    run = site.run(job, "", state, nodes=nodes, reason=reason)
    text = json.dumps(table_for("h100", 8)) if table is None else table
    record.save(
        replace(run, launch=replace(run.launch, files=(StagedFile(name=TABLE, text=text),)))
    )
    for node, speed in speeds.items():
        rounds = [{"memory": {"value": speed}}, {"memory": {"value": speed}}]
        for rank in range(8):
            facts = {"facts": {"scratch": {"value": 3.0}}} if rank == 0 else {}
            exchange.write(run.work, {"node": node, "local_rank": rank, **facts, "rounds": rounds})
    return run


def called(llmb_here: Command, site: InventedRuns, *words: str) -> tuple[Any, str]:
    """Return the nodes of the JSON that a command prints, and its messages."""
    done = llmb_here("nodes", *words, "--format", "json", "--install", site.folder)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)["nodes"], done.stderr


def shown(llmb_here: Command, site: InventedRuns, *words: str) -> list[tuple[str, str, str]]:
    nodes, _ = called(llmb_here, site, "show", *words)
    return [(node["node"], node["word"], node["run"]) for node in nodes]


def with_rule(rule: Any) -> str:
    """Return a table with a fact of this rule."""
    table = table_for("h100", 8)
    fact = {"ask": "command echo 3", "rule": rule, "severity": "fault", "fix": "mount /scratch"}
    return json.dumps({**table, "facts": {"scratch": fact}})


@pytest.mark.parametrize("table", [with_rule({"at_least": "many"}), with_rule(3), "{", "[]", "3"])
def test_a_rule_that_cannot_be_applied_disarms_itself_alone(
    site: InventedRuns, llmb_here: Command, table: str
) -> None:
    check(site, {**HEALTHY, "n2": 50.0})
    bad = check(site, {"n9": 100.0, "n8": 100.0}, nodes="n[8-9]", table=table)
    nodes, messages = called(llmb_here, site, "show")
    assert {node["node"]: node["word"] for node in nodes}["n9"] == "OK"
    assert f"{bad.directory}/llmb-run.json" in " ".join(messages.split())
    nodes, messages = called(llmb_here, site, "suspects")
    assert [node["name"] for node in nodes] == ["n2"]
    assert "llmb-run.json" in messages
    nodes, messages = called(llmb_here, site, "show", "--check", bad.id)
    assert {node["name"]: node["word"] for node in nodes} == {"n8": "OK", "n9": "OK"}
    assert "llmb-run.json" in messages
    words = ("submit", "-w", "nemotron4", "-s", "15b", "--scale", 16, "--dtype", "bf16", "-d")
    done = llmb_here(*words, "--exclude", "@suspects", "--format", "json", "--install", site.folder)
    assert (done.returncode, "--exclude=n2" in done.stdout) == (0, True)


def test_a_rule_in_many_checks_is_named_once(site: InventedRuns, llmb_here: Command) -> None:
    for _ in range(3):
        check(site, HEALTHY, table=with_rule({"at_least": "many"}))
    for words in (("nodes", "show"), ("report", "--page", "nodes")):
        done = llmb_here(*words, "--install", site.folder)
        assert done.stderr.count("scratch.rule.at_least") == 1, done.stderr


def test_a_damaged_file_of_a_node_is_named_and_hides_no_other(
    site: InventedRuns, llmb_here: Command
) -> None:
    run = check(site, HEALTHY)
    file = exchange.path_of(run.work, "n2", 0)
    file.write_text('{"schema": 1, "node": "n2", "local_rank": 0, "rounds": 3}')
    words = {node: word for node, word, _ in shown(llmb_here, site)}
    assert words == {"n1": "OK", "n2": "UNKNOWN", "n3": "OK", "n4": "OK"}
    assert f"{file} is damaged" in " ".join(called(llmb_here, site, "show")[1].split())


def test_a_node_is_unknown_if_one_of_its_ranks_wrote_nothing_before_the_end(
    site: InventedRuns, llmb_here: Command
) -> None:
    for state, word in (("RUNNING", "OK"), ("COMPLETED", "UNKNOWN")):
        run = check(site, HEALTHY, state=state)
        exchange.path_of(run.work, "n2", 3).unlink()
        nodes, _ = called(llmb_here, site, "show")
        assert {node["node"]: node["word"] for node in nodes} == {
            **dict.fromkeys(HEALTHY, "OK"),
            "n2": word,
        }
    (reason,) = next(node["reasons"] for node in nodes if node["node"] == "n2")
    assert reason == f"GPU 3 wrote nothing; see llmb-run jobs logs {run.id}"
    assert next(node for node in nodes if node["node"] == "n2")["measures"]["memory"][
        "per_gpu"
    ] == [100.0, 100.0, 100.0, None, 100.0, 100.0, 100.0, 100.0]


def test_only_what_no_node_has_is_listed_as_not_asked(
    site: InventedRuns, llmb_here: Command
) -> None:
    run = check(site, HEALTHY)
    for node in HEALTHY:
        for rank in range(8):
            absent = {"absent": "torch is not installed"}
            outcomes = {"memory": {"value": 9.0}, "matrix_product": absent}
            if node == "n2":
                outcomes["memory"] = absent
            exchange.write(run.work, {"node": node, "local_rank": rank, "rounds": [outcomes]})
    done = llmb_here("nodes", "show", "--check", run.id, "--install", site.folder)
    assert "not asked (torch is not installed): matrix_product\n" in done.stderr
    nodes, _ = called(llmb_here, site, "show", "--check", run.id)
    assert [(node["name"], node["word"], node["reasons"]) for node in nodes[:2]] == [
        ("n2", "UNKNOWN", ["memory could not be measured: torch is not installed"]),
        ("n1", "OK", []),
    ]


def test_a_node_that_died_in_its_newest_check_is_unknown(
    site: InventedRuns, llmb_here: Command
) -> None:
    before = check(site, HEALTHY)
    alive = {node: speed for node, speed in HEALTHY.items() if node != "n4"}
    after = check(site, alive, state="NODE_FAIL")
    assert shown(llmb_here, site) == [
        *((node, "OK", after.name) for node in alive),
        ("n4", "UNKNOWN", after.name),
    ]
    assert shown(llmb_here, site, "n4") == [
        ("n4", "OK", before.name),
        ("n4", "UNKNOWN", after.name),
    ]
    (reason,) = called(llmb_here, site, "show", "n4")[0][1]["reasons"]
    assert f"jobs logs {after.id}" in reason
    page = llmb_here("report", "--page", "nodes", "--install", site.folder).stdout
    (row,) = [line for line in page.splitlines() if line.startswith("| n4 ")]
    assert "UNKNOWN" in row


def test_a_check_that_has_not_ended_says_nothing_of_silent_nodes(
    site: InventedRuns, llmb_here: Command
) -> None:
    before = check(site, HEALTHY)
    check(site, {}, state="NOT_SUBMITTED")
    running = check(site, {}, state="RUNNING")
    (check(site, {}).place / "state.json").unlink()
    assert {name for _, _, name in shown(llmb_here, site)} == {before.name}
    done = llmb_here("nodes", "show", "--install", site.folder)
    assert f"llmb last asked: {running.id}. To wait" in " ".join(done.stderr.split())


def test_a_check_without_any_file_leaves_its_nodes_unknown(
    site: InventedRuns, llmb_here: Command
) -> None:
    failed = check(site, {}, state="FAILED", nodes="n[1-2]")
    expected = [("n1", "UNKNOWN", failed.name), ("n2", "UNKNOWN", failed.name)]
    assert shown(llmb_here, site) == expected
    done = llmb_here("nodes", "show", "--install", site.folder)
    assert "last asked" not in done.stderr


def test_ranks_in_pods_are_not_taken_for_other_nodes_than_the_scheduler_names(
    site: InventedRuns, llmb_here: Command
) -> None:
    run = check(site, {"pod-0": 100.0, "pod-1": 100.0}, nodes="n[1-2]")
    assert {node for node, _, _ in shown(llmb_here, site)} == {"pod-0", "pod-1"}
    nodes, _ = called(llmb_here, site, "show", "--check", run.id)
    assert {node["name"] for node in nodes} == {"pod-0", "pod-1"}


def test_an_unknown_check_does_not_acquit_and_suspects_say_so(
    site: InventedRuns, llmb_here: Command
) -> None:
    before = check(site, {**HEALTHY, "n2": 50.0, "n3": 51.0, "n5": 100.0, "n6": 100.0})
    check(site, dict.fromkeys(("n1", "n3", "n4"), 100.0), state="NODE_FAIL")
    done = llmb_here("nodes", "suspects", "--install", site.folder)
    assert "UNKNOWN in the newest check: n2." in " ".join(done.stderr.split())
    (suspect,) = called(llmb_here, site, "suspects")[0]
    assert (suspect["name"], suspect["check"]) == ("n2", before.id)
    check(site, HEALTHY)
    done = llmb_here("nodes", "suspects", "--install", site.folder)
    assert "UNKNOWN" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("reason", "failed"),
    [
        ("Node failure on n2", {"n2"}),
        ("node n[2-3] failed: launch failed", {"n2", "n3"}),
        ("Node failure on n20", set()),
        ("", set()),
    ],
)
def test_a_node_that_ended_its_check_is_a_fault_and_a_suspect(
    site: InventedRuns, llmb_here: Command, reason: str, failed: set[str]
) -> None:
    """As far as Slurm names it. n1 has measured, and is as its peers; the others are unknown."""
    run = check(site, {"n1": 100.0}, state="NODE_FAIL", reason=reason)
    nodes, _ = called(llmb_here, site, "show", "--check", run.id)
    assert {node["name"]: node["word"] for node in nodes} == {
        "n1": "OK",
        **{name: "FAULT" if name in failed else "UNKNOWN" for name in ("n2", "n3", "n4")},
    }
    suspects = called(llmb_here, site, "suspects")[0]
    assert {node["name"]: (node["word"], node["evidence"], node["check"]) for node in suspects} == {
        name: ("FAULT", [f"failed during check {run.id}: {reason}"], run.id) for name in failed
    }
    done = llmb_here("nodes", "show", "--check", run.id, "--install", site.folder)
    assert done.returncode == (3 if failed else 0)


def test_nodes_of_which_nothing_is_known_are_named_beside_the_suspects(
    site: InventedRuns, llmb_here: Command
) -> None:
    check(site, {"n1": 100.0, "n2": 100.0}, state="NODE_FAIL", reason="Node failure on n4")
    done = llmb_here("nodes", "suspects", "--install", site.folder)
    printed = " ".join(done.stderr.split())
    assert "UNKNOWN in the newest check, and no suspect: n3. " in printed


def test_without_an_unknown_check_suspects_say_nothing_of_it(
    site: InventedRuns, llmb_here: Command
) -> None:
    check(site, {**HEALTHY, "n2": 50.0})
    done = llmb_here("nodes", "suspects", "--install", site.folder)
    assert "n2" in done.stdout
    assert "UNKNOWN" not in done.stderr


@pytest.mark.parametrize("kind", ["training", SIZE])
def test_only_a_check_is_shown_as_one(site: InventedRuns, llmb_here: Command, kind: str) -> None:
    if kind == SIZE:
        run = check(site, {}, size=SIZE)
    else:
        run = site.run(site.job("nemotron4_15b", "bf16", 16), "", nodes="n[1-2]")
    words = ("nodes", "show", "--check", run.id, "--install", site.folder)
    done = llmb_here(*words)
    assert done.returncode == 2
    assert f"{run.id} is not a check of nodes" in done.stderr
    assert "llmb-run nodes check" in done.stderr
    checks = [check(site, HEALTHY) for _ in range(4)]
    message = " ".join(llmb_here(*words).stderr.split())
    assert ", ".join(check.id for check in reversed(checks[1:])) in message
    assert checks[0].id not in message


def test_a_fix_without_a_source_has_no_parentheses(site: InventedRuns, llmb_here: Command) -> None:
    run = check(site, HEALTHY, table=with_rule({"at_least": 9}))
    done = llmb_here("nodes", "show", "--check", run.id, "--install", site.folder)
    assert "hint: n2: mount /scratch\n" in done.stderr
    page = llmb_here("report", "--page", "nodes", "--install", site.folder).stdout
    assert "What to do: mount /scratch." in page


@pytest.fixture
def planned(tmp_path: Path, llmb_here: Command) -> Callable[..., Any]:
    """Call a command of nodes on four nodes of CPUs that submits nothing, with a checks.yaml."""

    def call(*words: str, checks: str = "facts: {}", gpu_type: str = "cpu") -> Any:
        config = {
            "schema_version": 2,
            "cluster_type": "slurm",
            "cluster_name": "far",
            "gpu_type": gpu_type,
            "slurm": {"container": "none", "gpu": {"partition": "all", "gres": 8}},
            "workloads": {"installed": ["node_check"]},
            "plugins": {"llmb-nodes": {"checks": "checks.yaml"}},
        }
        (tmp_path / "cluster_config.yaml").write_text(json.dumps(config))
        (tmp_path / "checks.yaml").write_text(checks)
        more = ("--nodelist", "n[1-4]", "--dry-run", "--install", tmp_path)
        return llmb_here("nodes", *words, *more)

    return call


def test_a_wrong_rule_is_refused_before_the_job(planned: Callable[..., Any]) -> None:
    scratch = "facts:\n  scratch:\n    ask: command echo 3\n    rule: {at_least: %s}\n"
    done = planned("check", checks=scratch % 3)
    assert done.returncode == 0, done.stderr
    for form in ("table", "json"):
        done = planned("check", "--format", form, checks=scratch % "many")
        assert (done.returncode, done.stdout) == (2, "")
        message = " ".join(done.stderr.split())
        assert "checks.yaml:4: facts.scratch.rule.at_least must be a number, not 'many'" in message
        assert "hint: write a number" in message


@pytest.mark.parametrize("number", ["abc", "0", "-1", "1.5", "9999"])
def test_a_number_of_gpus_is_one(planned: Callable[..., Any], number: str) -> None:
    done = planned("check", "--gpus-per-node", number)
    assert done.returncode == 2
    message = " ".join(done.stderr.split())
    assert "--gpus-per-node must be a number of GPUs from 1 to " in message
    assert f", not '{number}'" in message


@pytest.mark.parametrize(("gpu_type", "unit"), [("cpu", "CPU hours"), ("h100", "GPU hours")])
def test_hours_of_a_diagnosis_are_those_of_its_processors(
    planned: Callable[..., Any], gpu_type: str, unit: str
) -> None:
    done = planned("diagnose", gpu_type=gpu_type)
    assert done.returncode == 0, done.stderr
    assert unit in done.stdout.splitlines()[0]
