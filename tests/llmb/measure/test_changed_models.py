# SPDX-License-Identifier: Apache-2.0
"""Settings that change model, batch or sequence change the figures of a run with them, and a run
of another model is never judged as the workload's table says.
"""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from llmb.contract.job import Job
from llmb.contract.record import RunRecord

Command = Callable[..., "subprocess.CompletedProcess[str]"]
FIGURES = ("tokens_per_second", "model_flops", "model_tflops_per_gpu", "mfu")
SECONDS = 2.746  # of the published figure
STEP = (
    "Training epoch 0, iteration {}/49 | lr: 0.0003 | train_step_timing in s: 2.746 |"
    " reduced_train_loss: 10.0\n"
)
LOG = "".join(STEP.format(number) for number in range(50))


class HandMade(Protocol):
    """The fixture of conftest.py."""

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(
        self, run_id: str, job: Job, log: str | None, state: Any = ..., **how: Any
    ) -> RunRecord: ...
    def measured(self, run_id: str, seconds: float, *where: Any, **how: Any) -> RunRecord: ...


@pytest.fixture
def submit(install: HandMade) -> Callable[..., None]:
    """Writes a run of 15b with these settings by dotted path, as fast as the published one."""

    def write(run_id: str, dotted: Mapping[str, Any], framework: str = "nemo") -> None:
        job = replace(install.job("nemotron4_15b", "bf16", 16), dotted=dotted, framework=framework)
        install.run(run_id, job, LOG)

    return write


@pytest.fixture
def row(run: Command) -> Callable[..., dict[str, Any]]:
    """Returns the result of a run, as JSON."""

    def read(run_id: str) -> dict[str, Any]:
        results = json.loads(run("results", run_id, "--format", "json").stdout)["results"]
        (found,) = results
        return dict(found)

    return read


@pytest.mark.parametrize(
    ("dotted", "changed", "named"),
    [
        ({"model.config.hidden_size": 8192}, "flops", "model.config.hidden_size is 8192, not the"),
        ({"model.config.num_layers": 2}, "flops", "model.config.num_layers is 2, not the table's"),
        ({"model.config.seq_length": 1024}, "tokens", "model.config.seq_length is 1024, not the"),
        ({"data.global_batch_size": 32}, "tokens", "data.global_batch_size is 32, not the table's"),
        ({"model.config.new_kind": 1}, "nothing", "model.config.new_kind is 1, not the table's"),
        ({"trainer.plugins.fp8": "hybrid"}, "peak", "trainer.plugins.fp8 is hybrid, not the"),
        ({"data.rampup_batch_size": "[8]"}, "lost", "data.rampup_batch_size is [8], not the"),
    ],
)
def test_a_run_of_another_model_has_figures_of_its_own_and_no_ratio(
    dotted: dict[str, Any], changed: str, named: str, submit: Any, row: Any
) -> None:
    submit("u1", {})
    submit("d1", dotted)
    usual, own = row("u1"), row("d1")
    assert usual["verdict"] == "PASS"
    assert (own["verdict"], own["ratio"], own["reference"]) == ("NO_REFERENCE", None, None)
    assert named in own["verdict_reason"]
    assert own["configuration"]["dotted"] == dotted
    same = {name for name in FIGURES if own[name] == usual[name] and own[name] is not None}
    assert (
        same
        == {
            "flops": {"tokens_per_second"},
            "tokens": {"model_flops"} if "data.global_batch_size" in dotted else set(),
            "nothing": {"tokens_per_second"},
            "peak": {"tokens_per_second", "model_flops", "model_tflops_per_gpu"},
            "lost": {"model_flops"},
        }[changed]
    )
    missing = {name for name in FIGURES if own[name] is None}
    assert missing == {
        "nothing": {"model_flops", "model_tflops_per_gpu", "mfu"},
        "peak": {"mfu"},
        "lost": {"tokens_per_second", "model_tflops_per_gpu", "mfu"},
    }.get(changed, set())


def test_half_of_the_batch_is_half_of_the_tokens(submit: Any, row: Any) -> None:
    submit("u1", {})
    submit("d1", {"data.global_batch_size": 32, "model.config.seq_length": 2048})
    usual, own = row("u1"), row("d1")
    assert own["tokens_per_second"] == pytest.approx(usual["tokens_per_second"] / 4)
    assert (own["configuration"]["gbs"], own["configuration"]["seq_length"]) == (32, 2048)


@pytest.mark.parametrize(
    "dotted",
    [
        {"optim.config.lr": 1e-4},
        {"model.config.bias_dropout_fusion": True},
        {"model.config.recompute_num_layers": 4},
        {"model.config.hidden_size": 6144},
    ],
)
def test_settings_that_leave_the_model_as_it_is_stay_comparable(
    dotted: dict[str, Any], submit: Any, row: Any, run: Command
) -> None:
    submit("u1", {})
    submit("d1", dotted)
    usual, own = row("u1"), row("d1")
    assert [own[name] for name in FIGURES] == [usual[name] for name in FIGURES]
    assert (own["verdict"], own["repeats"]) == ("PASS", 1)
    ((name, value),) = dotted.items()
    assert f"{name} {value}, not the table's" in run("explain", "d1").stdout
    compared = json.loads(run("compare", "d1", "u1", "--format", "json").stdout)["comparisons"]
    assert compared[0]["differences"] == [f"{name} {value}, unset in the reference"]


def test_runs_of_the_same_other_model_are_compared_with_each_other(
    submit: Any, run: Command
) -> None:
    submit("d1", {"model.config.hidden_size": 8192})
    submit("d2", {"model.config.hidden_size": 8192, "optim.config.lr": 1e-4})
    submit("e1", {"model.config.hidden_size": 4096})
    (first,) = json.loads(run("compare", "d1", "d2", "--format", "json").stdout)["comparisons"]
    assert (first["verdict"], first["ratio"]) == ("PASS", 1.0)
    (other,) = json.loads(run("compare", "d1", "e1", "--format", "json").stdout)["comparisons"]
    assert (other["verdict"], other["ratio"]) == ("NO_REFERENCE", None)
    assert "model.config.hidden_size is 8192, not 4096" in other["verdict_reason"]


def test_explain_computes_with_the_settings_of_the_run(submit: Any, run: Command) -> None:
    submit("d1", {"data.global_batch_size": 32})
    assert "batch 32 / 2.746 s" in run("explain", "d1").stdout
    submit("d2", {"model.config.new_kind": 1})
    printed = run("explain", "d2").stdout
    assert "unknown: model.config.new_kind changes the model" in printed


def _logs(folder: Path, count: int, *arguments: str, env: Mapping[str, str] | None = None) -> None:
    """Write runs of Megatron-Bridge with the launcher's file beside each."""
    for number in range(count):
        place = folder / f"run{number}-{len(list(folder.iterdir())) if folder.exists() else 0}"
        place.mkdir(parents=True)
        write_log(place / f"log-{NAME}_{700 + number}_0.out")
        job_config = {"mbridge_args": list(arguments), "env_overrides": dict(env or {})}
        config = {
            "job_info": {"job_id": str(700 + number)},
            "workload_info": {"framework": "megatron_bridge"},
            "cluster_info": {"gpu_type": "gb300"},
            "model_info": {"gpu_type": "gb300"},
            "job_config": job_config,
        }
        (place / f"llmb-config_{700 + number}.yaml").write_text(yaml.safe_dump(config))


NAME = "pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_mbs2_gbs256_bridge26.02.01"
BRIDGE_SECONDS = 256 * 8192 / 64 / 5243


def write_log(path: Path) -> None:
    lines = (
        f" [2026-11-22 09:41:{number:02d}] iteration {number:8d}/{50:8d} | consumed samples:"
        f" {256 * number:12d} | elapsed time per iteration (ms): {1000 * BRIDGE_SECONDS:.1f} |"
        f" learning rate: 3.000000E-04 | global batch size: {256:5d} | lm loss: 1.187123E+01 |"
        f" loss scale: 1.0 | grad norm: 0.123 | number of skipped iterations: {0:3d} | number"
        f" of nan iterations: {0:3d} |\n"
        for number in range(1, 51)
    )
    path.write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "verdict", "reason"),
    [
        ((), "PASS", ""),
        (("optimizer.lr=1e-5", "--record_memory"), "PASS", ""),
        (("model.hidden_size=4096",), "NO_REFERENCE", "model.hidden_size is 4096, not the table's"),
        (("--num_layers=2",), "NO_REFERENCE", "num_layers is 2, not the table's"),
        (("model.seq_length=4096",), "NO_REFERENCE", "model.seq_length is 4096, not the table's"),
    ],
)
def test_parse_reads_the_arguments_beside_a_log(
    arguments: tuple[str, ...], verdict: str, reason: str, tmp_path: Path, llmb_here: Command
) -> None:
    _logs(tmp_path / "ten", 10, *arguments)
    done = llmb_here("parse", tmp_path / "ten", "--format", "json")
    results = json.loads(done.stdout)["results"]
    assert len(results) == 10
    assert {row["verdict"] for row in results} == {verdict}
    assert all(reason in row["verdict_reason"] for row in results)
    flops = {row["model_flops"] for row in results}
    assert len(flops) == 1


def test_logs_with_other_arguments_or_variables_are_no_repeats(
    tmp_path: Path, llmb_here: Command
) -> None:
    _logs(tmp_path, 2)
    _logs(tmp_path, 3, "optimizer.lr=1e-5")
    _logs(tmp_path, 1, env={"NCCL_ALGO": "Ring", "HF_TOKEN": "hf_" + 30 * "a"})
    done = llmb_here("parse", tmp_path, "--format", "json")
    results = json.loads(done.stdout)["results"]
    assert sorted(row["repeats"] for row in results) == [1, 2, 2, 3, 3, 3]
    assert "hf_aaa" not in done.stdout
    (own,) = (row for row in results if row["configuration"]["env"])
    assert own["configuration"]["env"] == {"NCCL_ALGO": "Ring"}
