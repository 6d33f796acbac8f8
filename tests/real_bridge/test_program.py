# SPDX-License-Identifier: Apache-2.0
"""The program as it is started, with the real library: until the training begins, which needs
GPUs.
"""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

HERE = Path(__file__).parent
REPOSITORY = "meta-llama/Meta-Llama-3-8B"
# What a small config.json of the repository says; the real one has these keys too.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
# Qwen3 with fewer layers, which the test can tell from the real one.
PINNED = "Qwen/Qwen3-30B-A3B@ad44e777bcd18fa416d9da3bd8f70d33ebb85d39"
EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def smoke(version: str, by_version: Any, tmp_path: Path) -> dict[str, Any]:
    """The recipe of the smallest size, with its config.json in a folder as llmb-install leaves
    it.
    """
    case = by_version(version)["smoke llama3_8b gb300 fp8_cs 4"]
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return {**case.recipe, "hub": {REPOSITORY: str(tmp_path / "hub")}}


def start(
    run: Run, version: str, folder: Path, recipe: dict[str, Any], *flags: str, **variables: str
) -> Any:
    (folder / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    own = {"LLMB_TEST_REAL_HUB": "1", "TMPDIR": str(folder), **variables}
    return run(version, HERE / "program.py", "recipe.json", *flags, cwd=folder, **own)


def test_it_trains_with_the_installed_config_json(
    version: str, smoke: dict[str, Any], run_bridge: Run, tmp_path: Path
) -> None:
    """Transformers reads the file from the program's cache; the variables come first, and the
    user's wins.
    """
    ranks = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    done = start(run_bridge, version, tmp_path, smoke, CUDA_DEVICE_MAX_CONNECTIONS="7", **ranks)
    assert done.returncode == 0, done.stdout[-4000:]
    assert (
        "pretrain: ConfigContainer megatron.bridge.training.gpt_step.forward_step 7"
        in done.stdout.splitlines()
    )
    written = json.loads((tmp_path / "configuration.json").read_text(encoding="utf-8"))
    assert written["versions"]["megatron-bridge"] == version
    assert written["configuration"]["model"]["num_layers"] == 4
    assert written["environment"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "7"


def test_a_function_reads_the_revision_that_it_names(
    by_version: Any, run_bridge: Run, tmp_path: Path
) -> None:
    """From the installed files, without a network. The program starts itself again for the
    function's variables.
    """
    case = by_version("0.6.0")["qwen3_30b_a3b gb300 fp8_mx 8"]
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text(json.dumps(EXPERTS), encoding="utf-8")
    recipe = {**case.recipe, "hub": {PINNED: str(tmp_path / "hub")}}
    ranks = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}
    done = start(run_bridge, "0.6.0", tmp_path, recipe, **ranks)
    assert done.returncode == 0, done.stdout[-4000:]
    assert (
        "pretrain: ConfigContainer megatron.bridge.training.gpt_step.forward_step 32"
        in done.stdout.splitlines()
    )
    written = json.loads((tmp_path / "configuration.json").read_text(encoding="utf-8"))
    assert written["configuration"]["model"]["num_layers"] == 6
    tokenizer = written["configuration"]["tokenizer"]
    repository, _, revision = PINNED.partition("@")
    assert tokenizer["tokenizer_model"] == repository
    assert tokenizer["hf_tokenizer_kwargs"] == {"revision": revision}


def test_print(version: str, smoke: dict[str, Any], run_bridge: Run, tmp_path: Path) -> None:
    """The configuration as JSON, with the user's value for a dotted path."""
    recipe = {**smoke, "overrides": {"optimizer.lr": 0.002}}
    done = start(run_bridge, version, tmp_path, recipe, "--print")
    assert done.returncode == 0, done.stdout[-4000:]
    shown = json.loads(done.stdout[done.stdout.index('{\n  "base"') :])
    assert (shown["base"], shown["configuration"]["optimizer"]["lr"]) == (recipe["base"], 0.002)
    assert shown["configuration"]["model"]["hidden_size"] == 4096


def test_the_library_takes_the_straggler_detector(
    version: str,
    smoke: dict[str, Any],
    switched: Callable[..., dict[str, Any]],
    run_bridge: Run,
    tmp_path: Path,
) -> None:
    recipe = {**switched(version, stragglers=True), "hub": smoke["hub"]}
    ranks = {"RANK": "0", "WORLD_SIZE": str(recipe["nodes"] * recipe["gpus_per_node"])}
    done = start(run_bridge, version, tmp_path, recipe, LOCAL_RANK="0", **ranks)
    assert done.returncode == 0, done.stdout[-4000:]  # it is validated before the training
    written = json.loads((tmp_path / "configuration.json").read_text(encoding="utf-8"))
    detector = written["configuration"]["nvrx_straggler"]
    assert (detector["enabled"], detector["report_time_interval"]) == (True, 20.0)
    assert (detector["stop_if_detected"], detector["num_gpu_perf_scores_to_print"]) == (False, 5)


def test_the_small_sizes_are_valid(version: str, by_version: Any, build: Any) -> None:
    """The library accepts every row of size smoke, which has the layers that workload.yaml says."""
    cases = {
        label: case for label, case in by_version(version).items() if label.startswith("smoke")
    }
    found = build(
        "ours",
        version,
        {
            label: {"recipe": one.recipe, "gpu": one.gpu, "gpus": one.gpus}
            for label, one in cases.items()
        },
    )
    assert {
        label: row.get("invalid") or row.get("refused") for label, row in found.items()
    } == dict.fromkeys(cases)
    layers = {label.split()[1]: row["leaves"]["model.num_layers"] for label, row in found.items()}
    assert layers == {"llama3_8b": "4", "nemotronh_56b": "5"}
