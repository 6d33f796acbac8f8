# SPDX-License-Identifier: Apache-2.0
"""The recipe of a Megatron-Bridge job as plain data: NVIDIA's base function and what is set on top.

Source: scripts/performance of Megatron-Bridge 0.3.1 to 0.6.0. tests/real_bridge compares every
setting of every row.
"""

from collections.abc import Mapping
from typing import Any

from llmb.builtin.bridge import environment
from llmb.builtin.bridge.bridge_rows import BridgeRow, BridgeSize
from llmb.builtin.bridge.script_settings import ScriptSettings
from llmb.builtin.nvidia_images import Release
from llmb.builtin.wrappers import profiled_ranks
from llmb.contract.job import Job, Training
from llmb.contract.switches import PROFILE_RANKS, REPORT_INTERVAL, Switches
from llmb.core.names import suggest
from llmb.errors import UsageError

Values = dict[str, Any]

SCHEMA = 1
# the library writes its configuration into it when the training starts
DUMPED = "ConfigContainer.yaml"
CHECKPOINTS = "nemo_experiments/default/checkpoints"
_TRAINING = "megatron.bridge.training"
_PLUGINS = {
    "bf16": "bf16_mixed",
    "fp8_cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8_mx": "bf16_with_mxfp8_mixed",
    "fp8_sc": "bf16_with_fp8_subchannel_scaling_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
_MODULES = {
    "llama3_8b": "llama",
    "llama3_70b": "llama",
    "llama31_405b": "llama",
    "nemotronh_56b": "nemotronh",
}
_FILES = {
    "llama3_8b": "llama3",
    "llama3_70b": "llama3",
    "llama31_405b": "llama31",
    "nemotronh_56b": "nemotronh",
}
# The tables of the tensor parallel overlap, by hidden size and layout: NVIDIA takes Blackwell's for
# all of its types.
_BUFFERS = {
    "llama3_70b": ("h100_h8192_tp4", "b200_h8192_tp2"),
    "llama31_405b": ("h100_h16384_tp8_cp2", "b200_h16384_tp4_cp2"),
}
_SEQUENCE, _VOCABULARY = 8192, 128256


def recipe(
    job: Job,
    size: BridgeSize,
    row: BridgeRow,
    release: Release,
    gpu: str,
    scripted: ScriptSettings | None = None,
) -> Values:
    """Return all settings of the program, which looks nothing up when it runs.

    ``gpu``: the type that the row is for. ``scripted``: what the release's launch scripts set.
    """
    training = job.trained
    is_old = release.bridge.startswith("0.3.")
    function = size.function_of(row, job.scale, gpu, job.dtype)
    if scripted is not None:
        function, variables = scripted.base, dict(scripted.environment)
        values = _scripted(scripted, row, training)
    elif function is not None:
        values = _own(size, job, is_old=is_old) if size.sets_layout else _changes(size, row, job)
        variables = {}
    else:
        values = (
            _old(size, row, training, gpu, job.dtype)
            if is_old
            else _layout(training) | _new(size, row, training, job.dtype)
        )
        variables = environment.variables(
            release.bridge,
            size,
            row,
            training,
            gpu=gpu,
            dtype=job.dtype,
            count=row.count(job.scale),
        )
        function = _base_old(size) if is_old else _base_new(size, row, job.scale, gpu, job.dtype)
    return {
        "program": "bridge_pretrain",
        "schema": SCHEMA,
        "name": job.experiment_name,
        "release": job.release,
        "libraries": {"megatron-bridge": release.bridge, "megatron-core": release.core},
        "base": function,
        "set": values | _model(size, training, is_old=is_old) | _run(job),
        "overrides": dict(job.dotted),
        "environment": {
            **environment.launcher(gpu),
            **environment.at_scale(size.model, gpu, job.scale, job.dtype),
            **variables,
            **row.environment,
        },
        "function_environment": scripted is None and size.function is not None,
        "hub": {},
        "nodes": job.nodes,
        "gpus_per_node": job.gpus_per_node,
    }


def _base_old(size: BridgeSize) -> str:
    module = _MODULES.get(size.model, size.model)
    return f"megatron.bridge.recipes.{module}:{size.model}_pretrain_config"


def _base_new(size: BridgeSize, row: BridgeRow, scale: int, gpu: str, dtype: str) -> str:
    """Return the flat function of the row, which is for one GPU count."""
    module = f"{_MODULES.get(size.model, size.model)}.{gpu}.{_FILES.get(size.model, size.model)}"
    name = f"{size.model}_pretrain_{row.count(scale)}gpu_{gpu}_{dtype.replace('_', '')}_config"
    return f"megatron.bridge.perf_recipes.{module}:{name}"


def _run(job: Job) -> Values:
    """Return the settings of steps, files, profile and checkpoint."""
    settings: Values = {
        "train.train_iters": job.max_steps,
        "logger.save_config_filepath": DUMPED,
        # The library would load a checkpoint that it finds in its working folder.
        "checkpoint.load": job.switches.load_checkpoint,
    }
    if job.switches.save_checkpoint:
        settings |= {"checkpoint.save": CHECKPOINTS, "checkpoint.save_interval": job.max_steps}
    if job.profile:
        settings["profiling"] = _call("config:ProfilingConfig", _profile(job.switches, job.scale))
    if job.switches.stragglers:
        detector = {"enabled": True, "report_time_interval": REPORT_INTERVAL}
        settings["nvrx_straggler"] = _call("config:NVRxStragglerDetectionConfig", detector)
    return settings


def _profile(switches: Switches, world: int) -> Values:
    ranks = profiled_ranks(switches.profile_ranks or PROFILE_RANKS, world)
    steps = {
        "profile_step_start": switches.profile_start,
        "profile_step_end": switches.profile_stop,
    }
    return {"use_nsys_profiler": True, **steps, "profile_ranks": ranks}


def _layout(training: Training) -> Values:
    return {
        "model.tensor_model_parallel_size": training.tp,
        "model.pipeline_model_parallel_size": training.pp,
        "model.context_parallel_size": training.cp,
        "model.virtual_pipeline_model_parallel_size": training.vp if training.vp != 1 else None,
        "model.sequence_parallel": training.tp > 1,
        "train.global_batch_size": training.gbs,
        "train.micro_batch_size": training.mbs,
    }


def _model(size: BridgeSize, training: Training, *, is_old: bool) -> Values:
    """Return the layers of a size that has fewer than NVIDIA's model, nothing for the others."""
    if not size.cut:
        return {}
    pattern = training.model.pattern
    name = "hybrid_override_pattern" if is_old else "hybrid_layer_pattern"
    return {
        "model.num_layers": training.num_layers,
        **({f"model.{name}": pattern} if pattern else {}),
    }


def _dataset(training: Training, loader_settings: Mapping[str, Any]) -> Values:
    """Return synthetic samples. ``split`` divides them: training, validation, test."""
    values = {
        "seq_length": training.seq_length,
        "random_seed": 1234,
        "split": "99990,8,2",
        "num_workers": 8,
    }
    flags = dict.fromkeys(("reset_attention_mask", "reset_position_ids", "eod_mask_loss"), False)
    loader = {"num_dataset_builder_threads": 1, "data_sharding": True, "dataloader_type": "single"}
    return {
        "dataset": _call(
            "config:MockGPTDatasetConfig", {**values, **flags, **loader, **loader_settings}
        )
    }


def _changes(size: BridgeSize, row: BridgeRow, job: Job) -> Values:
    """Return what the job sets otherwise than NVIDIA's function, which the row repeats unless it
    names the function of another GPU count.

    And what run_script.py of NVIDIA sets on every function.
    """
    training, count = job.trained, row.count(job.scale)
    settings: Values = _layout(training) if row.function_gpus is not None else {}
    for name, path in _PARALLEL.items():
        value = getattr(training, name)
        if (value or 1) != (getattr(row, name) or 1):
            settings[path] = value
    if row.function_gpus is not None:
        settings["model.expert_model_parallel_size"] = training.ep
    if training.tp != row.tp:
        settings["model.sequence_parallel"] = training.tp > 1
    if training.mbs != row.mbs:
        settings["train.micro_batch_size"] = training.mbs
    if training.gbs != row.gbs.batch(count):
        settings["train.global_batch_size"] = training.gbs
    if count != job.scale and size.adam and row.pp > 1:
        settings |= _overlap_of_stages(training, job.dtype)
    return settings | _new(size, row, training, job.dtype) | row.launched


def _own(size: BridgeSize, job: Job, *, is_old: bool) -> Values:
    """Return the row's layout, batch and samples, whatever the function has."""
    training = job.trained
    settings = _layout(training) | {"model.seq_length": training.seq_length}
    if training.model.moe is not None:
        settings |= {
            "model.expert_model_parallel_size": training.ep,
            "model.expert_tensor_parallel_size": training.etp,
        }
    if "{dtype}" not in str(size.function):
        plugin = _PLUGINS.get(job.dtype)
        if plugin is None:
            raise UsageError(
                f"{job.experiment_name}: Megatron-Bridge does not train with '{job.dtype}'",
                hint=suggest(job.dtype, list(_PLUGINS)),
                code="dtype-unknown",
                key="dtype",
                value=job.dtype,
            )
        settings["mixed_precision"] = _call(f"mixed_precision:{plugin}", {})
    loader = {} if is_old else {"pin_memory": True, "persistent_workers": True}
    return settings | _dataset(training, loader)


# The scripts set these only if there are several replicas.
_NEEDS_REPLICAS = tuple(
    f"{owner}.overlap_param_gather_with_optimizer_step" for owner in ("optimizer", "comm_overlap")
)


def _scripted(scripted: ScriptSettings, row: BridgeRow, training: Training) -> Values:
    """Return what the scripts set on the general recipe, and the job's layout and samples."""
    settings = dict(scripted.values)
    if training.dp == 1:
        settings = {path: value for path, value in settings.items() if path not in _NEEDS_REPLICAS}
    settings |= _layout(training)
    for name in ("ep", "etp"):
        if (getattr(training, name) or 1) != (getattr(row, name) or 1):
            settings[_PARALLEL[name]] = getattr(training, name)
    return settings | _dataset(training, scripted.loader)


_PARALLEL = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
}


def _new(size: BridgeSize, row: BridgeRow, training: Training, dtype: str) -> Values:
    """Return the settings that run_script.py makes on a flat function of 0.6."""
    loader = {"num_workers": size.loader_workers, "pin_memory": True, "persistent_workers": True}
    settings = _dataset(training, loader)
    if dtype == "bf16" and size.adam:
        settings["optimizer.use_precision_aware_optimizer"] = True
    if row.graphs is None:
        settings |= {"model.cuda_graph_scope": None, "model.cuda_graph_modules": []}
        if size.function is not None:
            settings |= dict.fromkeys(("rng.te_rng_tracker", "model.use_te_rng_tracker"), False)
    return settings


def _old(size: BridgeSize, row: BridgeRow, training: Training, gpu: str, dtype: str) -> Values:
    """Return the settings that the scripts of 0.3.1 make on the general recipe, in their order."""
    settings: Values = {
        "mixed_precision": _call(f"mixed_precision:{_PLUGINS.get(dtype, dtype)}", {})
    }
    if dtype == "fp8_cs":
        settings["mixed_precision.first_last_layers_bf16"] = False
    settings |= {"mixed_precision.grad_reduce_in_fp32": False, "ddp.grad_reduce_in_fp32": False}
    if size.model.startswith("llama"):
        settings |= {
            "tokenizer.vocab_size": _VOCABULARY,
            "model.should_pad_vocab": True,
            "model.seq_length": _SEQUENCE,
        }
    settings |= _layout(training) | _memory(row) | _sharding(size, row) | _graphs(row) | _COMMON
    settings |= _overlap(size, training, gpu, dtype)
    if dtype == "bf16":
        settings["optimizer.use_precision_aware_optimizer"] = True
    settings |= _dataset(training, {})
    return settings


_COMMON: Values = {
    "train.eval_iters": 0,
    "train.manual_gc": True,
    "train.manual_gc_interval": 100,
    "checkpoint.save": None,
    "logger.log_interval": 1,
    "logger.tensorboard_dir": None,
    "ddp.check_for_nan_in_grad": False,
    "ddp.check_for_large_grads": False,
    "rerun_state_machine.check_for_nan_in_loss": False,
    "scheduler.lr_decay_iters": 50,
    "scheduler.lr_warmup_iters": 10,
    "model.apply_rope_fusion": True,
    "model.cross_entropy_fusion_impl": "te",
}


def _memory(row: BridgeRow) -> Values:
    settings: Values = {}
    if row.offload_layers is not None:
        settings |= {"model.cpu_offloading": True, "model.cpu_offloading_weights": False}
        settings["model.cpu_offloading_num_layers"] = row.offload_layers
    if row.recompute_layers is not None:
        settings |= {"model.recompute_granularity": "full", "model.recompute_method": "block"}
        settings["model.recompute_num_layers"] = row.recompute_layers
    return settings


def _sharding(size: BridgeSize, row: BridgeRow) -> Values:
    """Return fully sharded data parallelism, without what does not work together with it."""
    settings: Values = {}
    if row.fsdp:
        settings = {
            "ddp.use_megatron_fsdp": True,
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "ddp.keep_fp8_transpose_cache": False,
            "ddp.average_in_collective": False,
            "ddp.fsdp_double_buffer": True,
            "model.init_model_with_meta_device": True,
            "model.gradient_accumulation_fusion": False,
        }
        if size.model == "llama3_70b":
            settings["ddp.suggested_communication_unit_size"] = 800_000_000
    if row.nccl_ub:
        settings |= {"ddp.nccl_ub": True, "ddp.average_in_collective": False}
        settings["ddp.fsdp_manual_registration"] = row.fsdp
    return settings


def _graphs(row: BridgeRow) -> Values:
    if row.graphs is None:
        return {}
    settings: Values = {
        "model.cuda_graph_impl": row.graphs,
        "model.cuda_graph_scope": list(row.graph_scope),
    }
    return settings | dict.fromkeys(
        ("rng.te_rng_tracker", "model.use_te_rng_tracker"), row.graphs != "none"
    )


def _overlap(size: BridgeSize, training: Training, gpu: str, dtype: str) -> Values:
    """Return the settings that let communication overlap computation."""
    settings: Values = {}
    if size.model == "llama3_8b":
        settings["comm_overlap"] = _call(
            "comm_overlap:CommOverlapConfig", {"tp_comm_overlap": training.tp > 1}
        )
    elif size.model in _BUFFERS:
        table = _BUFFERS[size.model][gpu != "h100"]
        kind = "bf16" if dtype == "bf16" else "fp8"
        name = f"{_TRAINING}.comm_overlap:userbuffers_{kind}_{table}_mbs1_seqlen{_SEQUENCE}"
        settings["comm_overlap.tp_comm_overlap_cfg"] = {"name": name}
    if dtype == "nvfp4" and size.model.startswith("llama"):
        settings["comm_overlap.tp_comm_overlap"] = False
    return settings | _overlap_of_stages(training, dtype)


def _overlap_of_stages(training: Training, dtype: str) -> Values:
    """Return the overlap of the optimizer's step with gathering parameters, for virtual stages.

    The scripts of 0.6 set it for GPU counts that have no function.
    """
    # With fp8_mx the gradient norm became NaN, so NVIDIA leaves it off there.
    has_stages = training.dp > 1 and training.pp > 1 and (training.vp or 1) > 1
    if not has_stages or dtype in ("fp8_mx", "nvfp4"):
        return {}
    return dict.fromkeys(_NEEDS_REPLICAS, True)


def _call(function: str, arguments: Values) -> Values:
    return {"call": f"{_TRAINING}.{function}", "with": arguments}
