# SPDX-License-Identifier: Apache-2.0
"""Trains a very small llama with NeMo's trainer on a CPU, through the program, and reads its
log.
"""

import json
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.samples import Samples
from llmb.contract.window import Window
from llmb.measure.facts import GRADIENT_NAN, invalid_because
from llmb.measure.log_reader import read_log
from llmb_testing.ports import hold_port, number_of

HERE = Path(__file__).parent
PADDED_VOCABULARY = 1152  # 1024 and the end of document, padded to a multiple of 128
STEPS = 5
# FLOPs of a step by NeMo's formula, which always takes llama 3's vocabulary of 128256.
STEP_FLOPS = (
    4 * 64 * 2 * 64**2 * (12 + 12 * 2 / 4 + 18 * 128 / 64 + 12 * 64 / 64 + 6 * 128256 / (2 * 64))
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def recipe(**changes: Any) -> dict[str, Any]:
    """A recipe.json for 221 thousand parameters; keywords replace its keys."""
    model = {
        "num_layers": 2,
        "hidden_size": 64,
        "ffn_hidden_size": 128,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "seq_length": 64,
        "cross_entropy_fusion_impl": "native",
        "attention_backend": None,
        "hybrid_override_pattern": None,
    }
    parallelism = {
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "vp": None,
        "ep": 1,
        "sequence_parallel": False,
        "embedding_in_pipeline_split": False,
        "loss_in_pipeline_split": False,
    }
    return {
        "program": "nemo_pretrain",
        "schema": 1,
        "name": "small",
        "release": None,
        "recipe": "llama3_8b",
        "model_recipe": "llama31_8b",
        "flops_model_name": "llama3",
        "nodes": 1,
        "gpus_per_node": 1,
        "model": model,
        "parallelism": parallelism,
        "micro_batch": 1,
        "global_batch": 4,
        "max_steps": STEPS,
        "precision": {"plugin": "bf16_mixed", "grad_reduce_in_fp32": False},
        "optimizer": {"use_precision_aware_optimizer": None},
        "cuda_graphs": False,
        "comm_overlap": {
            "overlap_param_gather_with_optimizer_step": False,
            "userbuffers": None,
            "wgrad_deferral_limit": None,
            "tp_comm_bootstrap_backend": None,
        },
        "tokenizer": {"kind": "null", "vocab_size": 1024},
        "profile": None,
        "checkpoint": None,
        "load_checkpoint": None,
        "model_flops": STEP_FLOPS / 4,
        **changes,
    }


def train(run_nemo: Run, folder: Path, *options: str, **changes: Any) -> tuple[str, Samples]:
    """Run the program on the CPU, and return its log as text and as samples."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(recipe(**changes)), encoding="utf-8")
    done = run_nemo(HERE / "on_cpu.py", "recipe.json", *options, cwd=folder)
    assert done.returncode == 0, done.stdout[-4000:]
    (folder / "log.out").write_text(done.stdout, encoding="utf-8")
    return done.stdout, read_log(folder / "log.out")


@pytest.fixture(scope="module")
def saved(run_nemo: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Samples]:
    """A run that saves after its last step: its folder, its log, its samples."""
    folder = tmp_path_factory.mktemp("saved")
    return (folder, *train(run_nemo, folder, checkpoint={"save_at_step": STEPS}))


def test_the_log_of_a_run_is_read_whole(saved: tuple[Path, str, Samples]) -> None:
    _, text, samples = saved
    opening = (
        "nemo_pretrain: llama3_8b (model llama31_8b) with bf16_mixed, ranks: 1, nemo_toolkit 2.3.1,"
        " megatron-core"
    )
    assert text.count(opening) == 1
    assert [step.iteration for step in samples.steps] == [*range(STEPS)]
    assert (samples.last, samples.attempts, samples.ended, samples.framework) == (
        STEPS - 1,
        1,
        True,
        "NeMo 2",
    )
    assert (samples.gbs, samples.environment.world_size) == (4, 1)
    for step in samples.steps:
        assert step.loss == pytest.approx(math.log(PADDED_VOCABULARY), abs=0.1)
        assert step.tflops is not None
        # Both have four digits.
        assert step.tflops * step.step_time * 1e12 == pytest.approx(STEP_FLOPS, rel=2e-3)


def test_each_steps_line_has_its_own_gradient_norm(saved: tuple[Path, str, Samples]) -> None:
    norms = [step.grad_norm for step in saved[2].steps]
    # Each step sees other samples, so no two are equal.
    assert len({norm for norm in norms if norm is not None and 0 < norm < 10}) == STEPS


def test_a_gradient_that_is_no_number_makes_the_run_invalid(run_nemo: Run, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(recipe(max_steps=3)), encoding="utf-8")
    done = run_nemo(HERE / "on_cpu.py", "recipe.json", cwd=tmp_path, LLMB_TEST_SPOILT_STEP="1")
    assert done.returncode == 0, done.stdout[-4000:]
    (tmp_path / "log.out").write_text(done.stdout, encoding="utf-8")
    samples = read_log(tmp_path / "log.out")
    assert [math.isnan(step.grad_norm or 0) for step in samples.steps] == [False, True, False]
    # The losses do not show it, and the window is only the last step.
    assert invalid_because(samples, Window(2, 2)) == (GRADIENT_NAN,)


def test_a_saved_checkpoint_is_where_and_as_the_published_pages_show_it(
    saved: tuple[Path, str, Samples],
) -> None:
    folder, _, samples = saved
    (weights,) = folder.glob("nemo_experiments/default/checkpoints/*/weights")
    assert weights.parent.name == f"default--None=0.0000-epoch=0-consumed_samples={STEPS * 4}.0"
    assert sorted(path.name for path in weights.iterdir()) == [
        ".metadata",
        "__0_0.distcp",
        "__0_1.distcp",
        "common.pt",
        "metadata.json",
    ]
    # Weights and both moments of Adam, in four bytes each.
    assert sum(path.stat().st_size for path in weights.glob("*.distcp")) > 3 * 4 * 221_000
    (save,) = samples.checkpoints
    assert (save.kind, save.ranks) == ("save", (0,))
    assert save.rank0_seconds is not None


def test_a_checkpoint_is_loaded_and_one_step_follows(
    saved: tuple[Path, str, Samples], run_nemo: Run, tmp_path: Path
) -> None:
    (weights,) = saved[0].glob("nemo_experiments/default/checkpoints/*/weights")
    text, samples = train(
        run_nemo, tmp_path / "loaded", load_checkpoint=str(weights.parent), max_steps=1
    )
    (load,) = samples.checkpoints
    assert (load.kind, load.ranks) == ("load", (0,))
    assert "Restoring model weights" in text
    assert "Restoring optimizer states" in text
    assert (len(samples.steps), samples.last, samples.ended) == (1, 0, True)
    assert samples.steps[0].loss is not None
    assert saved[2].steps[0].loss is not None
    # The same samples, and five steps of learning between.
    assert samples.steps[0].loss < saved[2].steps[0].loss
    assert not [*(tmp_path / "loaded").glob("nemo_experiments/**/*.distcp")]


def output_gradients(text: str) -> list[tuple[int, int]]:
    """After each step, how many gradients of the output layer were held, and how many computed."""
    found = re.findall(
        r"^on_cpu: gradients of the output layer held: (\d+), computed: (\d+)$", text, re.MULTILINE
    )
    return [(int(held), int(computed)) for held, computed in found]


def test_no_gradient_of_the_output_layer_is_held_after_a_step(
    saved: tuple[Path, str, Samples],
) -> None:
    # One is computed in each of a step's four micro-batches.
    assert output_gradients(saved[1]) == [(0, 4 * step) for step in range(1, STEPS + 1)]


def test_without_a_pipeline_deferred_gradients_stay(run_nemo: Run, tmp_path: Path) -> None:
    # The control for the test before: Megatron defers, and nothing empties its lists.
    text, _ = train(run_nemo, tmp_path / "deferred", "--defer", max_steps=2)
    assert output_gradients(text) == [(4, 0), (8, 0)]


def test_two_processes_share_a_batch(
    run_two: Callable[..., list[tuple[int, str]]], saved: tuple[Path, str, Samples], tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(recipe(gpus_per_node=2)), encoding="utf-8")
    with hold_port() as held:
        port = str(number_of(held))
        started = run_two(HERE / "on_cpu.py", "recipe.json", cwd=tmp_path, MASTER_PORT=port)
    (code, log), (other_code, other_log) = started
    assert (code, other_code) == (0, 0), log[-2000:] + other_log[-2000:]
    (tmp_path / "log.out").write_text(log, encoding="utf-8")
    samples = read_log(tmp_path / "log.out")
    assert samples.environment.world_size == 2
    # The same samples as one process takes, so the same losses; and only the first process logs
    # them.
    assert [step.loss for step in samples.steps] == pytest.approx(
        [s.loss for s in saved[2].steps], rel=1e-3
    )
    assert "Training epoch" not in other_log


def test_print_writes_the_configuration_and_nothing_else(run_nemo: Run, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(recipe()), encoding="utf-8")
    argv = ("-m", "llmb_workloads.nemo_pretrain", "recipe.json", "--print")
    done = run_nemo(*argv, cwd=tmp_path, stderr=subprocess.DEVNULL)
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert (answer["recipe"], answer["versions"]["nemo_toolkit"]) == ("llama3_8b", "2.3.1")
    configuration = answer["configuration"]
    assert configuration["_target_"] == "nemo.collections.llm.api.pretrain"
    assert configuration["model"]["config"]["hidden_size"] == 64
    assert configuration["trainer"]["strategy"]["tensor_model_parallel_size"] == 1
    assert configuration["data"]["tokenizer"]["vocab_size"] == 1024
    assert not (tmp_path / "nemo_experiments").exists()
