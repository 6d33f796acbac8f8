# SPDX-License-Identifier: Apache-2.0
"""Suspects from past runs: on an install directory with a month of runs, by every command."""

import json
import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.spec import Workload
from llmb.plan.config_layers import load_config
from llmb_installer.cluster_types import all_types
from llmb_nodes.diagnosis import SIZE
from llmb_nodes.history import WORKLOAD
from llmb_nodes.program import diagnose
from llmb_nodes.program.strategy import NETWORK, NVLINK, SearchPlan
from llmb_nodes.simulation import Faults, simulate
from llmb_testing.invented_runs import InventedRuns, opening, steps, telemetry

Command = Callable[..., subprocess.CompletedProcess[str]]
DAY = 86400
NODES = [f"n{number}" for number in range(1, 13)]


@pytest.fixture
def month(cluster: Callable[..., Path], workloads: dict[str, Workload]) -> InventedRuns:
    """An install directory without runs yet."""
    folder = cluster("slurm", "h100", slurm={"account": "bench", "gpu": {"gres": 8}})
    config, _ = load_config(folder, {}, cluster_types=all_types)
    return InventedRuns(folder=folder, config=config, workloads=workloads)


def fill(month: InventedRuns, slow: str | None, days: int = 8, per_day: int = 4) -> None:
    """Write runs of 16 GPUs on two nodes each, 10 % slower with the node ``slow``."""
    job = month.job("nemotron4_15b", "bf16", 16)
    chance = random.Random("month")
    for _ in range(days):
        nodes = chance.sample(NODES, 2 * per_day)
        for number in range(per_day):
            pair = nodes[2 * number : 2 * number + 2]
            seconds = 2.75 * chance.gauss(1, 0.005) / (0.9 if slow in pair else 1)
            log = opening(2) + steps(seconds, len(month.made))
            month.run(job, log, nodes=",".join(pair))
        month.later(DAY)


def suspects(llmb_here: Command, month: InventedRuns) -> list[dict[str, Any]]:
    done = llmb_here("nodes", "suspects", "--format", "json", "--install", month.folder)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
    return found


def excluded(llmb_here: Command, month: InventedRuns) -> list[str]:
    """The lines of a job's script that exclude nodes."""
    words = ("submit", "-w", "nemotron4", "-s", "15b", "--scale", 16, "--dtype", "bf16", "-d")
    more = ("--exclude", "@suspects", "--format", "json", "--install", month.folder)
    done = llmb_here(*words, *more)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    return [line for line in job["script"].splitlines() if "--exclude" in line]


def test_without_suspects_a_dry_run_says_that_no_node_is_excluded(
    month: InventedRuns, llmb_here: Command
) -> None:
    fill(month, "none")
    assert excluded(llmb_here, month) == []
    words = ("submit", "-w", "nemotron4", "-s", "15b", "--scale", 16, "--dtype", "bf16", "-d")
    done = llmb_here(*words, "--exclude", "@suspects", "--install", month.folder)
    assert "exclude names no node" in done.stdout
    assert "null" not in done.stdout + done.stderr


def test_the_node_of_the_slow_runs_is_found_with_its_evidence(
    month: InventedRuns, llmb_here: Command
) -> None:
    fill(month, "n7")
    (found,) = suspects(llmb_here, month)
    runs = found["runs"]
    assert (found["name"], found["word"], runs["nodes"]) == ("n7", None, ["n7"])
    assert runs["seen"] == runs["slow"] >= 4
    assert runs["seen"] + runs["others"] == 32
    assert runs["others_slow"] == 0
    assert 0 < runs["chance"] <= 0.01
    assert runs["loss"] == pytest.approx(0.1, abs=0.02)
    assert (runs["gpus"], runs["gpus_lost"]) == (16, 2)
    assert len(runs["slow_runs"]) == runs["slow"]
    assert "2 of 16 GPUs lost" in found["evidence"][0]


def test_a_later_submission_excludes_it(month: InventedRuns, llmb_here: Command) -> None:
    fill(month, "n7")
    assert excluded(llmb_here, month) == []  # no log was read yet
    suspects(llmb_here, month)
    assert excluded(llmb_here, month) == ["#SBATCH --exclude=n7"]


def test_healthy_nodes_are_not_blamed(month: InventedRuns, llmb_here: Command) -> None:
    fill(month, None)
    assert suspects(llmb_here, month) == []
    assert excluded(llmb_here, month) == []
    done = llmb_here("nodes", "suspects", "--install", month.folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert "32 measured runs" in done.stderr


def test_a_fast_run_after_a_repair_acquits(month: InventedRuns, llmb_here: Command) -> None:
    fill(month, "n7")
    month.run(month.job("nemotron4_15b", "bf16", 16), opening(2) + steps(2.75, 99), nodes="n7,n8")
    assert suspects(llmb_here, month) == []


def test_runs_of_a_month_ago_are_no_evidence(month: InventedRuns, llmb_here: Command) -> None:
    fill(month, "n7")
    month.later(40 * DAY)
    month.run(month.job("nemotron4_15b", "bf16", 16), opening(2) + steps(2.75, 99), nodes="n1,n2")
    assert suspects(llmb_here, month) == []


def test_a_slow_day_blames_none_of_its_nodes(month: InventedRuns, llmb_here: Command) -> None:
    fill(month, None)
    job = month.job("nemotron4_15b", "bf16", 16)
    for number in range(20):  # the network was slow, and these nodes ran many times
        log = opening(2) + steps(3.1, number)
        month.run(job, log, nodes=("n1,n2", "n3,n4")[number % 2])
    assert suspects(llmb_here, month) == []


def test_an_empty_install_directory_has_no_suspects(
    month: InventedRuns, llmb_here: Command
) -> None:
    assert suspects(llmb_here, month) == []


def test_the_table(month: InventedRuns, llmb_here: Command, wording: Callable[..., None]) -> None:
    fill(month, "n7")
    done = llmb_here("nodes", "suspects", "--install", month.folder)
    assert done.returncode == 0
    wording("nodes suspects", done.stdout + done.stderr)


def page(llmb_here: Command, month: InventedRuns, *words: str) -> str:
    """The page of nodes, or what ``words`` write."""
    done = llmb_here("report", *(words or ("--page", "nodes")), "--install", month.folder)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def test_the_page_begins_with_the_suspect_and_its_runs(
    month: InventedRuns, llmb_here: Command, wording: Callable[..., None]
) -> None:
    fill(month, "n7")
    llmb_here("nodes", "suspects", "--install", month.folder)
    text = page(llmb_here, month)
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["Suspect nodes", "n7", "All nodes"]
    assert "2 of 16 GPUs lost to n7." in text
    slow, rows = text.split("## n7")[1].split("## All nodes")
    assert slow.count(" % of the usual") == 5
    assert [line.split()[1] for line in rows.splitlines() if line.startswith("| n")][:2] == [
        "node",
        "n7",
    ]
    assert rows.count("\n| n") == 1 + len(NODES)
    assert "2 of 16 GPUs lost to n7." in page(llmb_here, month, "--format", "md")
    report = page(llmb_here, month, "--page", "nodes", "--format", "html")
    assert "2 of 16 GPUs lost to n7." in report
    assert "By chance, this would happen in 1 of 300" in report
    wording("report", "## n7" + slow)


def test_without_suspects_the_report_says_nothing_of_nodes_and_the_page_has_them(
    month: InventedRuns, llmb_here: Command
) -> None:
    fill(month, None)
    llmb_here("results", "--session", "all", "--install", month.folder)
    assert "Suspect nodes" not in page(llmb_here, month, "--format", "md")
    text = page(llmb_here, month)
    assert "No node is a suspect" in text
    assert text.count("\n| n") == 1 + len(NODES)


def test_the_page_has_what_the_runs_of_the_report_say_of_a_node(
    month: InventedRuns, llmb_here: Command
) -> None:
    fill(month, None, days=1)
    log = (
        opening(2)
        + steps(3.1, 1)
        + telemetry(2).replace(
            'node0002: {"gpus": 8, "sm_clock_mhz": {"median": 1980, "p5": 1935}',
            'node0002: {"gpus": 8, "sm_clock_mhz": {"median": 1200, "p5": 1180}',
        )
    )
    month.run(month.job("nemotron4_15b", "bf16", 16), log, nodes="node[0001-0002]")
    row = next(line for line in page(llmb_here, month).splitlines() if "| node0002" in line)
    assert "1200 MHz" in row
    assert row.count("SM clock 1200 MHz") == 1


def diagnosis(month: InventedRuns, faults: Faults, *, paths: tuple[str, ...] = (NVLINK,)) -> None:
    """Write a diagnosis of n1 to n8 as its program writes it."""
    job = replace(month.job("nemotron4_15b", "bf16", 64), workload=WORKLOAD, model_size=SIZE)
    run = month.run(job, "", nodes="n[1-8]")
    plan = SearchPlan(tuple(f"n{number}" for number in range(1, 9)), paths=paths)
    rounds = [
        [{**asdict(test), **asdict(outcome)} for test, outcome in results]
        for results in simulate(plan, faults).history
    ]
    data = {"schema": diagnose.SCHEMA, "plan": asdict(plan), "rounds": rounds}
    (run.work / diagnose.FILE).write_text(json.dumps(data))


@pytest.mark.parametrize(("factor", "word"), [(0.7, "SLOW"), (0.0, "FAULT")])
def test_the_node_of_a_diagnosis_is_a_suspect_that_jobs_avoid(
    month: InventedRuns, llmb_here: Command, factor: float, word: str
) -> None:
    diagnosis(month, Faults(nodes={"n5": factor}))
    (found,) = suspects(llmb_here, month)
    assert (found["name"], found["word"], found["check"]) == ("n5", word, None)
    assert found["diagnosis"] == month.made[-1].id
    assert "every group with this node" in found["evidence"][0]
    assert excluded(llmb_here, month) == ["#SBATCH --exclude=n5"]
    text = page(llmb_here, month)
    assert f"| n5 | diagnosis ({word}) |" in " ".join(text.split())
    assert [line.split()[1] for line in text.splitlines() if line.startswith("| n")].count("n1")


def test_of_a_bad_pair_one_node_is_avoided_and_both_are_named(
    month: InventedRuns, llmb_here: Command
) -> None:
    diagnosis(month, Faults(pairs={frozenset({"n1", "n2"}): 0.5}))
    (found,) = suspects(llmb_here, month)
    assert found["name"] in {"n1", "n2"}
    assert found["evidence"][0].startswith("n[1-2]: these two together")


def test_a_healthy_diagnosis_after_a_repair_acquits_but_only_on_its_path(
    month: InventedRuns, llmb_here: Command
) -> None:
    diagnosis(month, Faults(nodes={"n5": 0.7}), paths=(NETWORK,))
    diagnosis(month, Faults())  # over NVLink and network together: tells nothing of network alone
    (found,) = suspects(llmb_here, month)
    assert "over the network alone" in found["evidence"][0]
    diagnosis(month, Faults(), paths=(NETWORK,))
    assert suspects(llmb_here, month) == []


@pytest.mark.parametrize("damage", ["{", '"value": "fast"'])
def test_a_damaged_diagnosis_is_named_and_omitted(
    month: InventedRuns, llmb_here: Command, damage: str
) -> None:
    diagnosis(month, Faults(nodes={"n5": 0.7}))
    diagnosis(month, Faults(nodes={"n7": 0.7}))
    file = month.made[-1].work / diagnose.FILE
    whole = damage == "{"
    file.write_text(damage if whole else re.sub(r'"value": [\d.]+', damage, file.read_text()))
    done = llmb_here("nodes", "suspects", "--install", month.folder)
    assert (done.returncode, "n5" in done.stdout) == (0, True)
    assert f"{file} is damaged" in " ".join(done.stderr.split())
    file.unlink()  # one that has not begun
    done = llmb_here("nodes", "suspects", "--install", month.folder)
    assert "damaged" not in done.stderr


def test_a_diagnosis_that_ended_before_its_search_is_no_evidence(
    month: InventedRuns, llmb_here: Command
) -> None:
    diagnosis(month, Faults(nodes={"n5": 0.7}))
    file = month.made[-1].work / diagnose.FILE
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "rounds": data["rounds"][:1]}))
    assert suspects(llmb_here, month) == []
