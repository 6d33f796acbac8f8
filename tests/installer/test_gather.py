# SPDX-License-Identifier: Apache-2.0
"""Tests of the layers of answers: the examples' files, options over them, and what is missing without a terminal."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llmb.errors import InputFaults, UsageError
from llmb.workload.spec import Workload
from llmb_installer import gather
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


def test_run_ai_s_variables_are_answers_without_a_terminal(run_install: Install, tmp_path: Path) -> None:
    """The variables that NVIDIA's page of Nemotron4 has its users export, as it spells their values."""
    named = {
        "BASE_URL": "https://nvidia.run.ai/api/v1",
        "APP_ID": "llmb-qa",
        "APP_SECRET": "x",
        "PROJECT_NAME": "llmb-testing",
        "PVC_DIR": f"{tmp_path}/nemo-run",
        "CUSTOM_MOUNT": f"workspace:{tmp_path}:nemo2-workspace-project-hprdj",
    }
    answers = tmp_path / "answers.yaml"
    given = ("--set", "cluster_type=runai", "--set", "gpu_type=h100")
    done = run_install(*given, "--dry-run", "--record", answers, **named)
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load(answers.read_text())
    assert written["install"] == f"{tmp_path}/nemo-run/llmb"
    assert written["runai"] == {
        "base_url": "https://nvidia.run.ai/api/v1",
        "project": "llmb-testing",
        "app_id": "llmb-qa",
        "pvc": {"name": "workspace", "path": str(tmp_path), "claim": "nemo2-workspace-project-hprdj"},
    }
    assert "runai.pvc from CUSTOM_MOUNT" in done.stderr


def test_what_is_given_is_over_the_variables(run_install: Install, tmp_path: Path) -> None:
    settings = ("cluster_type=runai", "gpu_type=h100", "runai.project=mine", f"install={tmp_path}/llmb")
    options = [word for setting in settings for word in ("--set", setting)]
    named = {"BASE_URL": "http://h", "PROJECT_NAME": "theirs", "CUSTOM_MOUNT": "w:/w:c", "PVC_DIR": "/w"}
    done = run_install(*options, "--dry-run", **named)
    assert done.returncode == 2
    assert "error: BASE_URL: runai.base_url: 'http://h' is not the address of an API" in done.stderr
    assert "runai.project" not in done.stderr
    done = run_install(*options, "--dry-run", **{**named, "BASE_URL": "https://h/api/v1", "CUSTOM_MOUNT": "w:c"})
    assert done.returncode == 2
    assert "error: CUSTOM_MOUNT: 'w:c' is not of the form name:path:claim" in done.stderr


def test_a_key_that_stands_twice_hides_no_other_fault(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("cluster_type: local\ninstall: /x\ncluster_name: a\ngpu_type: h1000\ncluster_name: b\n")
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, ("method=srun",), terminal=False, dry_run=True)
    places = [fault.place for fault in caught.value.faults]
    assert places == [f"{path}:5", f"{path}:4", "--set method"]


def test_a_faulty_file_is_told_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal too: no answer to a question could mend it."""
    monkeypatch.setattr("llmb_installer.wizard.ask", None)
    path = tmp_path / "answers.yaml"
    path.write_text("gpu_typ: h100\nworkloads: [lama]\n")
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, (), terminal=True, dry_run=True)
    assert [fault.place for fault in caught.value.faults] == [f"{path}:1", f"{path}:2"]
