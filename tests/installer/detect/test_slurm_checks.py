# SPDX-License-Identifier: Apache-2.0
"""Tests of comparing answers with a Slurm cluster, and of the GPUs per node that it fills in."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llmb.builtin.slurm.partitions import read
from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import Answers
from llmb_installer.detect import scheduler, slurm_checks
from llmb_installer.detect.auto import add_gres, resolve_auto
from llmb_installer.detect.scheduler import COMMANDS, NodeFound, SlurmFound
from llmb_installer.detect.site import make_site
from llmb_installer.detect.slurm_checks import add_cluster, differing_variable
from llmb_installer.planning.config import compose_own_part, plan_config
from llmb_installer.planning.plan import recall_detected

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
    return read_answers(yamlfile.parse(f"{TEXT}{text}\n", name="a.yaml"), workloads=workloads)


def test_unknown_partitions(workloads: dict[str, Workload]) -> None:
    """All of them at once, each at its key with the nearest that exists."""
    text = (
        "slurm: {partition: logn, gpu: {partition: 'batch,bacth'}, cpu: {partition: x}}\n"
        "gpu_types: {b200: {partition: batc}}"
    )
    faults = slurm_checks.check_partitions(asked(text, workloads), FOUND)
    assert {fault.code for fault in faults} == {"partition-unknown"}
    assert [
        (fault.place, fault.value, re.findall("batch|login", str(fault.hint))) for fault in faults
    ] == [
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
    found = [*slurm_checks.list_notes(asked(section, workloads), FOUND)]
    assert len(found) == notes
    if notes:
        wording("llmb-install", found[0])


def gres_of(answers: Answers) -> Any:
    assert answers.slurm is not None
    return answers.slurm.option("gres")


@pytest.mark.parametrize(
    ("slurm", "gres"),
    [
        ("{}", 8),
        ("{partition: batch}", 8),
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
    answers, notes = resolve_auto(asked(f"slurm: {slurm}", workloads))
    assert gres_of(answers) == gres
    assert bool(notes) == (answers.slurm != asked(f"slurm: {slurm}", workloads).slurm)


def test_jobs_for_cpus_request_no_gpus(workloads: dict[str, Workload]) -> None:
    text = f"{TEXT.replace('h100', 'cpu')}slurm: {{container: none}}\n"
    answers = read_answers(yamlfile.parse(text, name="a"), workloads=workloads)
    assert add_gres(answers, MIXED) == (answers, [])


def test_gres_is_missing_where_slurm_does_not_answer(
    workloads: dict[str, Workload], wording: Callable[..., None]
) -> None:
    answers = asked("slurm: {partition: batch}", workloads)
    same, (note,) = add_gres(answers, SlurmFound(fault="Slurm does not answer"))
    assert same == answers
    wording("llmb-install", note)


def test_gres_detected_earlier_is_kept_where_slurm_does_not_answer(
    workloads: dict[str, Workload],
) -> None:
    before = {"slurm": {"gpu": {"partition": "batch", "gres": 4}}}
    assert gres_of(recall_detected(asked("slurm: {partition: batch}", workloads), before)) == 4
    set_by_hand = asked("slurm: {gpu: {gres: 8}}", workloads)
    assert gres_of(recall_detected(set_by_hand, before)) == 8


def test_a_configuration_written_by_hand_gets_gres_and_keeps_the_rest(
    workloads: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: MIXED)
    answers, _ = resolve_auto(asked("slurm: {account: team, gpu: {partition: batch}}", workloads))
    now = {
        "cluster_type": "slurm",
        "slurm": {"account": "team", "gpu": {"partition": "batch"}, "qos": "high"},
    }
    change = plan_config({}, now, compose_own_part(answers, make_site(answers, "h100"), [], []))
    assert change.data["slurm"]["gpu"] == {"partition": "batch", "gres": 8}
    assert change.data["slurm"]["qos"] == "high"


def test_the_cluster_of_the_shell_is_taken_unless_the_answers_have_one() -> None:
    document = yamlfile.Document(name="answers.yaml", data={"cluster_type": "slurm"})
    taken, notes = add_cluster(document, {"SLURM_CLUSTERS": "far"})
    assert taken.data["slurm"] == {"clusters": "far"}
    assert "SLURM_CLUSTERS" in notes[0]
    given = replace(document, data={**document.data, "slurm": {"clusters": "near"}})
    assert add_cluster(given, {"SLURM_CLUSTERS": "far"}) == (given, [])
    assert add_cluster(document, {"SLURM_CLUSTERS": "a,b"}) == (document, [])
    local = replace(document, data={"cluster_type": "local"})
    assert add_cluster(local, {"SLURM_CLUSTERS": "far"}) == (local, [])


def test_a_variable_that_differs_from_the_answers_is_a_fault_at_their_key() -> None:
    fault = differing_variable("near", {"SBATCH_CLUSTERS": "far"})
    assert fault is not None
    assert (fault.place, fault.code, fault.value) == ("slurm.clusters", "cluster-differs", "far")
    assert differing_variable("near", {"SBATCH_CLUSTERS": "near"}) is None
    assert differing_variable(None, {"SBATCH_CLUSTERS": "far"}) is None


def kinds_of(*counts: tuple[int, int], gres_type: str = "h100") -> list[scheduler.GpuKind]:
    """The kinds of GPUs in a partition with these numbers of nodes and GPUs."""
    lines = "".join(
        f"batch*|up|infinite|1-infinite|{nodes}|idle|gpu:{gres_type}:{gpus}|n[1-{nodes}]|none\n"
        for nodes, gpus in counts
    )
    return SlurmFound(partitions=read(lines)).gpu_kinds()


@pytest.mark.parametrize(
    ("counts", "gres_type", "requested"),
    [
        ([(30, 8), (2, 4)], "h100", 8),
        ([(2, 8), (30, 4)], "h100", 4),
        ([(4, 8), (4, 4)], "h100", 8),
        ([(10, 4), (1, 2)], "gb200", 4),
        ([(30, 6), (2, 3)], "rtx_9999", 3),
        ([(5, 4)], "h100", 4),
    ],
)
def test_nodes_of_a_type_are_asked_for_their_usual_number_of_gpus(
    counts: list[tuple[int, int]], gres_type: str, requested: int
) -> None:
    (kind,) = kinds_of(*counts, gres_type=gres_type)
    assert kind.per_node == requested
    assert kind.counts == {gpus: nodes for nodes, gpus in counts}


def test_different_numbers_of_gpus_are_listed(wording: Callable[..., None]) -> None:
    (note,) = slurm_checks.differing_gpus("h100", "h100", kinds_of((30, 8), (2, 4)))
    wording("llmb-install", note)
    assert not [*slurm_checks.differing_gpus("h100", "h100", kinds_of((30, 8)))]
