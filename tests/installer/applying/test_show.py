# SPDX-License-Identifier: Apache-2.0
"""Tests of the command that an installation names as the next one."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.core import yamlfile
from llmb.plan.published_tables import read_published
from llmb_installer.answers.read import read_answers
from llmb_installer.applying import show
from llmb_installer.planning.plan import load_offered, resolve_intent
from llmb_installer.record import InstallRecord

ON_H100 = (
    "cluster_type: slurm\ngpu_type: h100\nnode_architecture: x86_64\nslurm: {container: pyxis}"
)
ON_A100 = ON_H100.replace("h100", "a100")
ON_CPUS = "cluster_type: slurm\ngpu_type: cpu\nnode_architecture: x86_64\nslurm: {container: none}"
HERE = "cluster_type: local\ngpu_type: h100\nnode_architecture: x86_64"


@pytest.mark.parametrize(
    ("answers", "command"),
    [
        (ON_H100, "submit -w pretrain_llama3.1 -s smoke --scale 1"),
        # the only one with rows for it
        (ON_A100, "submit -w pretrain_nemotron4 -s smoke --scale 1"),
        (ON_CPUS, "submit --min-scale"),
        (HERE, "submit --min-scale"),
    ],
)
def test_a_new_cluster_runs_smoke_first(answers: str, command: str, tmp_path: Path) -> None:
    document = yamlfile.parse(f"install: {tmp_path}\n{answers}\n", name="answers.yaml")
    asked = read_answers(document, workloads=load_offered().workloads)
    intent, _ = resolve_intent(asked, load_offered())
    text = show.summarize(tmp_path, InstallRecord(), intent.workloads, (), intent.smoke)
    assert shlex.split(text)[-3 - len(command.split()) :] == [
        *command.split(),
        "--install",
        str(tmp_path),
        "--wait",
    ]
    assert f"export LLMB_INSTALL={tmp_path}\n" in text


def test_a_workload_that_is_not_ready_is_not_named(tmp_path: Path) -> None:
    text = show.summarize(tmp_path, InstallRecord(), ("pretrain_b",), (), ("pretrain_a",))
    assert "submit --min-scale" in text
    assert "pretrain_a" not in text


@pytest.mark.parametrize("gpu_type", ["cpu", "h100"])
def test_runs_without_gpus_have_no_verdict(
    gpu_type: str, tmp_path: Path, wording: Callable[..., None]
) -> None:
    text = show.summarize(tmp_path, InstallRecord(), ("pretrain_a",), gpu_type=gpu_type)
    assert text.count("\nnote: ") == (gpu_type == "cpu")
    wording("llmb-install", text)


def test_runs_with_limits_of_their_own_have_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    for key, limit in (("limited", ", minimum: 1"), ("free", "")):
        (benchmarks / f"{key}.yaml").write_text(
            f"key: {key}\ntitle: T\nlaunch: {{program: x}}\nmetrics: [{{name: rate{limit}}}]\n"
        )
    offered = load_offered(tmp_path)
    text = f"cluster_type: local\ngpu_type: cpu\ninstall: {tmp_path}\nworkloads: [limited, free]\n"
    asked = read_answers(yamlfile.parse(text, name="a.yaml"), workloads=offered.workloads)
    intent, _ = resolve_intent(asked, offered)
    assert intent.judged == ("limited",)
    for key, notes in (("limited", 0), ("free", 1)):
        summary = show.summarize(
            tmp_path, InstallRecord(), (key,), gpu_type="cpu", judged=intent.judged
        )
        assert summary.count("\nnote: ") == notes


def test_no_figure_is_published_for_cpus() -> None:
    figures = [
        figure for own in load_offered().workloads.values() for figure in read_published(own)
    ]
    assert figures
    assert "cpu" not in {figure.gpu_type for figure in figures}
