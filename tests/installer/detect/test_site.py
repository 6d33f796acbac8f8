# SPDX-License-Identifier: Apache-2.0
"""Tests of settling answers: GPU type, architecture, tool, and the site of an installation."""

import dataclasses
import platform
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.builtin.nemo.nemo_needs import versions
from llmb.builtin.slurm.partitions import read
from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb.errors import InputFaults, describe
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import Answers, PackageVersions
from llmb_installer.detect import scheduler
from llmb_installer.detect.auto import ARCHITECTURE_UNDETECTED, GPU_UNDETECTED, resolve_auto
from llmb_installer.detect.machine import find_gpu, gpu_of_products
from llmb_installer.detect.scheduler import NodeFound, SlurmFound
from llmb_installer.detect.site import make_site
from llmb_installer.detect.slurm_checks import check_slurm


@pytest.mark.parametrize(
    ("names", "gpu_type"),
    [
        ("NVIDIA H100 80GB HBM3\nNVIDIA H100 80GB HBM3\n", "h100"),
        ("NVIDIA A100-SXM4-80GB\n", "a100"),
        ("NVIDIA GB200\n", "gb200"),
        ("NVIDIA B200\n", "b200"),
        ("\n", "cpu"),
    ],
)
def test_the_type_of_a_product_name(names: str, gpu_type: str) -> None:
    found = gpu_of_products(names)
    assert (found.gpu_type, found.note) == (gpu_type, "")


def test_an_unknown_gpu_has_a_note() -> None:
    found = gpu_of_products("Quadro RTX 6000\n")
    assert found.gpu_type == "cpu"
    assert "Quadro RTX 6000" in found.note


def nvidia_smi(folder: Path, text: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_auto_asks_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpu("auto").gpu_type == "cpu"
    nvidia_smi(tmp_path, "echo 'NVIDIA H100 PCIe'")
    assert find_gpu("auto").gpu_type == "h100"
    assert find_gpu("cpu").gpu_type == "cpu"


def test_a_driver_without_a_gpu_has_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nvidia_smi(tmp_path, "echo 'no-devices-found'; exit 6")
    found = find_gpu("auto")
    assert found.gpu_type == "cpu"
    assert "no-devices-found" in found.note, "the reason that nvidia-smi prints"


def asked(text: str, workloads: dict[str, Workload]) -> Answers:
    return read_answers(yamlfile.parse(f"install: /x\n{text}", name="a.yaml"), workloads=workloads)


UNDETECTED = [("gpu_type", GPU_UNDETECTED), ("node_architecture", ARCHITECTURE_UNDETECTED)]
BIG = SlurmFound(
    partitions=read(
        "batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\n"
        "arm|up|infinite|1-infinite|4|idle|gpu:gb200:4|g[1-4]|none\n"
        "all|up|infinite|1-infinite|8|idle|gpu:gb200:4|g[1-4]|none\n"
        "all|up|infinite|1-infinite|8|idle|gpu:h100:8|n[1-4]|none\n"
    ),
    nodes=(
        NodeFound(name="n1", architecture="x86_64", partitions=("batch", "all")),
        NodeFound(name="g1", architecture="aarch64", partitions=("arm", "all")),
    ),
)


def test_this_machine_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answers, notes = resolve_auto(asked("cluster_type: local\n", workloads))
    assert (answers.gpu_type, answers.venv_type, answers.node_architecture) == (
        "cpu",
        "venv",
        platform.machine(),
    )
    assert notes == []
    (tmp_path / "uv").touch(mode=0o755)
    assert resolve_auto(asked("cluster_type: local\n", workloads))[0].venv_type == "uv"


@pytest.mark.parametrize(
    ("section", "gpu_type", "machine"),
    [("", "h100", "x86_64"), ("slurm: {gpu: {partition: arm}}\n", "gb200", "aarch64")],
)
def test_slurm_is_asked_about_its_nodes(
    monkeypatch: pytest.MonkeyPatch,
    workloads: dict[str, Workload],
    section: str,
    gpu_type: str,
    machine: str,
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: BIG)
    answers, _ = resolve_auto(asked(f"cluster_type: slurm\n{section}", workloads))
    assert (answers.gpu_type, answers.node_architecture) == (gpu_type, machine)


def test_what_slurm_does_not_report_is_a_fault_at_its_key(
    monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload], wording: Callable[..., None]
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: BIG)
    with pytest.raises(InputFaults) as caught:
        resolve_auto(asked("cluster_type: slurm\nslurm: {partition: all}\n", workloads))
    assert [(fault.place, fault.code) for fault in caught.value.faults] == UNDETECTED
    wording("llmb-install", describe(caught.value))
    monkeypatch.setattr(
        scheduler, "find_slurm", lambda **_: SlurmFound(fault="Slurm does not answer")
    )
    with pytest.raises(InputFaults) as silent:
        resolve_auto(asked("cluster_type: slurm\n", workloads))
    assert [(fault.place, fault.code) for fault in silent.value.faults] == UNDETECTED
    wording("llmb-install", describe(silent.value))


def test_slurm_is_not_asked_for_what_is_given(
    monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload]
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", None)
    text = "cluster_type: slurm\ngpu_type: gb200\nnode_architecture: aarch64\nslurm: {gres: 4}\n"
    assert resolve_auto(asked(text, workloads))[0].node_architecture == "aarch64"


@pytest.mark.parametrize(
    ("sinfo", "notes"),
    [(None, 1), ("echo 'no controller' >&2; exit 1", 1), ("true", 0)],
    ids=["no sinfo", "no controller", "it answers"],
)
def test_a_slurm_that_does_not_answer_has_a_note(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workloads: dict[str, Workload],
    sinfo: str | None,
    notes: int,
    wording: Callable[..., None],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if sinfo is not None:
        for name in ("sinfo", "scontrol"):
            (tmp_path / name).write_text(f"#!/bin/sh\n{sinfo}\n")
            (tmp_path / name).chmod(0o755)
    found = check_slurm(
        asked("cluster_type: slurm\ngpu_type: h100\nnode_architecture: x86_64\n", workloads)
    )
    assert len(found) == notes
    if notes:
        wording("llmb-install", found[0])


def test_a_gpu_type_without_a_gpu_has_a_note(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workloads: dict[str, Workload],
    wording: Callable[..., None],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _, notes = resolve_auto(asked("cluster_type: local\ngpu_type: h100\n", workloads))
    (note,) = notes
    wording("llmb-install", note)


def test_a_gpu_type_of_slurm_that_llmb_does_not_know(
    monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload], wording: Callable[..., None]
) -> None:
    new = SlurmFound(
        partitions=read("new*|up|infinite|1-infinite|4|idle|gpu:l40s:8|n[1-4]|none\n"),
        nodes=(NodeFound(name="n1", architecture="x86_64", partitions=("new",)),),
    )
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: new)
    with pytest.raises(InputFaults) as caught:
        resolve_auto(asked("cluster_type: slurm\n", workloads))
    (fault,) = caught.value.faults
    assert (fault.code, fault.key, fault.value) == ("gpu-type-unknown", "gpu_type", "l40s")
    wording("llmb-install", describe(caught.value))
    answers, _ = resolve_auto(
        asked("cluster_type: slurm\ngpu_types: {l40s: {like: h100}}\n", workloads)
    )
    assert answers.gpu_type == "l40s"


def test_a_gpu_type_that_few_workloads_have_rows_for(
    monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload]
) -> None:
    new = SlurmFound(
        partitions=read("new*|up|infinite|1-infinite|4|idle|gpu:h200:8|n[1-4]|none\n"),
        nodes=(NodeFound(name="n1", architecture="x86_64", partitions=("new",)),),
    )
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: new)
    answers, notes = resolve_auto(asked("cluster_type: slurm\n", workloads))
    assert answers.gpu_type == "h200"
    assert any("gpu_types: {h200: {like: h100}}" in note for note in notes)
    _, notes = resolve_auto(
        asked("cluster_type: slurm\ngpu_types: {h200: {like: h100}}\n", workloads)
    )
    assert not any("like" in note for note in notes)


def test_the_site_of_a_gpu_type_of_its_own(workloads: dict[str, Workload]) -> None:
    text = (
        "cluster_type: slurm\ngpu_type: h200\ngpu_types: {h200: {like: h100, gpus_per_node: 4}}\n"
        "node_architecture: aarch64\nversions: {nemo_run: 0.7.0}\ntokenizer: hub\n"
    )
    answers = asked(text, workloads)
    site = make_site(answers, answers.gpu_type)
    assert (site.gpu_type, site.gpus_per_node, site.node_architecture, site.container) == (
        "h100",
        4,
        "aarch64",
        True,
    )
    assert (site.settings["nemo_run"], site.settings["tokenizer"]) == ("0.7.0", "hub")
    assert "megatron_core" not in site.settings, "llmb's own version is used"


def test_runai_takes_the_usual_architecture(workloads: dict[str, Workload]) -> None:
    text = (
        "cluster_type: runai\ngpu_type: gb200\n"
        "runai: {base_url: https://h/api/v1, project: p, pvc: {name: n, path: /p, claim: c}}\n"
    )
    answers, notes = resolve_auto(asked(text, workloads))
    assert answers.node_architecture == "aarch64"
    assert len(notes) == 1


def test_every_version_of_nemos_environment_is_a_setting() -> None:
    assert {*versions().packages} <= {field.name for field in dataclasses.fields(PackageVersions)}


def test_plugins_read_the_framework_and_its_release(workloads: dict[str, Workload]) -> None:
    text = "cluster_type: slurm\ngpu_type: h100\nnode_architecture: x86_64\n"
    settings = make_site(asked(text, workloads), "h100").settings
    assert (settings["framework"], "bridge_release" in settings) == ("auto", False)
    settings = make_site(
        asked(f'{text}framework: both\nbridge_release: "26.02.01"\n', workloads), "h100"
    ).settings
    assert (settings["framework"], settings["bridge_release"]) == ("both", "26.02.01")


@pytest.mark.parametrize(
    ("gres", "proposed"),
    [("(null)", "cpu"), ("gpu:8", "h100"), ("gpu:h200:8", "h200")],
    ids=["none", "no type", "two"],
)
def test_a_gpu_type_is_proposed(
    monkeypatch: pytest.MonkeyPatch,
    workloads: dict[str, Workload],
    gres: str,
    proposed: str,
    wording: Callable[..., None],
) -> None:
    """cpu where Slurm shows no GPUs, a type of the partition where it has several."""
    lines = [f"a*|up|infinite|1-infinite|4|idle|{gres}|n[1-4]|none"]
    lines += (
        ["a*|up|infinite|1-infinite|4|idle|gpu:a100:4|m[1-4]|none"] if proposed == "h200" else []
    )
    monkeypatch.setattr(
        scheduler, "find_slurm", lambda **_: SlurmFound(partitions=read("\n".join(lines)))
    )
    with pytest.raises(InputFaults) as caught:
        resolve_auto(asked("cluster_type: slurm\nnode_architecture: x86_64\n", workloads))
    assert [(fault.key, fault.code, fault.value) for fault in caught.value.faults] == [
        ("gpu_type", GPU_UNDETECTED, proposed)
    ]
    wording("llmb-install", describe(caught.value))
