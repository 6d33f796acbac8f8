# SPDX-License-Identifier: Apache-2.0
"""Tests of `--ab`: the order of its jobs, what differs, and what cannot be compared."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.cli.submit.ab import AbTest, in_pairs
from llmb.contract.record import RunRecord
from llmb.errors import UsageError
from llmb.run.prepare import Prepared
from llmb.run.resume import remaining

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Items = Callable[..., list[Prepared]]
ONE = ("single", "-w", "fake", "--scale", "8")


def test_repeats_alternate_and_each_record_names_its_pair(
    llmb: Command, runs: Callable[[], list[RunRecord]]
) -> None:
    done = llmb(*ONE, "--repeats", 3, "--ab", "NCCL_ALGO=Ring,Tree")
    assert done.returncode == 0, done.stderr
    submitted = sorted(runs(), key=lambda run: run.created)
    pairs = [run.pair for run in submitted]
    assert [(pair.number, pair.side) for pair in pairs if pair] == [
        *[(1, "A"), (1, "B"), (2, "B"), (2, "A"), (3, "A"), (3, "B")]
    ]
    for run in submitted:
        assert run.pair is not None
        assert run.pair.setting == "NCCL_ALGO"
        assert run.job.env["NCCL_ALGO"] == {"A": "Ring", "B": "Tree"}[run.pair.side]
        assert run.pair.value == run.job.env["NCCL_ALGO"]
    assert len({run.session for run in submitted}) == 1


def test_resume_completes_the_pairs(llmb: Command, runs: Callable[[], list[RunRecord]]) -> None:
    words = (*ONE, "--ab", "NCCL_ALGO=Ring,Tree")
    assert llmb(*words, "--repeats", 1, "--wait").returncode == 0
    assert llmb(*words, "--repeats", 2, "--resume", "--wait").returncode == 0
    pairs = sorted((run.pair.number, run.pair.side) for run in runs() if run.pair)
    assert pairs == [(1, "A"), (1, "B"), (2, "A"), (2, "B")]


@pytest.mark.parametrize(
    ("test", "sides"),
    [
        ("max_steps=20,30", {"max_steps": [20, 30]}),
        ("CUDA_DEVICE_MAX_CONNECTIONS=1,8", {}),
    ],
)
def test_the_sides_differ_in_the_setting_alone(
    llmb: Command, test: str, sides: dict[str, list[int]]
) -> None:
    done = llmb(*ONE, "--ab", test, "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["jobs"]
    assert (first["pair"]["side"], second["pair"]["side"]) == ("A", "B")
    differing = {
        key: [first[key], second[key]]
        for key in first
        if first[key] != second[key]
        and key not in ("pair", "script", "experiment_name", "estimate", "env")
    }
    assert differing == sides


@pytest.mark.parametrize(
    "test",
    [
        *["NCCL_ALGO", "NCCL_ALGO=Ring", "=a,b", "A=1,2,3", "A=1,1"],
        *["max_steps=20,x", "max_steps=20,020", "no_such_setting=1,2"],
    ],
)
def test_what_is_no_test_of_one_setting(
    llmb: Command, runs: Callable[[], list[RunRecord]], test: str
) -> None:
    done = llmb(*ONE, "--ab", test)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "nothing was submitted" in done.stderr
    assert runs() == []


EXCLUDE = AbTest(setting="exclude", values=("n1", "n2"))


def with_nodes(items: list[Prepared], name: str) -> list[Prepared]:
    """The same jobs with another option of sbatch."""
    return [
        replace(item, launch=replace(item.launch, slurm_args={"exclude": name}))
        for item in items
        if item.launch is not None
    ]


def test_the_run_of_one_side_is_not_that_of_the_other(
    items: Items, submitted: Callable[..., list[RunRecord]]
) -> None:
    """Side B has succeeded, A has not: A is submitted again, though both have the same job."""
    pairs = in_pairs(EXCLUDE, [with_nodes(items(1), "n1"), with_nodes(items(1), "n2")])
    (run,) = submitted(1)
    done = replace(run, pair=pairs[1].pair)
    assert [item.pair and item.pair.side for item in remaining(pairs, [done], []).items] == ["A"]


def test_sides_with_the_same_jobs_or_with_others_are_no_test(items: Items) -> None:
    with pytest.raises(UsageError, match="same job"):
        in_pairs(EXCLUDE, [items(2), items(2)])
    with pytest.raises(UsageError, match="different jobs"):
        in_pairs(EXCLUDE, [with_nodes(items(1), "n1"), with_nodes(items(2), "n2")])


def test_jobs_that_no_plugin_launches_can_be_shown(items: Items) -> None:
    sides = [
        [replace(item, launch=None, job=replace(item.job, max_steps=steps)) for item in items(1)]
        for steps in (20, 30)
    ]
    assert [item.job.max_steps for item in in_pairs(EXCLUDE, sides)] == [20, 30]


@pytest.fixture
def on_slurm(cluster: Callable[..., Path], llmb_here: Command) -> Command:
    """A dry run with Slurm, where nodes are chosen."""
    install = cluster("slurm", name="slurm", slurm={"container": "none", "gres": 8})

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        base = ("single", "-w", "nemotron4", "-s", "15b", "--dtype", "bf16", "--scale", 16)
        return llmb_here(*base, *words, "-d", "--format", "json", "--install", install)

    return run


def test_both_sides_need_the_same_nodes(on_slurm: Command, wording: Callable[..., None]) -> None:
    test = ("--ab", "mbs=1,2")
    refused = on_slurm(*test)
    assert refused.returncode == 2
    wording("submit", refused.stderr)
    assert on_slurm(*test, "--nodelist", "n1").returncode == 2
    shown = on_slurm(*test, "--nodelist", "n[1-2]")
    assert shown.returncode == 0, shown.stderr
    assert len(json.loads(shown.stdout)["jobs"]) == 2


def test_lists_of_nodes_can_be_the_setting(on_slurm: Command) -> None:
    shown = on_slurm("--ab", "exclude=n1,n2;n3,n4")
    assert shown.returncode == 0, shown.stderr
    scripts = [job["script"] for job in json.loads(shown.stdout)["jobs"]]
    assert ["--exclude=n1,n2" in script for script in scripts] == [True, False]
    assert "--exclude=n3,n4" in scripts[1]
