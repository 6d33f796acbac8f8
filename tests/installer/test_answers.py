# SPDX-License-Identifier: Apache-2.0
"""Tests of the answers file: what it may say, what its faults say, and the layer above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmb import yamlfile
from llmb.errors import InputFaults, UsageError, describe
from llmb_installer.answers import CPU_WHEELS, Answers, read_answers, to_yaml

KNOWN = ("pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh")
START = "cluster_type: local\ninstall: /somewhere\n"


def read(text: str, install: Path | None = None) -> Answers:
    return read_answers(yamlfile.parse(text, name="a.yaml"), install=install, known=KNOWN)


def test_little_is_enough() -> None:
    answers = read(START)
    assert answers.gpu_type == "auto"
    assert answers.workloads is None
    assert answers.torch_cpu_index == CPU_WHEELS
    assert answers.versions.torch.text == "2.13.0"


def test_one_version_leaves_the_other() -> None:
    versions = read(START + "versions: {torch: 2.9.1+cu126}\n").versions
    assert (versions.torch.text, versions.transformers.text) == ("2.9.1+cu126", "5.23.0")


@pytest.mark.parametrize("name", ["nemotron4", "Nemotron-4", "pretrain_nemotron4", "PRETRAINING_NEMOTRON.4"])
def test_a_workload_in_any_spelling(name: str) -> None:
    assert read(START + f"workloads: [{name}, nemotron_4]\n").workloads == ("pretrain_nemotron4",)


def test_the_option_is_over_the_file(tmp_path: Path) -> None:
    assert read(START, tmp_path).install == tmp_path
    assert read("cluster_type: local\n", tmp_path).install == tmp_path


def test_a_folder_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("cluster_type: local\ninstall: here\n").install == tmp_path.resolve() / "here"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("clustertype: local\n", "a.yaml:3", "did you mean 'cluster_type'?"),
        ("gpu_type: h1000\n", "a.yaml:3", "did you mean 'h100'?"),
        ("venv_type: uv\n", "a.yaml:3", "environments of uv cannot be made by this version"),
        ("workloads:\n- nemotron4\n- lama3.1\n", "a.yaml:5", "did you mean 'pretrain_llama3.1'?"),
        ("workloads: []\n", "a.yaml:3", "workloads is empty"),
        ("versions:\n  torch: 2.10\n", "a.yaml:4", "write the version in quotes"),
        ("versions:\n  torch: newest\n", "a.yaml:4", "'newest' is not a version"),
        ("versions:\n  torhc: 2.13.0\n", "a.yaml:4", "did you mean 'torch'?"),
        ("torch_index: nowhere\n", "a.yaml:3", "must be the URL of a package index"),
        ("torch_index: https://me:pass@host/simple\n", "a.yaml:3", "must not hold a user or password"),
        ("python: 3.10\n", "a.yaml:3", 'write a version in quotes ("3.12")'),
        ("environment: {HF_TOKEN: x}\n", "a.yaml:3", "environment.HF_TOKEN looks like a secret"),
        ("environment: {DEBUG: true}\n", "a.yaml:3", "put it in quotes"),
        ("cluster_name: a\ncluster_name: b\n", "a.yaml:4", "'cluster_name' stands twice"),
    ],
)
def test_a_fault_names_place_and_cure(text: str, place: str, message: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read(START + text)
    said = describe(caught.value)
    assert f"error: {place}: " in said
    assert message in said


@pytest.mark.parametrize("kind", ["slurm", "runai"])
def test_a_cluster_type_of_later(kind: str) -> None:
    with pytest.raises(InputFaults, match=f"a.yaml:1: cluster type {kind} cannot be installed by this version"):
        read(f"cluster_type: {kind}\ninstall: /somewhere\n")


def test_a_variable_in_the_folder_is_not_replaced() -> None:
    with pytest.raises(InputFaults, match=r"a.yaml:2: install: variables are not replaced"):
        read("cluster_type: local\ninstall: $SCRATCH/llmb\n")


def test_faults_are_told_together() -> None:
    with pytest.raises(InputFaults) as caught:
        read(START + "gpu_type: b201\nvenv_type: conda\nworkloads: [one, two]\n")
    assert len(caught.value.faults) == 4


@pytest.mark.parametrize("text", ["cluster_type: local\n", "cluster_type: local\ninstall:\n", ""])
def test_no_folder_to_install_into(text: str) -> None:
    with pytest.raises(UsageError, match="does not say where to install"):
        read(text)


def test_a_list_is_no_answer() -> None:
    with pytest.raises(InputFaults, match=r"a.yaml:1: must be a mapping"):
        read("- local\n")


def test_what_is_recorded_reads_the_same() -> None:
    text = START + 'python: "3.10"\ntorch_index: https://host/simple\ntorch_cpu_index: null\nworkloads: nemotron4\n'
    answers = read(text + "environment: {N: '1'}\nversions: {torch: '2.10'}\n")
    assert read(to_yaml(answers)) == answers
