# SPDX-License-Identifier: Apache-2.0
"""Tests of answers for a Slurm cluster that the cluster here does not fit."""

from pathlib import Path

import pytest

from llmb.clusters.slurm.partitions import read
from llmb.config import ClusterConfig
from llmb.errors import InputFaults
from llmb.text import typed, yamlfile
from llmb.workload.spec import Workload
from llmb_installer import gather
from llmb_installer.answers import Answers, read_answers
from llmb_installer.applying import show
from llmb_installer.detect import scheduler, slurm_fit
from llmb_installer.detect.look import Detected
from llmb_installer.detect.machine import find_machine
from llmb_installer.detect.scheduler import COMMANDS, NodeFound, SlurmFound
from llmb_installer.fits import cluster_fit, runai_fit
from llmb_installer.images.image_step import ImageStep
from llmb_installer.record import InstallRecord
from llmb_testing.runai import ControlPlane, serve

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
        ("slurm: {container: none, mpi: none}\n", []),
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


def test_a_volume_that_pods_do_not_see(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload]
) -> None:
    """Neither stops an installation: it may be mounted later."""
    monkeypatch.delenv("APP_SECRET", raising=False)
    monkeypatch.delenv("CLIENT_SECRET", raising=False)
    runai = f"runai: {{base_url: https://h/api/v1, project: p, pvc: {{name: w, path: {tmp_path}/pvc, claim: c}}}}\n"
    text = f"cluster_type: runai\ngpu_type: h100\n{runai}"
    unsigned, gone, outside = cluster_fit.check(asked(f"{text}install: {tmp_path}/x\n", workloads))
    assert "no job can be submitted to Run:ai now: APP_SECRET is not set" in unsigned
    assert f"the volume w is not mounted here: no folder {tmp_path}/pvc" in gone
    assert f"install: {tmp_path}/x is not on the volume {tmp_path}/pvc" in outside
    (tmp_path / "pvc").mkdir()
    assert cluster_fit.check(asked(f"{text}install: {tmp_path}/pvc/x\n", workloads)) == [unsigned]


@pytest.mark.parametrize(
    ("project", "secret", "told"),
    [
        ("benchmarks", "s3cret", None),
        ("mine", "s3cret", "this access key sees no project 'mine' in Run:ai (runai.project in the answers names it"),
        ("benchmarks", "bad", "Run:ai does not sign in 'me' with this secret"),
    ],
)
def test_what_runai_says_of_the_answers(
    tmp_path: Path, workloads: dict[str, Workload], project: str, secret: str, told: str | None
) -> None:
    with serve(ControlPlane(tmp_path / "pods", has_pods=False)) as plane:
        section = f"base_url: {plane.url}, project: {project}, pvc: {{name: w, path: {tmp_path}, claim: c}}"
        text = f"cluster_type: runai\ngpu_type: h100\ninstall: {tmp_path}/x\nrunai: {{{section}}}\n"
        found = [*runai_fit.check(asked(text, workloads), {"APP_ID": "me", "APP_SECRET": secret})]
    assert len(found) == (told is not None)
    assert all(str(told) in one for one in found)


@pytest.mark.parametrize("open_still", ["", "gpu_type: h100\nnode_architecture: x86_64\n"])
def test_the_file_and_line_are_told_before_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_still: str
) -> None:
    """Also where GPU type and architecture would be those of the partition that is not there."""
    monkeypatch.setattr(slurm_fit, "find_slurm", lambda **_: FOUND)
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: FOUND)
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


def test_all_that_is_wrong_is_told_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster's part too, where another key or a workload is wrong."""
    monkeypatch.setattr(slurm_fit, "find_slurm", lambda **_: FOUND)
    path = tmp_path / "answers.yaml"
    path.write_text(f"{KNOWN.replace('/x', str(tmp_path / 'x'))}slurm:\n  account: teem\n  qoss: high\n")
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, ("slurm.gpu.partition=btch", "workloads=[lama3.1]"), terminal=False, dry_run=True)
    told = "\n".join(map(str, caught.value.faults))
    assert "qoss" in told
    assert "lama3.1" in told
    assert "--set slurm.gpu.partition: Slurm has no partition 'btch'" in told
    assert len(caught.value.faults) == 3
    assert "note: slurm.account: 'teem' is not one of your accounts; did you mean 'team'?" in capsys.readouterr().err


def test_what_is_given_is_held_against_the_cluster_before_the_first_question(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the cluster type itself is still to be asked."""
    here = Detected(home=home, cwd=tmp_path, machine=find_machine(), slurm=FOUND)
    monkeypatch.setattr("llmb_installer.detect.look.look", lambda *_: here)
    monkeypatch.setattr("llmb_installer.wizard.ask", None)
    given = ("slurm.gpu.partition=btch", "slurm.account=teem")
    with pytest.raises(InputFaults, match=r"^--set slurm\.gpu\.partition: Slurm has no partition 'btch'$"):
        gather.gather(None, None, given, terminal=True, dry_run=True)
    assert "note: slurm.account: 'teem' is not one of your accounts" in capsys.readouterr().err


RUNAI = "runai: {base_url: https://h/api/v1, project: p, pvc: {name: w, path: /w, claim: c}}"


@pytest.mark.parametrize(
    ("kind", "gpu_type", "own", "wants"),
    [
        ("runai", "cpu", "", True),
        ("runai", "cpu", "venvs: {torch: /w/torch}", False),
        ("runai", "cpu", "venv_path: /w/torch", False),
        ("runai", "h100", "", False),
        ("slurm", "cpu", "", False),
    ],
)
def test_runai_without_gpus_wants_packages_that_nemos_image_lacks(
    kind: str, gpu_type: str, own: str, wants: bool
) -> None:
    section = RUNAI if kind == "runai" else ""
    text = f"cluster_type: {kind}\ngpu_type: {gpu_type}\n{section}\nworkloads: {{config: {{pretrain_a: {{{own}}}}}}}\n"
    config = typed.read(ClusterConfig, yamlfile.parse(text, name="c.yaml"))
    nemo, other = (
        ImageStep(reference=reference, architecture="x86_64", target=None, workloads=(key,))
        for reference, key in (("nvcr.io/nvidia/nemo:25.04.01", "pretrain_a"), ("h/torch:1", "pretrain_b"))
    )
    keys = runai_fit.without_torch(config, [nemo, other])
    assert keys == (("pretrain_a",) if wants else ())
    said = show.summary(Path("/w/llmb"), InstallRecord(), ("pretrain_a", "pretrain_b"), keys)
    assert ("note: without GPUs" in said and "torch>=2.4" in said) == wants
    assert said.endswith(
        f"Next: llmb-run submit-all --min-scale {'--image IMAGE ' if wants else ''}--install /w/llmb --wait"
    )
