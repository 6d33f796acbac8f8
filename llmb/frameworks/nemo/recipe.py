# SPDX-License-Identifier: Apache-2.0
"""Writes recipe.json for llmb_workloads.nemo_pretrain: the whole configuration of a NeMo 2 run as plain data."""

import json
from collections.abc import Mapping
from typing import Any

from llmb.frameworks.nemo.wrappers import profiled_ranks
from llmb.runs.job import Job
from llmb.workload.model import model_flops
from llmb.workload.nemo_recipe import NemoRecipe
from llmb.workload.rows import Row
from llmb.workload.spec import Size
from llmb.workload.switches import PROFILE_RANKS

SCHEMA = 1
_PLUGINS = {"bf16": "bf16_mixed"}
_FP8_PLUGINS = {"delayed": "bf16_with_fp8_mixed", "current": "bf16_with_fp8_current_scaling_mixed"}


def recipe_of(
    job: Job, size: Size, nemo: NemoRecipe, row: Row, tokenizer: str | None = None, *, has_pmix: bool = False
) -> dict[str, Any]:
    """All settings of the program; it looks nothing up when it runs.

    ``nemo``: with the settings of the release that ``row`` follows; ``tokenizer``: a folder or the name in the hub,
    None for NeMo's null tokenizer; ``has_pmix``: whether PMIx starts the ranks, as in NVIDIA's runs on Slurm.
    """
    switches = job.switches
    writes_or_reads = bool(switches.save_checkpoint) or switches.load_checkpoint is not None
    return {
        "program": "nemo_pretrain",
        "schema": SCHEMA,
        "name": job.experiment_name,
        "release": row.release(job.scale),
        "recipe": nemo.recipe,
        "model_recipe": nemo.model,
        "flops_model_name": nemo.flops_name,
        "nodes": job.nodes,
        "gpus_per_node": job.gpus_per_node,
        "model": _model(job, nemo),
        "parallelism": {
            "tp": job.tp,
            "pp": job.pp,
            "cp": job.cp,
            "vp": job.vp if job.vp != 1 else None,
            "ep": job.ep,
            "sequence_parallel": job.tp > 1,
            "embedding_in_pipeline_split": size.pipeline_extra > 0,
            "loss_in_pipeline_split": size.pipeline_extra > 0,
        },
        "micro_batch": job.mbs,
        "global_batch": job.gbs,
        "max_steps": job.max_steps,
        # NeMo's recipes disable it in performance mode; the plugin that replaces theirs would enable it again.
        "precision": {"plugin": _plugin(job, nemo), "grad_reduce_in_fp32": False},
        "optimizer": {"use_precision_aware_optimizer": _precision_aware(job, nemo)},
        "cuda_graphs": row.cuda_graphs,
        "comm_overlap": {
            "overlap_param_gather_with_optimizer_step": _overlaps_step(job) and not writes_or_reads,
            "userbuffers": _userbuffers(job, row),
            # Megatron computes deferred gradients only with a pipeline; without one they would accumulate.
            "wgrad_deferral_limit": nemo.wgrad_deferral_limit if job.pp > 1 else None,
            # Null: Transformer Engine chooses MPI if torch has it; without PMIx each rank would be its own MPI world.
            "tp_comm_bootstrap_backend": None if has_pmix else "nccl",
        },
        "tokenizer": _tokenizer(tokenizer, nemo),
        "profile": _profile(job),
        "checkpoint": {"save_at_step": job.max_steps} if switches.save_checkpoint else None,
        "load_checkpoint": switches.load_checkpoint,
        "model_flops": model_flops(job.model),
    }


def to_text(recipe: Mapping[str, Any]) -> str:
    """The recipe as JSON with a line for each group, for people who read it in the run's folder or in a script."""
    lines: list[str] = []
    plain: dict[str, Any] = {}
    for key, value in recipe.items():
        if isinstance(value, dict):
            lines += [_inside(plain)] if plain else []
            lines.append(_inside({key: value}))
            plain = {}
        else:
            plain[key] = value
    lines += [_inside(plain)] if plain else []
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def _inside(values: dict[str, Any]) -> str:
    return json.dumps(values)[1:-1]


def _model(job: Job, nemo: NemoRecipe) -> dict[str, Any]:
    model = job.model
    return {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "num_query_groups": model.kv_groups,
        "seq_length": model.seq_length,
        "cross_entropy_fusion_impl": nemo.cross_entropy,
        "attention_backend": nemo.attention_backend,
        "hybrid_override_pattern": model.pattern,
    }


def _plugin(job: Job, nemo: NemoRecipe) -> str:
    if job.dtype != "fp8":
        return _PLUGINS.get(job.dtype, f"{job.dtype}_mixed")
    return nemo.fp8_plugin if job.switches.fp8 is None else _FP8_PLUGINS[job.switches.fp8]


def _precision_aware(job: Job, nemo: NemoRecipe) -> bool | None:
    """Whether master weights and moments have lower precision; such states cannot be loaded from a checkpoint."""
    if job.switches.load_checkpoint is not None:
        return False
    return True if job.dtype == "bf16" and nemo.precision_aware_optimizer else None


def _overlaps_step(job: Job) -> bool:
    return job.dp > 1 and job.pp > 1 and (job.vp or 1) > 1


def _userbuffers(job: Job, row: Row) -> str | None:
    """The row's configuration; None if ``--set`` changed the tensor shapes that it is for."""
    alike = (job.tp, job.cp, job.mbs) == (row.tp, row.cp, row.mbs)
    return row.userbuffers.get(job.dtype) if alike else None


def _tokenizer(name: str | None, nemo: NemoRecipe) -> dict[str, Any]:
    if name is not None:
        return {"kind": "hub", "name": name}
    return {"kind": "null", "vocab_size": nemo.vocab}


def _profile(job: Job) -> dict[str, Any] | None:
    if not job.profile:
        return None
    switches = job.switches
    return {
        "start_step": switches.profile_start,
        "stop_step": switches.profile_stop,
        "ranks": profiled_ranks(switches.profile_ranks or PROFILE_RANKS, job.scale),
    }
