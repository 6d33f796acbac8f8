# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the NeMo program: a complete recipe, of Llama 3.1 405B on 512 H100."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

RECIPE: dict[str, Any] = {
    "program": "nemo_pretrain",
    "schema": 1,
    "name": "pretrain_llama3.1_405b_fp8_gpus512",
    "release": "25.05",
    "recipe": "llama31_405b",
    "model_recipe": None,
    "flops_model_name": "llama3",
    "nodes": 64,
    "gpus_per_node": 8,
    "model": {
        "num_layers": 126,
        "hidden_size": 16384,
        "ffn_hidden_size": 53248,
        "num_attention_heads": 128,
        "num_query_groups": 8,
        "seq_length": 8192,
        "cross_entropy_fusion_impl": "te",
        "attention_backend": None,
        "hybrid_override_pattern": None,
        "moe": None,
        "mla": None,
    },
    "parallelism": {
        "tp": 8,
        "pp": 8,
        "cp": 2,
        "vp": 8,
        "ep": 1,
        "etp": None,
        "sequence_parallel": True,
        "embedding_in_pipeline_split": True,
        "loss_in_pipeline_split": True,
    },
    "micro_batch": 1,
    "global_batch": 256,
    "max_steps": 50,
    "precision": {"plugin": "bf16_with_fp8_mixed", "grad_reduce_in_fp32": False},
    "optimizer": {"use_precision_aware_optimizer": None},
    "cuda_graphs": False,
    "comm_overlap": {
        "overlap_param_gather_with_optimizer_step": True,
        "userbuffers": "userbuffers_fp8_h100_h16384_tp8_cp2_mbs1_seqlen8192",
        "wgrad_deferral_limit": 50,
        "tp_comm_bootstrap_backend": None,
    },
    "tokenizer": {"kind": "null", "vocab_size": 128255},
    "profile": None,
    "checkpoint": None,
    "load_checkpoint": None,
    "model_flops": 2.15e16,
    "overrides": {},
}


@pytest.fixture
def nemo_recipe() -> Callable[..., dict[str, Any]]:
    """Makes a decoded recipe; a keyword replaces a key, and an object's keys one by one."""

    def make(**changes: Any) -> dict[str, Any]:
        made = copy.deepcopy(RECIPE)
        for key, new in changes.items():
            merges = isinstance(new, dict) and isinstance(made.get(key), dict) and "kind" not in new
            made[key] = {**made[key], **new} if merges else new
        return made

    return make
