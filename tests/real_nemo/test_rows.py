# SPDX-License-Identifier: Apache-2.0
"""Compares every row as planned with NeMo's objects that the program built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from llmb.contract.flops import model_flops

if TYPE_CHECKING:
    from llmb.contract.job import Job

# NeMo's null tokenizer adds an end-of-document token; Llama's own vocabulary has one, NVIDIA's
# scripts read that.
VOCABULARY = {
    "pretrain_nemotron4": 256000 + 1,
    "pretrain_nemotronh": 131072 + 1,
    "pretrain_llama3.1": 128256,
}
# Not in release 25.04: Transformer Engine's cross entropy, the precision-aware optimizer.
BEFORE = "25.04"
NEMO_RECIPE = {
    "15b": "nemotron4_15b",
    "340b": "nemotron4_340b",
    "8b": "llama31_8b",
    "70b": "llama31_70b",
    "405b": "llama31_405b",
    "405b-proxy": "llama31_405b",
    "56b": "nemotronh_56b",
}
# The tensor parallel overlap that NeMo tuned: by size, GPU type and dtype.
BUFFERS = {
    ("70b", "h100"): "userbuffers_{}_h100_h8192_tp4_mbs1_seqlen8192",
    ("405b", "h100"): "userbuffers_{}_h100_h16384_tp8_cp2_mbs1_seqlen8192",
    ("405b-proxy", "h100"): "userbuffers_{}_h100_h16384_tp8_cp2_mbs1_seqlen8192",
    ("405b", "b200"): "userbuffers_{}_b200_h16384_tp4_cp2_mbs1_seqlen8192",
    ("405b", "gb200"): "userbuffers_{}_b200_h16384_tp4_cp2_mbs1_seqlen8192",
    ("340b", "b200"): "userbuffers_{}_b200_h18432_tp8_mbs1_seqlen4096",
    ("340b", "gb200"): "userbuffers_{}_b200_h18432_tp8_mbs1_seqlen4096",
    ("15b", "b200"): "userbuffers_bf16_b200_h6144_tp2_mbs1_seqlen4096",
    ("15b", "gb200"): "userbuffers_bf16_b200_h6144_tp2_mbs1_seqlen4096",
}
DEFERRED = {"340b": 22, "70b": 22, "405b": 50, "405b-proxy": 50}  # micro batches


def test_the_function_that_would_be_called_is_nemos_pretrain(found: dict[str, Any]) -> None:
    assert found["function"] == "nemo.collections.llm.api.pretrain"


def test_parallelism(case: Any, found: dict[str, Any]) -> None:
    job: Job = case.job
    settings = found["parallelism"]
    assert (
        settings["tensor_model_parallel_size"],
        settings["pipeline_model_parallel_size"],
        settings["context_parallel_size"],
        settings["virtual_pipeline_model_parallel_size"],
        settings["expert_model_parallel_size"],
    ) == (
        job.trained.tp,
        job.trained.pp,
        job.trained.cp,
        None if job.trained.vp == 1 else job.trained.vp,
        1,
    )
    assert settings["sequence_parallel"] is (job.trained.tp > 1)
    counts_both_ends = job.model_size in ("405b", "405b-proxy")
    assert settings["account_for_embedding_in_pipeline_split"] is counts_both_ends
    assert settings["account_for_loss_in_pipeline_split"] is counts_both_ends
    replicas = (
        found["trainer"]["nodes"]
        * found["trainer"]["devices"]
        // (job.trained.tp * job.trained.pp * job.trained.cp)
    )
    assert (replicas, job.trained.gbs // (job.trained.mbs * replicas)) == (
        job.trained.dp,
        job.trained.ga,
    )


def test_batch_and_data(case: Any, found: dict[str, Any]) -> None:
    job: Job = case.job
    assert found["data"] == {
        "kind": "MockDataModule",
        "mbs": job.trained.mbs,
        "gbs": job.trained.gbs,
        "seq_length": job.trained.seq_length,
        "samples": job.max_steps * job.trained.gbs,
    }


def test_trainer(case: Any, found: dict[str, Any]) -> None:
    job: Job = case.job
    assert found["trainer"] == {
        "max_steps": 50,
        "nodes": job.nodes,
        "devices": job.gpus_per_node,
        "validation": 0,
        "validation_interval": 50,
        "log_every": 1,
        "loggers": 0,
    }
    assert job.nodes * job.gpus_per_node == job.scale
    assert job.gpus_per_node == (4 if case.gpu == "gb200" else 8)


def test_model_as_planned_and_as_nemo_has_it(
    case: Any, found: dict[str, Any], built: dict[str, Any]
) -> None:
    job: Job = case.job
    planned = {
        "hidden_size": job.trained.model.hidden,
        "ffn_hidden_size": job.trained.model.ffn,
        "num_attention_heads": job.trained.model.heads,
        "num_query_groups": job.trained.model.kv_groups,
        "seq_length": job.trained.seq_length,
        "gated_linear_unit": job.trained.model.gated,
        "hybrid_override_pattern": job.trained.model.pattern,
    }
    own = built["untouched"][NEMO_RECIPE[job.model_size]]
    # The program sets the shape, so NeMo's unchanged recipe must have it too.
    assert {name: own[name] for name in planned} == planned
    assert {name: found["model"][name] for name in planned} == planned
    assert own["num_layers"] == job.trained.num_layers or job.model_size == "405b-proxy"
    assert found["model"]["num_layers"] == job.trained.num_layers
    assert found["model"]["kv_channels"] in (
        None,
        job.trained.model.head_dim or job.trained.model.hidden // job.trained.model.heads,
    )
    unset = (
        "normalization",
        "mamba_head_dim",
        "mamba_state_dim",
        "mamba_num_groups",
        "cross_entropy_loss_fusion",
    )
    assert {name: found["model"][name] for name in unset} == {name: own[name] for name in unset}
    if (mamba := job.trained.model.mamba) is not None:
        sizes = ("mamba_head_dim", "mamba_state_dim", "mamba_num_groups")
        assert [own[name] for name in sizes] == [mamba.head_dim, mamba.state, mamba.groups]


def test_loss_and_cuda_graphs(case: Any, found: dict[str, Any]) -> None:
    job: Job = case.job
    captured = job.model_size in ("15b", "340b") and case.gpu in ("b200", "gb200")
    assert found["model"]["cross_entropy_fusion_impl"] == (
        "native" if case.recipe["release"] == BEFORE else "te"
    )
    assert found["model"]["enable_cuda_graph"] is captured
    assert found["parallelism"]["use_te_rng_tracker"] is captured


def test_tokenizer(case: Any, found: dict[str, Any]) -> None:
    assert found["tokenizer"] == {
        "kind": "NullTokenizer",
        "vocabulary": VOCABULARY[case.job.workload],
        "shared": True,
    }


def test_precision(case: Any, found: dict[str, Any]) -> None:
    settings, optimizer = found["precision"], found["optimizer"]
    assert (settings["bf16"], settings["params_dtype"]) == (True, "torch.bfloat16")
    if case.job.dtype == "bf16":
        assert settings["fp8"] is None
        assert optimizer["use_precision_aware_optimizer"] is (case.recipe["release"] != BEFORE)
    else:
        # Per-tensor, delayed scaling.
        assert (settings["fp8"], settings["fp8_recipe"], settings["fp8_param_gather"]) == (
            "hybrid",
            "delayed",
            True,
        )
        assert optimizer["use_precision_aware_optimizer"] is False
    assert settings["grad_reduce_in_fp32"] is False
    assert (optimizer["optimizer"], optimizer["use_distributed_optimizer"]) == ("adam", True)


def test_callbacks(case: Any, found: dict[str, Any]) -> None:
    collected = ["GarbageCollectionCallback"] if case.job.model_size != "56b" else []
    # The last two are Lightning's; no ModelCheckpoint, neither its nor NeMo's.
    assert found["callbacks"] == sorted(
        [
            "FLOPsMeasurementCallback",
            "MegatronCommOverlapCallback",
            "TimingCallback",
            "GradientNorm",
            *collected,
            "ModelSummary",
            "TQDMProgressBar",
        ]
    )


def test_communication_overlap(case: Any, found: dict[str, Any]) -> None:
    job: Job = case.job
    settings, name = found["overlap"], BUFFERS.get((job.model_size, case.gpu))
    assert settings["tp_comm_overlap"] is (job.model_size != "8b")
    # Megatron computes deferred gradients while a pipeline drains, and never where there is none.
    limit = DEFERRED.get(job.model_size) if job.trained.pp > 1 else None
    assert (settings["defer_embedding_wgrad_compute"], settings["wgrad_deferral_limit"]) == (
        limit and True,
        limit,
    )
    assert settings["overlap_param_gather_with_optimizer_step"] is (
        job.trained.dp > 1 and job.trained.pp > 1 and (job.trained.vp or 1) > 1
    )
    if name is None:
        assert settings["tp_comm_overlap_cfg"] is None
    else:
        assert name.format(job.dtype) in settings["tp_comm_overlap_cfg"]


def test_attention(case: Any, found: dict[str, Any]) -> None:
    backends = {"25.05": "AttnBackend.flash", "25.07": "AttnBackend.auto"}
    expected = (
        backends[case.recipe["release"]] if case.job.model_size == "56b" else "AttnBackend.auto"
    )
    assert found["model"]["attention_backend"] == expected
    # Megatron refuses flash attention beside NVTE_FUSED_ATTN=1, and auto beside a 0.
    variables = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
    fused = "0" if expected == "AttnBackend.flash" else "1"
    assert [case.exported.get(name) for name in variables] == ["1", fused, None]


def test_flops(case: Any, found: dict[str, Any]) -> None:
    job: Job = case.job
    assert found["flops"]["same_objects"] is True
    if job.model_size == "56b":
        # NeMo 2.3 treats the hybrid as a dense transformer: its figure is wrong, and llmb reports
        # that.
        assert found["step_flops"] != pytest.approx(
            model_flops(job.trained.model) * job.trained.gbs, rel=0.1
        )
    else:
        assert found["step_flops"] == pytest.approx(
            model_flops(job.trained.model) * job.trained.gbs, rel=1e-3
        )


def test_nothing_is_saved_loaded_or_profiled(found: dict[str, Any]) -> None:
    assert (found["checkpoint"], found["profile"]) == (None, None)
    assert found["resume"] == {
        "restore_config": None,
        "resume_from_directory": None,
        "resume_from_path": None,
        "adapter_path": None,
        "resume_if_exists": True,
        "resume_past_end": False,
        "resume_ignore_no_checkpoint": True,
    }
    assert found["log"] == {"name": "default", "dir": None, "ckpt": None}
