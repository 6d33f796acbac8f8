# SPDX-License-Identifier: Apache-2.0
"""Launches llmb_workloads.nemo_pretrain: the NeMo 2 recipe of a size, frozen in recipe.json."""

import json
from typing import Any

from llmb.builtin import wrappers
from llmb.builtin.nemo import nemo_needs
from llmb.builtin.nemo.recipe_checks import known_names, unusable
from llmb.contract.flops import model_flops
from llmb.contract.gpus import CPU
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program, Site, StagedFile
from llmb.contract.model import ModelShape, shared_width
from llmb.contract.nemo_recipe import NemoRecipe
from llmb.contract.rows import Row, find_row
from llmb.contract.spec import Size, Workload
from llmb.contract.switches import PROFILE_RANKS, REPORT_INTERVAL
from llmb.errors import UsageError

RECIPE = "recipe.json"
SCHEMA = 1
_PLUGINS = {"bf16": "bf16_mixed", "mxfp8": "bf16_with_mxfp8_mixed"}
_FP8_PLUGINS = {"delayed": "bf16_with_fp8_mixed", "current": "bf16_with_fp8_current_scaling_mixed"}
# a folder `nemo` alone can belong to another package
PACKAGES = ("nemo_toolkit>=2.0", "megatron", "nemo_run")
_ALWAYS = {
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TOKENIZERS_PARALLELISM": "False",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FLASH_ATTN": "1",
    "NVTE_FUSED_ATTN": "1",
    "NEMO_LOG_MEMORY_USAGE": "1",
    # Streaming multiprocessors that the norms leave free for communication.
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
}
_BLACKWELL = ("b200", "b300", "gb200", "gb300")


def applies(workload: Workload, job: Job, site: Site) -> bool:
    """Return True if this program runs ``job``: a size with a NeMo recipe, on GPUs."""
    return workload.sizes[job.model_size].nemo is not None and site.gpu_type != CPU


def launch(workload: Workload, job: Job, site: Site) -> Launch:
    """Launch ``job`` in its image or in the installed environment. Raises UsageError."""
    size = workload.sizes[job.model_size]
    strong = bool(job.switches.strong_scaling)
    row = find_row(size.rows, site.gpu_type, job.dtype, job.scale, strong=strong)
    if size.nemo is None or row is None:
        raise UsageError(
            f"{job.experiment_name}: NeMo has no configuration for it on {site.gpu_type}",
            hint=f"llmb-run list -w {job.workload}",
            code="row-missing",
            value=site.gpu_type,
        )
    loaded = job.switches.load_checkpoint
    venv = None if site.container else site.venvs.get(nemo_needs.VENV, site.venv)
    nemo = size.nemo.of(row.release(job.scale))
    _check_recipe(workload, job, nemo)
    tokenizer = nemo_needs.tokenizer_of(job, nemo, site)
    environment = environment_of(job, nemo, site.gpu_type, asks_hub=tokenizer.from_hub)
    recipe = recipe_of(job, size, nemo, row, tokenizer.name, has_pmix=site.has_pmix)
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module="llmb_workloads.nemo_pretrain"),
        args=(RECIPE,),
        image=job.image,
        venv=str(venv) if venv is not None else None,
        packages=() if site.container else PACKAGES,
        mounts=_mounts(job, tokenizer) if site.container else (),  # --mount's are llmb's to add
        environment={**environment, **job.env},
        secrets=tokenizer.secrets,
        wrappers=wrappers.of_job(job, site, venv),
        files=(StagedFile(name=RECIPE, text=to_text(recipe)),),
        inputs=(
            *((f"{loaded}/weights/*.distcp",) if loaded is not None else ()),
            *tokenizer.inputs,
        ),
        fixes={**tokenizer.fixes, **_checkpoint_fix(loaded)},
        gpu_memory_gb=row.memory_gb,
        disk_gb=size.checkpoint.size_gb
        if job.switches.save_checkpoint and size.checkpoint is not None
        else 0.0,
    )


def _check_recipe(workload: Workload, job: Job, nemo: NemoRecipe) -> None:
    """Raise UsageError for a recipe that the program is known to refuse."""
    names = known_names(job.image or workload.image)
    if (
        names is not None
        and nemo.recipe in names.recipes
        and (fault := unusable(nemo, names)) is not None
    ):
        message = f"{job.experiment_name}: {fault}"
        raise UsageError(message, hint=fault.hint, code=fault.code, key="recipe", value=nemo.recipe)


def _mounts(job: Job, tokenizer: nemo_needs.Tokenizer) -> tuple[str, ...]:
    folders = (job.switches.load_checkpoint, tokenizer.folder)
    return tuple(f"{folder}:{folder}:ro" for folder in folders if folder is not None)


def _checkpoint_fix(loaded: str | None) -> dict[str, str]:
    if loaded is None:
        return {}
    fix = "write the folder that contains 'weights', as --save-checkpoint creates it:"
    folder = "nemo_experiments/default/checkpoints/<...>"
    return {f"{loaded}/weights/*.distcp": f"{fix} {folder}"}


def environment_of(
    job: Job, nemo: NemoRecipe, gpu: str, *, asks_hub: bool = False
) -> dict[str, str]:
    """Return the variables of the ranks on the known GPU type ``gpu``. The job's own override them.

    ``asks_hub``: ranks fetch files from the model hub. Source: the launch scripts of releases 25.04
    to 25.07.
    """
    training = job.trained
    variables = {**_ALWAYS, "TRANSFORMERS_OFFLINE": "0" if asks_hub else "1"}
    if training.tp > 1 or training.cp > 1:
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if gpu in _BLACKWELL else "1"
    if training.pp > 1:
        variables["NCCL_P2P_NET_CHUNKSIZE"] = "2097152"
    if gpu == "gb200":
        variables["NCCL_NET_GDR_LEVEL"] = "PHB"
    return {**variables, **nemo.environment}


def recipe_of(
    job: Job,
    size: Size,
    nemo: NemoRecipe,
    row: Row,
    tokenizer: str | None = None,
    *,
    has_pmix: bool = False,
) -> dict[str, Any]:
    """Return all settings of the program, which looks nothing up when it runs.

    ``nemo``: with the settings of the release that ``row`` follows. ``tokenizer``: a folder or the
    name in the hub, None for NeMo's null tokenizer. ``has_pmix``: PMIx starts the ranks, as in
    NVIDIA's runs on Slurm.
    """
    switches, training = job.switches, job.trained
    vocab = training.model.vocab - 1 if nemo.vocab is None else nemo.vocab
    null_tokenizer = {"kind": "null", "vocab_size": vocab}
    overlaps = training.dp > 1 and training.pp > 1 and (training.vp or 1) > 1
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
        "model": _model(training.model, nemo),
        "parallelism": {
            "tp": training.tp,
            "pp": training.pp,
            "cp": training.cp,
            "vp": training.vp if training.vp != 1 else None,
            "ep": training.ep,
            "etp": training.etp if training.model.moe is not None else None,
            "sequence_parallel": training.tp > 1,
            "embedding_in_pipeline_split": size.pipeline_extra > 0,
            "loss_in_pipeline_split": size.pipeline_extra > 0,
        },
        "micro_batch": training.mbs,
        "global_batch": training.gbs,
        "max_steps": job.max_steps,
        # NeMo's recipes disable it in performance mode; the plugin that replaces theirs would
        # enable it again.
        "precision": {"plugin": _plugin(job, nemo), "grad_reduce_in_fp32": False},
        "optimizer": {"use_precision_aware_optimizer": _precision_aware(job, nemo)},
        "cuda_graphs": row.cuda_graphs,
        "comm_overlap": {
            "overlap_param_gather_with_optimizer_step": overlaps and not writes_or_reads,
            "userbuffers": _userbuffers(job, row),
            # Megatron computes deferred gradients only with a pipeline; without one they would
            # accumulate.
            "wgrad_deferral_limit": nemo.wgrad_deferral_limit if training.pp > 1 else None,
            # Null: Transformer Engine chooses MPI if torch has it; without PMIx each rank would be
            # its own MPI world.
            "tp_comm_bootstrap_backend": None if has_pmix else "nccl",
        },
        "tokenizer": {"kind": "hub", "name": tokenizer}
        if tokenizer is not None
        else null_tokenizer,
        "profile": _profile(job),
        "checkpoint": {"save_at_step": job.max_steps} if switches.save_checkpoint else None,
        "load_checkpoint": switches.load_checkpoint,
        "overrides": nemo.settings(),
        **({"stragglers": {"report_interval": REPORT_INTERVAL}} if switches.stragglers else {}),
        "model_flops": model_flops(training.model),
    }


def to_text(recipe: dict[str, Any]) -> str:
    """Return the recipe as JSON with a line for each group: people read it in the run's folder."""
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


def _model(model: ModelShape, nemo: NemoRecipe) -> dict[str, Any]:
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
        "moe": _experts(model),
        "mla": _latent_attention(model),
    }


def _experts(model: ModelShape) -> dict[str, Any] | None:
    if model.moe is None:
        return None
    layers = [int(has_experts) for has_experts in model.expert_layers()]
    return {
        "num_moe_experts": model.moe.experts,
        "moe_router_topk": model.moe.top_k,
        "moe_ffn_hidden_size": model.moe.ffn or model.ffn,
        "moe_shared_expert_intermediate_size": shared_width(model) or None,
        "moe_layer_freq": None if all(layers) else layers,
    }


def _latent_attention(model: ModelShape) -> dict[str, Any] | None:
    mla = model.mla
    if mla is None:
        return None
    ranks = {"q_lora_rank": mla.q_rank, "kv_lora_rank": mla.kv_rank}
    return {
        **ranks,
        "qk_head_dim": mla.head_dim,
        "qk_pos_emb_head_dim": mla.rope_dim,
        "v_head_dim": mla.value_dim,
    }


def _plugin(job: Job, nemo: NemoRecipe) -> str:
    if job.dtype != "fp8":
        return _PLUGINS.get(job.dtype, f"{job.dtype}_mixed")
    return nemo.fp8_plugin if job.switches.fp8 is None else _FP8_PLUGINS[job.switches.fp8]


def _precision_aware(job: Job, nemo: NemoRecipe) -> bool | None:
    """Return True for weights and moments of lower precision, which no checkpoint can restore."""
    if job.switches.load_checkpoint is not None:
        return False
    return True if job.dtype == "bf16" and nemo.precision_aware_optimizer else None


def _userbuffers(job: Job, row: Row) -> str | None:
    """Return the row's configuration, or None if ``--set`` changed the shapes that it is for."""
    training = job.trained
    alike = (training.tp, training.cp, training.mbs) == (row.tp, row.cp, row.mbs)
    return row.userbuffers.get(job.dtype) if alike else None


def _profile(job: Job) -> dict[str, Any] | None:
    if not job.profile:
        return None
    switches = job.switches
    return {
        "start_step": switches.profile_start,
        "stop_step": switches.profile_stop,
        "ranks": wrappers.profiled_ranks(switches.profile_ranks or PROFILE_RANKS, job.scale),
    }
