# SPDX-License-Identifier: Apache-2.0
"""Tests how switches and overrides change NeMo's objects: profile, checkpoints, tokenizer,
sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from llmb.contract.job import Job

Variant = Callable[[str], "tuple[Job, dict[str, Any]]"]


def test_a_profiled_run_has_nemos_callback_for_the_first_eight_ranks(variant: Variant) -> None:
    job, found = variant("profile")
    assert found["profile"] == {"start": 45, "stop": 50, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert found["trainer"]["max_steps"] == job.max_steps == 50
    assert "NsysCallback" in found["callbacks"]


def test_a_profile_of_other_steps_and_ranks_ends_the_run_at_its_end(variant: Variant) -> None:
    _, found = variant("profiled ranks")
    assert found["profile"] == {"start": 20, "stop": 25, "ranks": [0, 8]}
    assert (found["trainer"]["max_steps"], found["trainer"]["validation_interval"]) == (25, 25)


def test_tensor_parallel_overlap_starts_by_nccl_where_no_pmix_starts_the_ranks(
    variant: Variant,
) -> None:
    _, found = variant("without PMIx")
    assert found["overlap"]["tp_comm_bootstrap_backend"] == "nccl"
    _, found = variant("profile")
    assert found["overlap"]["tp_comm_bootstrap_backend"] is None


@pytest.mark.parametrize("name", ["save", "save hybrid"])
def test_a_checkpoint_is_saved_once_and_whole_after_the_last_step(
    variant: Variant, name: str
) -> None:
    _, found = variant(name)
    assert found["checkpoint"] == {
        "kind": "nemo.lightning.pytorch.callbacks.model_checkpoint",
        "every": 50,
        "top_k": 1,
        "last": False,
        "monitor": None,
        "optimizer": True,
        "context": False,
    }
    assert found["callbacks"].count("ModelCheckpoint") == 1
    assert found["overlap"]["overlap_param_gather_with_optimizer_step"] is False
    assert found["log"] == {"name": "default", "dir": None, "ckpt": None}


def test_a_checkpoint_is_loaded_with_its_optimizer_before_one_step(variant: Variant) -> None:
    job, found = variant("load")
    assert found["resume"]["restore_config"] == {
        "path": job.switches.load_checkpoint,
        "adapter_path": None,
        "load_model_state": True,
        "load_optim_state": True,
        "load_artifacts": False,
    }
    assert (found["resume"]["resume_if_exists"], found["resume"]["resume_from_path"]) == (
        False,
        None,
    )
    assert (found["trainer"]["max_steps"], found["data"]["samples"]) == (1, job.trained.gbs)
    assert found["optimizer"]["use_precision_aware_optimizer"] is False
    assert found["checkpoint"] is None
    assert found["overlap"]["overlap_param_gather_with_optimizer_step"] is False


@pytest.mark.parametrize(
    ("name", "repository"),
    [("hub llama", "meta-llama/Llama-3.1-8B"), ("hub hybrid", "nvidia/Nemotron-H-8B-Base-8K")],
)
def test_the_hubs_tokenizer_is_read_by_its_name(
    variant: Variant, name: str, repository: str
) -> None:
    _, found = variant(name)
    assert found["hub"] == {"asked": repository, "library": "huggingface", "use_fast": True}
    # The driver replaced that repository with a small tokenizer.
    assert found["tokenizer"] == {"kind": "AutoTokenizer", "vocabulary": 4, "shared": True}


def test_fp8_with_current_scaling(variant: Variant) -> None:
    _, found = variant("current scaling")
    settings = found["precision"]
    assert (settings["fp8"], settings["fp8_recipe"]) == ("hybrid", "tensorwise")
    assert settings["first_last_layers_bf16"] is True
    assert settings["grad_reduce_in_fp32"] is False


def test_a_trace_runs_five_steps(variant: Variant) -> None:
    _, found = variant("trace")
    assert (found["trainer"]["max_steps"], found["profile"]) == (5, None)


def test_overrides_reach_nemo(variant: Variant) -> None:
    job, found = variant("overrides")
    settings = found["parallelism"]
    assert settings["tensor_model_parallel_size"] == 4
    assert settings["pipeline_model_parallel_size"] == 2
    assert settings["context_parallel_size"] == 2
    assert settings["virtual_pipeline_model_parallel_size"] == 4
    # NeMo's recipe of this size has no pipeline, and so no type for what passes through one.
    assert found["precision"]["pipeline_dtype"] == "torch.bfloat16"
    assert (found["data"]["mbs"], found["data"]["gbs"], found["data"]["samples"]) == (1, 64, 7 * 64)
    assert (found["trainer"]["max_steps"], found["model"]["num_layers"]) == (7, 16)
    assert found["overlap"]["overlap_param_gather_with_optimizer_step"] is True
    assert job.trained.dp == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no such recipe",
            "nemo_toolkit 2.3.1: has no module nemo.collections.llm.recipes.llama31_9b",
        ),
        (
            "no such plugin",
            "mixed_precision has no 'bf16_with_fp8_mixd'; did you mean 'bf16_with_fp8_mixed'?",
        ),
        ("no such buffers", "userbuffers has no 'userbuffers_bf16_h200'; use NeMo 2.3"),
        (
            "no such model",
            "nemo_toolkit 2.3.1: has no module nemo.collections.llm.recipes.llama31_9b",
        ),
        (
            "no performance mode",
            "mamba2_130m.pretrain_recipe has no setting 'performance_mode'; use NeMo 2.3",
        ),
        ("no pattern", "Llama31Config8B has no setting 'hybrid_override_pattern'; use NeMo 2.3"),
    ],
)
def test_what_nemo_lacks_is_named(built: dict[str, Any], name: str, message: str) -> None:
    assert message in built["refused"][name]
