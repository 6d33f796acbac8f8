# SPDX-License-Identifier: Apache-2.0
"""Tests of Megatron-Bridge's launch: image, variables, binding, the gated config.json, what the
user overrides.

tests/real_bridge compares the recipe with NVIDIA's; the values here are those of its launch
scripts.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.launch import Launch
from llmb.contract.switches import Switches
from llmb.errors import UsageError
from llmb_workloads.bridge_pretrain.recipe import parse_recipe

Launched = Callable[..., Launch]
Recipe = Callable[..., dict[str, Any]]
LLAMA, NEMOTRON = "pretrain_llama3.1", "pretrain_nemotronh"
OFFLINE = {"TOKENIZERS_PARALLELISM": "False", "HF_HUB_OFFLINE": "0"}
ASSETS = {"meta-llama/Meta-Llama-3-70B": Path("/llmb/datasets/hub/70b")}


def test_the_launch_of_a_row(launched: Launched) -> None:
    """One process for each GPU, in the image of the release."""
    found = launched(LLAMA, "70b", "gb300", "fp8_cs", 64, installed={"assets": ASSETS})
    assert (found.nodes, found.ranks_per_node, found.image) == (16, 4, "nvcr.io/nvidia/nemo:26.08")
    assert (found.program.module, found.args) == (
        "llmb_workloads.bridge_pretrain",
        ("recipe.json",),
    )
    assert found.mounts == ("/llmb/datasets/hub/70b:/llmb/datasets/hub/70b:ro",)
    assert (found.inputs, found.secrets) == (("/llmb/datasets/hub/70b/config.json",), ())
    assert found.environment == {**OFFLINE, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("gpu", "ranks"), [("h100", 4), ("b200", 4), ("b300", 4), ("gb200", 2), ("gb300", 2)]
)
def test_ranks_are_bound_as_by_nvidia(launched: Launched, gpu: str, ranks: int) -> None:
    """numactl --cpunodebind=$((SLURM_LOCALID/D)): D is 2 on gb200 and gb300, else 4."""
    (bound,) = launched(NEMOTRON, "56b", gpu, "fp8_cs", 64).wrappers
    assert f"LLMB_LOCAL_RANK / {ranks}" in " ".join(bound.argv)


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        ((NEMOTRON, "56b", "b300", "fp8_cs", 64, "26.08"), True),
        ((LLAMA, "70b", "b300", "fp8_cs", 64, "26.08"), False),
        ((LLAMA, "70b", "b300", "fp8_cs", 64, "26.02.01"), True),
        ((NEMOTRON, "56b", "b200", "fp8_cs", 64, "26.08"), False),
    ],
)
def test_cores_are_bound_on_b300_as_by_nvidia(
    row: tuple[Any, ...], bound: bool, launched: Launched
) -> None:
    """executors.py of 0.3.1 for every model; setup_experiment.py of 0.6.0 not for Llama."""
    (numa,) = launched(*row).wrappers
    assert ("LLMB_LOCAL_RANK * 16" in " ".join(numa.argv)) == bound


@pytest.mark.parametrize(
    ("row", "split"),
    [
        ((LLAMA, "70b", "b300", "fp8_mx", 512), True),
        ((LLAMA, "405b", "b300", "nvfp4", 512, "26.02.01"), True),
        ((NEMOTRON, "56b", "gb300", "fp8_cs", 512), True),
        ((LLAMA, "70b", "b300", "fp8_mx", 256), False),
        ((LLAMA, "70b", "b200", "fp8_mx", 512), False),
        ((NEMOTRON, "56b", "b200", "fp8_cs", 512), False),
    ],
)
def test_connections_are_split_on_many_gpus_as_by_nvidias_benchmark(
    row: tuple[Any, ...], split: bool, recipe: Recipe
) -> None:
    found = recipe(*row)["environment"].get("NCCL_IB_QPS_PER_CONNECTION")
    assert found == ("4" if split else None)


def test_nodes_of_a_small_job_are_in_one_rack(launched: Launched) -> None:
    """executors.py of both versions sets the segment for every job on nodes of 4 GPUs."""
    assert launched(LLAMA, "70b", "gb200", "bf16", 64).one_rack


def test_the_older_launcher_exports_all_variables(launched: Launched, recipe: Recipe) -> None:
    row = (LLAMA, "405b", "gb200", "fp8_cs", 256, "26.02.01")
    exported = launched(*row, env={"NCCL_NVLS_ENABLE": "1"}).environment
    assert exported == recipe(*row)["environment"] | {"NCCL_NVLS_ENABLE": "1"}
    assert (exported["PYTORCH_CUDA_ALLOC_CONF"], exported["NCCL_NET_GDR_C2C"]) == (
        "expandable_segments:True",
        "1",
    )
    newer = (*row[:-1], "26.08")
    assert "PYTORCH_CUDA_ALLOC_CONF" not in launched(*newer).environment
    assert recipe(*newer)["environment"]["NCCL_P2P_NET_CHUNKSIZE"] == "2097152"


def test_a_gated_config_json_without_the_installed_file(launched: Launched) -> None:
    """Ranks ask the hub with the user's token; the fix says where to ask for access. 56b needs
    none.
    """
    found = launched(LLAMA, "70b", "h100", "bf16", 64)
    assert (found.secrets, found.environment["TRANSFORMERS_OFFLINE"]) == (("HF_TOKEN",), "0")
    assert "https://huggingface.co/meta-llama/Meta-Llama-3-70B" in found.fixes["HF_TOKEN"]
    other = launched(NEMOTRON, "56b", "h100", "fp8_cs", 64)
    assert (other.secrets, other.inputs, other.environment["TRANSFORMERS_OFFLINE"]) == ((), (), "1")


def test_what_nvidia_has_not_is_refused(launched: Launched) -> None:
    with pytest.raises(UsageError) as caught:
        launched(LLAMA, "8b", "h100", "nvfp4", 8)
    assert caught.value.code == "row-missing"


@pytest.mark.parametrize(
    ("scale", "release", "name"),
    [
        (64, "26.08", "llama3_8b_pretrain_64gpu_h100_bf16_config"),
        (16, "26.08", "llama3_8b_pretrain_8gpu_h100_bf16_config"),
        (128, "26.08", "llama3_8b_pretrain_64gpu_h100_bf16_config"),
        (128, "26.02.01", "llama3_8b_pretrain_config"),
    ],
)
def test_other_scales_take_the_next_lower_function(
    recipe: Recipe, scale: int, release: str, name: str
) -> None:
    """With the batch of the row for this scale, 16 samples a GPU."""
    found = recipe(LLAMA, "8b", "h100", "bf16", scale, release)
    assert found["base"].partition(":")[2] == name
    assert found["set"]["train.global_batch_size"] == 16 * scale
    assert (found["nodes"], found["gpus_per_node"]) == (scale // 8, 8)


def test_a_scale_below_all_takes_the_lowest_function(recipe: Recipe) -> None:
    found = recipe(LLAMA, "405b", "gb300", "bf16", 64, "26.08")
    name = found["base"].partition(":")[2]
    assert name == "llama31_405b_pretrain_128gpu_gb300_bf16_config"


QWEN = ("pretrain_qwen3", "30b-a3b", "gb300", "fp8_mx")
FUNCTION = "megatron.bridge.perf_recipes.qwen.gb300.qwen3_moe:qwen3_30b_a3b_pretrain"


def test_a_row_names_nvidias_function(recipe: Recipe) -> None:
    """Only what a job changes is set on it, and its variables are the function's own."""
    found = recipe(*QWEN, 8)
    assert found["base"] == f"{FUNCTION}_8gpu_gb300_fp8mx_config"
    assert found["function_environment"]
    assert set(found["environment"]) == {*OFFLINE, "TRANSFORMERS_OFFLINE"}
    of_layout = {path for path in found["set"] if path.startswith("model.")}
    assert of_layout == set()
    assert "train.global_batch_size" not in found["set"]
    larger = recipe(*QWEN, 16)["set"]
    assert larger["train.global_batch_size"] == 1024
    assert not recipe(NEMOTRON, "56b", "h100", "fp8_cs", 64)["function_environment"]


def test_the_precision_of_states_is_asked_of_adam_alone(recipe: Recipe) -> None:
    """As NVIDIA's script does with bf16. Kimi K2 has Muon."""
    flag = "optimizer.use_precision_aware_optimizer"
    assert recipe("pretrain_deepseek", "v3", "gb300", "bf16", 256)["set"][flag] is True
    assert flag not in recipe("pretrain_deepseek", "v3", "gb300", "fp8_mx", 256)["set"]
    assert flag not in recipe("pretrain_kimi", "k2", "gb300", "bf16", 256)["set"]


def test_open_files_need_no_token(launched: Launched) -> None:
    """The tokenizer is among them; without the installed files, ranks ask the hub."""
    found = launched(*QWEN, 8)
    assert (found.secrets, found.environment["TRANSFORMERS_OFFLINE"]) == ((), "0")
    folder = Path("/llmb/datasets/hub/qwen")
    assets = {"Qwen/Qwen3-30B-A3B": folder}
    installed = launched(*QWEN, 8, installed={"assets": assets})
    assert {f"{folder}/config.json", f"{folder}/tokenizer.json"} < set(installed.inputs)
    assert installed.environment["HF_HUB_OFFLINE"] == "1"
    (hub,) = json.loads(installed.files[0].text)["hub"]
    assert hub.startswith("Qwen/Qwen3-30B-A3B@ad44e777")


def test_ranks_work_offline_once_every_repository_is_installed(launched: Launched) -> None:
    """With the model's alone, they ask the hub for the tokenizer."""
    row = ("pretrain_nemotron3", "super", "gb300", "fp8_mx", 64)
    model = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"
    tokenizer = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    assets = {model: Path("/llmb/super"), tokenizer: Path("/llmb/nano")}
    both = launched(*row, installed={"assets": assets})
    assert both.environment["HF_HUB_OFFLINE"] == "1"
    assert {"/llmb/super/config.json", "/llmb/nano/tokenizer.json"} < set(both.inputs)
    assert both.mounts == ("/llmb/super:/llmb/super:ro", "/llmb/nano:/llmb/nano:ro")
    one = launched(*row, installed={"assets": {model: Path("/llmb/super")}})
    assert (one.environment["TRANSFORMERS_OFFLINE"], one.inputs) == ("0", ())


DEEPSEEK = ("pretrain_deepseek", "v3")


def test_launch_options_change_the_function(recipe: Recipe) -> None:
    """As NVIDIA's benchmark has them for 128 GPUs, with the variable that follows from ep 32."""
    changed = recipe(*DEEPSEEK, "gb300", "bf16", 128)
    assert "_256gpu_gb300_bf16_" in changed["base"]
    assert changed["set"]["model.recompute_modules"] == ["mla_up_proj"]
    assert len(changed["set"]["model.pipeline_model_parallel_layout"]) == 4 * 4
    assert changed["environment"]["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] == "32"
    assert "model.recompute_modules" not in recipe(*DEEPSEEK, "gb300", "bf16", 256)["set"]


def test_a_count_without_function_overlaps_the_optimizers_step(recipe: Recipe) -> None:
    """NVIDIA's scripts set it there, for virtual stages, but not with fp8_mx."""
    name = "optimizer.overlap_param_gather_with_optimizer_step"
    assert recipe(*DEEPSEEK, "b300", "bf16", 512)["set"][name] is True
    assert name not in recipe(*DEEPSEEK, "b300", "bf16", 256)["set"]
    assert name not in recipe(*DEEPSEEK, "b300", "fp8_mx", 512)["set"]


@pytest.mark.parametrize(("gpus", "count"), [(128, 128), (256, 256), (384, 128), (512, 128)])
def test_a_borrowed_function_is_for_its_own_count(recipe: Recipe, gpus: int, count: int) -> None:
    """That of 405b on 256 GPUs of b200 is gb200's, with its variables."""
    base = recipe(LLAMA, "405b", "b200", "fp8_cs", gpus)["base"]
    assert f"_{count}gpu_b200_fp8cs_" in base


@pytest.mark.parametrize("release", ["26.08", "26.02.01"])
def test_the_program_reads_the_recipe(recipe: Recipe, release: str) -> None:
    """With what the user asks for: steps, profile, checkpoint, settings by dotted path."""
    switches = Switches(
        profile_start=45, profile_stop=50, profile_ranks="0,8", save_checkpoint=True
    )
    own = {"max_steps": 60, "profile": True, "switches": switches, "dotted": {"optimizer.lr": 1e-4}}
    read = parse_recipe(recipe(NEMOTRON, "56b", "h100", "fp8_cs", 64, release, **own))
    assert read.overrides == {"optimizer.lr": 1e-4}
    assert (read.set["train.train_iters"], read.set["checkpoint.save_interval"]) == (60, 60)
    assert read.set["profiling"]["with"]["profile_ranks"] == [0, 8]
    assert read.set["checkpoint.load"] is None
    assert read.release == release


@pytest.mark.parametrize("release", ["26.08", "26.02.01"])
def test_a_straggler_detector_is_a_block_of_the_configuration(recipe: Recipe, release: str) -> None:
    asked = (NEMOTRON, "56b", "h100", "fp8_cs", 64, release)
    detector = parse_recipe(recipe(*asked, switches=Switches(stragglers=True)))
    assert detector.set["nvrx_straggler"] == {
        "call": "megatron.bridge.training.config:NVRxStragglerDetectionConfig",
        "with": {"enabled": True, "report_time_interval": 20.0},
    }
    assert "nvrx_straggler" not in parse_recipe(recipe(*asked)).set


def test_a_profile_wraps_the_rank(launched: Launched) -> None:
    switches = Switches(profile_start=45, profile_stop=50)
    found = launched(NEMOTRON, "56b", "h100", "fp8_cs", 64, profile=True, switches=switches)
    assert [wrapper.name for wrapper in found.wrappers] == ["numa", "nsight"]
