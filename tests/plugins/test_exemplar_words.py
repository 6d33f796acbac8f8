# SPDX-License-Identifier: Apache-2.0
"""Tests that commands of NVIDIA's llmb-run and llmb-install are answered with the whole command in
our words.
"""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.core import yamlfile
from llmb.plugins.loader import load_plugins
from llmb_exemplar import words
from llmb_installer import cli as installer
from llmb_installer.answers.layers import override_by_settings
from llmb_installer.answers.read import read_answers

Wording = Callable[..., None]


@pytest.mark.parametrize(
    ("program", "unknown", "given", "ours"),
    [
        (
            "llmb-run",
            "--dryrun",
            "submit-all --max-scale 256 --dryrun",
            "submit-all --max-scale 256 --dry-run",
        ),
        (
            "llmb-run",
            "-r",
            "submit -w a -r3 --dtype fp8",
            "submit --workloads a --repeats 3 --dtype fp8",
        ),
        (
            "llmb-run",
            "--model_size",
            "single --model_size=15b -r 2",
            "single --size 15b --repeats 2",
        ),
        (
            "llmb-run",
            "exemplar",
            "exemplar -r 2 --dry-run",
            "submit --scale 512 --wait --repeats 2 --dry-run",
        ),
        (
            "llmb-run",
            "--mbridge-arg",
            "submit -w a --scale 8 --mbridge-arg=--micro_batch_size=2",
            "submit --workloads a --scale 8 --set mbs=2",
        ),
        (
            "llmb-run",
            "--mbridge-arg",
            "submit --scale 8 --mbridge-arg '--tensor_model_parallel_size 4'",
            "submit --scale 8 --set tp=4",
        ),
        (
            "llmb-run",
            "--mbridge-arg",
            "submit --scale 8 --mbridge-arg optimizer.lr=1e-4",
            "submit --scale 8 --set optimizer.lr=1e-4",
        ),
        ("llmb-run", "--verbose", "list --verbose", "list"),
        ("llmb-run", "exemplar", "-v exemplar", "-v submit --scale 512 --wait"),
        ("llmb-run", "log", "jobs log 4711 --follow", "jobs logs 4711 --follow"),
        ("llmb-run", "log", "jobs log 4711 --tail 20", "jobs logs 4711 -n 20"),
        ("llmb-run", "refresh", "jobs refresh 4711 4712", "jobs"),
        ("llmb-run", "--install-completion", "--install-completion", "completion bash"),
        (
            "llmb-install",
            "express",
            "express /shared/llmb --workloads all",
            "--install /shared/llmb --yes",
        ),
        ("llmb-install", "express", "express -w a,b", "--set 'workloads=[a,b]' --yes"),
        ("llmb-install", "express", "express --install-path '/a b'", "--install '/a b' --yes"),
        (
            "llmb-install",
            "-i",
            "-v -i /images express /work",
            "--set image_folder=/images --install /work --yes",
        ),
        ("llmb-install", "--play", "--play config.yaml", "--config config.yaml --yes"),
        (
            "llmb-install",
            "--play",
            "--play=config.yaml -i /x",
            "--config config.yaml --yes --set image_folder=/x",
        ),
    ],
)
def test_the_whole_command_is_in_our_words(
    program: str, unknown: str, given: str, ours: str
) -> None:
    hint = words.hint_for(program, unknown, shlex.split(given))
    assert hint is not None
    assert hint.partition("  (")[0] == f"write: {program} {ours}"


@pytest.mark.parametrize(
    ("program", "unknown", "given"),
    [
        ("llmb-run", "--fromat", "list --fromat json"),
        ("llmb-run", "lst", "lst"),
        ("llmb-run", "exemplar", "list -w exemplar x"),  # not the command
        ("stranger", "--dryrun", "--dryrun"),
    ],
)
def test_what_is_not_theirs_has_no_such_hint(program: str, unknown: str, given: str) -> None:
    assert words.hint_for(program, unknown, given.split()) is None


def test_an_option_that_the_command_has_is_kept() -> None:
    hint = words.hint_for("llmb-run", "-r", ["single", "-w", "a", "-r", "3"], existing=["-w"])
    assert hint == "write: llmb-run single -w a --repeats 3"


@pytest.mark.parametrize(
    "given", ["express /work --workloads all", "--play answers.yaml", "-i /images"]
)
def test_the_installer_answers_too(
    given: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wording: Wording,
) -> None:
    monkeypatch.setattr(sys, "argv", ["llmb-install", *given.split()])
    monkeypatch.setattr(installer, "end_in_order", lambda: None)
    with pytest.raises(SystemExit) as ended:
        installer.main()
    assert ended.value.code == 2
    wording("llmb-install", capsys.readouterr().err)


PLAYFILE = """\
venv_type: uv
install_path: /lustre/user/llmb
slurm_info:
  slurm:
    account: myaccount
    gpu_partition: gpu
    cpu_partition: cpu
    gpu_partition_gres: 8
    cpu_partition_gres: null
    node_architecture: x86_64
gpu_type: h100
install_method: slurm
selected_workloads: [nemotron, llama3.1]
env_vars: {HF_TOKEN: hf_abc, NCCL_DEBUG: WARN}
"""
OLDER = """\
venv_type: uv
install_path: /lustre/user/llmb
install_method: slurm
selected_workloads: [nemotron, llama3.1]
environment_vars: {HF_TOKEN: hf_abc, NCCL_DEBUG: WARN}
slurm: {account: myaccount, gpu_partition: gpu, gpu_partition_gres: 8, cpu_partition: cpu}
gpu_type: h100
node_architecture: x86_64
"""


@pytest.mark.parametrize("text", [PLAYFILE, OLDER])
def test_recorded_answers_become_options_that_the_installer_reads(
    text: str, tmp_path: Path
) -> None:
    """The keys are those of the headless installation of releases since 25.05."""
    file = tmp_path / "prod config.yaml"
    file.write_text(text)
    hint = words.hint_for("llmb-install", "--play", ["--play", str(file)]) or ""
    line, _, _ = hint.removeprefix("write: ").partition("  (")
    program, *options = shlex.split(line)
    assert (program, options[-1]) == ("llmb-install", "--yes")
    assert set(options[:-1:2]) == {"--set"}
    document = override_by_settings(yamlfile.parse("{}", name="answers"), options[1:-1:2])
    read = read_answers(document, workloads=load_plugins(builtin_plugins()).workloads())
    assert (read.cluster_type, str(read.install)) == ("slurm", "/lustre/user/llmb")
    assert (read.gpu_type, read.venv_type, read.node_architecture) == ("h100", "uv", "x86_64")
    assert read.slurm is not None
    assert read.slurm.account == "myaccount"
    assert read.slurm.gpu.given == {"partition": "gpu", "gres": 8}
    assert read.slurm.cpu.given == {"partition": "cpu"}
    assert read.method == "srun"
    assert read.workloads == ("pretrain_nemotron4", "pretrain_llama3.1")
    assert read.environment == {"NCCL_DEBUG": "WARN"}
    assert "hf_abc" not in hint


@pytest.mark.parametrize("text", [None, "- a list\n", "gpu: [\n", "gpu_type: h100\n", ""])
def test_a_file_without_such_answers_is_named_as_ours(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    if text is not None:
        file.write_text(text)
    hint = words.hint_for("llmb-install", "--play", ["--play", str(file)]) or ""
    assert hint.startswith(f"write: llmb-install --config {file} --yes")
