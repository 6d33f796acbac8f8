# SPDX-License-Identifier: Apache-2.0
"""Tests of the layers of answers: the examples' files, options over them, and what is missing without a terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.errors import InputFaults, UsageError
from llmb.workload import Workload
from llmb_installer.answers import read_answers
from llmb_installer.gather import layers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(("name", "kind"), [("local", "local"), ("slurm", "slurm"), ("runai", "runai")])
def test_the_examples_are_answers(name: str, kind: str, workloads: dict[str, Workload]) -> None:
    answers = read_answers(layers(EXAMPLES / f"{name}.yaml"), known=workloads)
    assert answers.cluster_type == kind


def test_options_are_over_the_file(workloads: dict[str, Workload], tmp_path: Path) -> None:
    settings = ["slurm.account=mine", "versions.torch=2.10", "workloads=[llama3.1]", "slurm.mpi=", "install=/elsewhere"]
    answers = read_answers(layers(EXAMPLES / "slurm.yaml", tmp_path, settings), known=workloads)
    assert answers.slurm is not None
    assert (answers.slurm.account, answers.slurm.mpi) == ("mine", None)
    assert answers.slurm.option("partition") == "batch", "its neighbours stay"
    assert (answers.versions.torch.text, answers.workloads) == ("2.10", ("pretrain_llama3.1",))
    assert answers.install == tmp_path


@pytest.mark.parametrize("setting", ["account", "=x"])
def test_what_is_no_setting(setting: str) -> None:
    with pytest.raises(UsageError, match="is not of the form KEY=VALUE"):
        layers(None, None, [setting])


def test_a_wrong_setting_is_named(workloads: dict[str, Workload]) -> None:
    with pytest.raises(InputFaults, match=r"--set slurm\.acount: slurm\.acount: 'acount' is not a key here"):
        read_answers(layers(EXAMPLES / "slurm.yaml", None, ["slurm.acount=x"]), known=workloads)


def test_without_a_terminal_all_missing_keys_are_named(run_install: Install) -> None:
    done = run_install("--set", "cluster_type=runai")
    assert done.returncode == 2
    named = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    keys = ["install", "gpu_type", "runai.base_url", "runai.project", "runai.pvc"]
    assert named == [f"error: the answers: '{key}' is missing" for key in keys]
    assert "docs/install.md lists the keys" in done.stderr
