# SPDX-License-Identifier: Apache-2.0
"""Tests of comparing answers with a Slurm cluster, and of the GPUs per node that it fills in."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from llmb.clusters.slurm.partitions import read
from llmb.text import yamlfile
from llmb.workload.spec import Workload
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import Answers
from llmb_installer.detect import scheduler, slurm_checks
from llmb_installer.detect.scheduler import COMMANDS, NodeFound, SlurmFound
from llmb_installer.detect.settle import settle, with_gres
from llmb_installer.detect.site import site_of
from llmb_installer.planning.config import own_part, plan_config
from llmb_installer.planning.plan import recalled

FOUND = SlurmFound(
    cluster="big",
    commands=COMMANDS,
    accounting=True,
    accounts=("team", "other"),
    mpi=("pmi2",),
    partitions=read(
        "batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\nlogin|up|infinite|1-infinite|1|idle|(null)|l|none\n"
    ),
    nodes=(NodeFound(name="n1", architecture="x86_64", partitions=("batch",)),),
)
MIXED = SlurmFound(
    partitions=read(
        "batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\n"
        "batch*|up|infinite|1-infinite|4|idle|gpu:h100:4|m[1-4]|none\n"
        "all|up|infinite|1-infinite|8|idle|gpu:gb200:4|g[1-4]|none\n"
        "all|up|infinite|1-infinite|8|idle|gpu:h100:8|n[1-4]|none\n"
        "bare|up|infinite|1-infinite|8|idle|(null)|b[1-4]|none\n"
    )
)
TEXT = "cluster_type: slurm\ninstall: /x\ngpu_type: h100\nnode_architecture: x86_64\n"


def asked(text: str, workloads: dict[str, Workload]) -> Answers:
    return read_answers(yamlfile.parse(f"{TEXT}{text}\n", name="a.yaml"), known=workloads)


def test_unknown_partitions(workloads: dict[str, Workload]) -> None:
    """All of them at once, each at its key with the nearest that exists."""
    text = (
        "slurm: {partition: logn, gpu: {partition: 'batch,bacth'}, cpu: {partition: x}}\n"
        "gpu_types: {b200: {partition: batc}}"
    )
    faults = slurm_checks.partition_faults(asked(text, workloads), FOUND)
    assert {fault.code for fault in faults} == {"partition-unknown"}
    assert [(fault.place, fault.value, re.findall("batch|login", str(fault.hint))) for fault in faults] == [
        ("slurm.partition", "logn", ["login"]),
        ("slurm.gpu.partition", "bacth", ["batch"]),
        ("slurm.cpu.partition", "x", ["batch", "login"]),
        ("gpu_types.b200.partition", "batc", ["batch"]),
    ]


@pytest.mark.parametrize(
    ("section", "notes"),
    [
        ("", 1),
        ("slurm: {container: none}", 0),
        ("slurm: {container: none, account: teem}", 1),
        ("slurm: {container: none, gpu: {account: zzz}}", 1),
        ("slurm: {container: none, account: team, mpi: pmi2}", 0),
        ("slurm: {container: none, mpi: none}", 0),
        ("slurm: {container: none, mpi: pmix}", 1),
        ("slurm: {container: none, partition: login}", 1),
    ],
    ids=[
        *(
            "pyxis",
            "no pyxis",
            "a misspelt account",
            "an unknown account",
            "all known",
            "no MPI",
            "an unknown MPI type",
        ),
        "a partition without GPUs",
    ],
)
def test_notes_on_what_llmb_run_would_refuse(
    workloads: dict[str, Workload], section: str, notes: int, wording: Callable[..., None]
) -> None:
    found = [*slurm_checks.notes_on(asked(section, workloads), FOUND)]
    assert len(found) == notes
    if notes:
        wording("llmb-install", found[0])


def gres_of(answers: Answers) -> Any:
    assert answers.slurm is not None
    return answers.slurm.option("gres")


@pytest.mark.parametrize(
    ("slurm", "gres"),
    [
        ("{}", 4),
        ("{partition: batch}", 4),
        ("{gpu: {partition: all}}", "h100:8"),
        ("{gpu: {partition: bare}}", None),
        ("{gpu: {partition: batch, gres: 2}}", 2),
        ("{gpu: {partition: batch, gres: null}}", None),
        ("{gpu: {partition: batch, gpus_per_node: 8}}", None),
        ("{partition: batch, args: {gpus-per-node: 8}}", None),
    ],
)
def test_gres_is_filled_in_from_slurm(
    slurm: str, gres: Any, workloads: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: MIXED)
    answers, notes = settle(asked(f"slurm: {slurm}", workloads))
    assert gres_of(answers) == gres
    assert bool(notes) == (answers.slurm != asked(f"slurm: {slurm}", workloads).slurm)


def test_jobs_for_cpus_request_no_gpus(workloads: dict[str, Workload]) -> None:
    text = f"{TEXT.replace('h100', 'cpu')}slurm: {{container: none}}\n"
    answers = read_answers(yamlfile.parse(text, name="a"), known=workloads)
    assert with_gres(answers, MIXED) == (answers, [])


def test_gres_is_missing_where_slurm_does_not_answer(
    workloads: dict[str, Workload], wording: Callable[..., None]
) -> None:
    answers = asked("slurm: {partition: batch}", workloads)
    same, (note,) = with_gres(answers, SlurmFound(fault="Slurm does not answer"))
    assert same == answers
    wording("llmb-install", note)


def test_gres_detected_earlier_is_kept_where_slurm_does_not_answer(workloads: dict[str, Workload]) -> None:
    before = {"slurm": {"gpu": {"partition": "batch", "gres": 4}}}
    assert gres_of(recalled(asked("slurm: {partition: batch}", workloads), before)) == 4
    set_by_hand = asked("slurm: {gpu: {gres: 8}}", workloads)
    assert gres_of(recalled(set_by_hand, before)) == 8


def test_a_configuration_written_by_hand_gets_gres_and_keeps_the_rest(
    workloads: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: MIXED)
    answers, _ = settle(asked("slurm: {account: team, gpu: {partition: batch}}", workloads))
    now = {"cluster_type": "slurm", "slurm": {"account": "team", "gpu": {"partition": "batch"}, "qos": "high"}}
    change = plan_config({}, now, own_part(answers, site_of(answers, "h100"), [], []))
    assert change.data["slurm"]["gpu"] == {"partition": "batch", "gres": 4}
    assert change.data["slurm"]["qos"] == "high"
