# SPDX-License-Identifier: Apache-2.0
"""Tests of answers for a Slurm cluster that the cluster here does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmb import yamlfile
from llmb.clusters.slurm.partitions import read
from llmb.errors import InputFaults
from llmb.workload import Workload
from llmb_installer import cluster_fit, gather, slurm_fit
from llmb_installer.answers import Answers, read_answers
from llmb_installer.detect import slurm
from llmb_installer.detect.slurm import COMMANDS, NodeFound, SlurmFound

FOUND = SlurmFound(
    cluster="big", commands=COMMANDS, accounting=True, accounts=("team", "other"), mpi=("pmi2",),
    partitions=read(
        "batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\nlogin|up|infinite|1-infinite|1|idle|(null)|l|none\n"
    ),
    nodes=(NodeFound(name="n1", architecture="x86_64", partitions=("batch",)),),
)  # fmt: skip
KNOWN = "cluster_type: slurm\ninstall: /x\ngpu_type: h100\nnode_architecture: x86_64\n"


def asked(text: str, workloads: dict[str, Workload]) -> Answers:
    return read_answers(yamlfile.parse(text, name="a.yaml"), known=workloads)


def test_partitions_that_are_not_there(workloads: dict[str, Workload]) -> None:
    """All of them at once, each at its key with the nearest that exists."""
    text = (
        f"{KNOWN}slurm: {{partition: logn, gpu: {{partition: 'batch,bacth'}}, cpu: {{partition: x}}}}\n"
        "gpu_types: {b200: {partition: batc}}\n"
    )
    faults = slurm_fit.partition_faults(asked(text, workloads), FOUND)
    assert [(fault.place, fault.message, fault.hint) for fault in faults] == [
        ("slurm.partition", "Slurm has no partition 'logn'", "did you mean 'login'?"),
        ("slurm.gpu.partition", "Slurm has no partition 'bacth'", "did you mean 'batch'?"),
        ("slurm.cpu.partition", "Slurm has no partition 'x'", "one of batch, login"),
        ("gpu_types.b200.partition", "Slurm has no partition 'batc'", "did you mean 'batch'?"),
    ]


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("", ["slurm.container is pyxis, and srun knows no --container-image here"]),
        ("slurm: {container: none}\n", []),
        ("slurm: {container: none, account: teem}\n", ["slurm.account: 'teem' is not one of your accounts; did you"]),
        ("slurm: {container: none, gpu: {account: zzz}}\n", ["'zzz' is not one of your accounts; yours: team, other"]),
        ("slurm: {container: none, account: team, mpi: pmi2}\n", []),
        ("slurm: {container: none, mpi: pmix}\n", ["slurm.mpi: srun has no 'pmix' here, but pmi2"]),
    ],
)
def test_what_llmb_run_would_refuse(workloads: dict[str, Workload], section: str, told: list[str]) -> None:
    found = [*slurm_fit.doubts(asked(KNOWN + section, workloads), FOUND)]
    assert len(found) == len(told)
    assert all(text in one for text, one in zip(told, found, strict=True))


def test_a_cluster_of_another_type_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload]
) -> None:
    monkeypatch.setattr(slurm_fit, "find_slurm", None)
    assert cluster_fit.check(asked("cluster_type: local\ninstall: /x\n", workloads)) == []


def test_a_volume_that_pods_do_not_see(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    """Neither stops an installation: it may be mounted later."""
    runai = f"runai: {{base_url: https://h/api/v1, project: p, pvc: {{name: w, path: {tmp_path}/pvc, claim: c}}}}\n"
    text = f"cluster_type: runai\ngpu_type: h100\n{runai}"
    gone, outside = cluster_fit.check(asked(f"{text}install: {tmp_path}/x\n", workloads))
    assert f"the volume w is not mounted here: no folder {tmp_path}/pvc" in gone
    assert f"install: {tmp_path}/x is not on the volume {tmp_path}/pvc" in outside
    (tmp_path / "pvc").mkdir()
    assert cluster_fit.check(asked(f"{text}install: {tmp_path}/pvc/x\n", workloads)) == []


@pytest.mark.parametrize("open_still", ["", "gpu_type: h100\nnode_architecture: x86_64\n"])
def test_the_file_and_line_are_told_before_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_still: str
) -> None:
    """Also where GPU type and architecture would be those of the partition that is not there."""
    monkeypatch.setattr(slurm_fit, "find_slurm", lambda **_: FOUND)
    monkeypatch.setattr(slurm, "find_slurm", lambda **_: FOUND)
    path = tmp_path / "answers.yaml"
    path.write_text(f"cluster_type: slurm\ninstall: {tmp_path}/x\nslurm:\n  gpu:\n    partition: bacth\n{open_still}")
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, (), terminal=False, dry_run=True)
    (fault,) = caught.value.faults
    assert str(fault) == f"{path}:5: slurm.gpu.partition: Slurm has no partition 'bacth'"
    with pytest.raises(InputFaults, match=r"^--set slurm\.gpu\.partition: Slurm has no partition 'btch'$"):
        gather.gather(path, None, ("slurm.gpu.partition=btch",), terminal=False, dry_run=True)
    found = gather.gather(path, None, ("slurm.gpu.partition=batch",), terminal=False, dry_run=True)
    assert isinstance(found, gather.Gathered)
    assert any("--container-image" in note for note in found.notes)
