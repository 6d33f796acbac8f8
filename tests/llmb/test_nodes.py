# SPDX-License-Identifier: Apache-2.0
"""Tests of the nodes of a run: by its scheduler's answer, else by its script's first act; and of
`jobs` by node.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.cli.choice import all_nodes
from llmb.contract import record
from llmb.contract.state import COMPLETED, PENDING, RUNNING, JobState
from llmb.core.node_lists import expand, fold, is_list
from llmb.core.process import host_name
from llmb.measure.facts import LogFacts
from llmb.measure.result import Identity, Result
from llmb.run import store
from llmb.run.store import nodes_of

Run = Callable[..., "subprocess.CompletedProcess[str]"]
HERE = host_name()
ENDED = JobState(state=COMPLETED, started=100.0, ended=200.0)


@pytest.mark.parametrize(
    ("nodes", "text"),  # as `scontrol show hostlist` of Slurm 22.05 writes them
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n01", "n02", "n04"], "n[01-02,04]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["login", "n7"], "login,n7"),
        (["a1", "b1", "a2"], "a[1-2],b1"),
        ([], ""),
    ],
)
def test_a_list_is_as_short_as_that_of_slurm(nodes: list[str], text: str) -> None:
    assert fold(nodes) == text
    assert sorted(expand(text)) == sorted(nodes)


@given(st.sets(st.from_regex(r"[a-c]{1,2}(-[a-c])?[0-9]{0,3}", fullmatch=True), max_size=30))
def test_a_list_has_the_same_names(names: set[str]) -> None:
    assert set(expand(fold(sorted(names)))) == names


@pytest.fixture
def slurm_run(install: Any) -> record.RunRecord:
    """A run of Slurm that has ended, with what its script wrote."""
    run: record.RunRecord = replace(install.measured("onslurm1", 2.75), cluster_type="slurm")
    record.save(run)
    (run.place / "scheduler_id").write_text(
        "8\ncluster c\nnodes big[101-102],fat9\nhost big101\nstarted 100\n"
    )
    return run


def test_the_scheduler_says_it_before_the_script_does(slurm_run: record.RunRecord) -> None:
    assert nodes_of(slurm_run, ENDED) == ("big101", "big102", "fat9")
    assert nodes_of(slurm_run, replace(ENDED, nodes="other[1-2]")) == ("other1", "other2")


def test_the_nodes_of_each_cluster_type(slurm_run: record.RunRecord) -> None:
    (slurm_run.place / "scheduler_id").write_text("x\nhost fat7\nstarted 100\n")
    # a script that runs on the node
    assert nodes_of(replace(slurm_run, cluster_type="mine"), ENDED) == ("fat7",)
    (slurm_run.place / "scheduler_id").write_text("x\npod pod-master-0\nstarted 100\n")
    # a pod's name is no node
    assert nodes_of(replace(slurm_run, cluster_type="runai"), ENDED) == ()
    (slurm_run.place / "scheduler_id").unlink()
    assert nodes_of(slurm_run, ENDED) == ()


def test_a_job_that_waits_again_has_no_nodes(slurm_run: record.RunRecord) -> None:
    """It was requeued. When it starts, its script writes its new nodes."""
    (slurm_run.place / store.STATE).unlink(missing_ok=True)
    store.save_state(slurm_run, JobState(state=RUNNING, nodes="big[101-102]"))
    waiting = store.save_state(slurm_run, JobState(state=PENDING))
    assert waiting.nodes == ""
    assert all_nodes(slurm_run, waiting, None) == nodes_of(slurm_run, waiting) == ()
    logged = Result(
        identity=Identity(experiment="e", path="p"), status="Pending", log=LogFacts(hosts=("n7",))
    )
    assert all_nodes(slurm_run, waiting, logged) == ()


def test_nodes_of_an_earlier_poll_stay(install: Any) -> None:
    run = install.run(
        "later1",
        install.job("nemotron4_15b", "bf16", 16),
        None,
        JobState(state=RUNNING, nodes="n[1-2]"),
    )
    assert store.save_state(run, JobState(state=RUNNING)).nodes == "n[1-2]"
    assert store.save_state(run, JobState(state=RUNNING, nodes="n7")).nodes == "n7"  # requeued
    assert store.save_state(run, ENDED).nodes == "n7"


def test_jobs_names_the_nodes_and_finds_runs_by_them(
    slurm_run: record.RunRecord, install: Any, run: Run
) -> None:
    install.measured("here1", 2.75, nodes=HERE)
    shown = json.loads(run("jobs", "show", "onslurm1", "--format", "json").stdout)
    assert shown["nodes"] == ["big101", "big102", "fat9"]
    assert "big[101-102],fat9" in run("jobs", "show", "onslurm1").stdout

    def found(*nodes: str) -> list[str]:
        words = [word for node in nodes for word in ("--node", node)]
        return [
            row["id"] for row in json.loads(run("jobs", "list", *words, "--format", "json").stdout)
        ]

    assert (
        found("big102") == found("BIG102.site.org") == found("nowhere", "fat[8-9]") == ["onslurm1"]
    )
    assert found("big10") == []
    assert found(HERE) == ["here1"]


def test_results_compare_and_report_of_some_nodes(
    slurm_run: record.RunRecord, install: Any, run: Run
) -> None:
    """By what the scheduler says, else by the hosts in the log."""
    log = f"big102:1:2 [0] NCCL INFO Using network IB\n{slurm_run.log.read_text()}"
    record.save(
        replace(
            install.run("logged1", install.job("nemotron4_15b", "bf16", 32), log),
            cluster_type="slurm",
        )
    )
    install.measured("here1", 2.75, nodes=HERE)

    def found(*words: str) -> list[str]:
        return sorted(
            row["run"]
            for row in json.loads(run("results", *words, "--format", "json").stdout)["results"]
        )

    assert found() == ["here1", "logged1", "onslurm1"]
    assert found("--node", "big102.site.org") == ["logged1", "onslurm1"]
    rows = json.loads(run("compare", "--node", "fat9", "--format", "json").stdout)["comparisons"]
    assert [row["runs"] for row in rows] == [["onslurm1"]]
    assert "2 runs:" in run("report", "--node", "big[101-102]").stdout
    nothing = run("results", "--node", "big7")
    assert (nothing.returncode, nothing.stdout, bool(nothing.stderr)) == (0, "", True)


def test_the_report_names_them(slurm_run: record.RunRecord, run: Run) -> None:
    assert slurm_run.id == "onslurm1"
    for fmt in ("md", "html"):
        assert "big[101-102],fat9" in run("report", "--format", fmt).stdout.replace("\\", "")


@pytest.mark.parametrize(
    "nodes", ["", " ", "n[1", "n]", "n[]", "n[a-b]", "n*", ",n1", "n[4-1]", "n7,n[2,9-8]"]
)
def test_a_list_of_nodes_that_is_none_is_refused(nodes: str, run: Run) -> None:
    done = run("jobs", "list", "--node", nodes)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--node" in done.stderr


@pytest.mark.parametrize(
    "nodes", ["n1", "n[1]", "rack-2.site.org", "n[01-03,7],login", "n-9-1,n1, n2", "a[1-2]b[3,5]"]
)
def test_lists_as_slurm_writes_them(nodes: str) -> None:
    assert is_list(nodes)
