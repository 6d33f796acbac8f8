# SPDX-License-Identifier: Apache-2.0
"""python driver.py RECIPES.json FOUND.json: builds recipes with the program and writes the values
of NeMo's objects.

Run by the NeMo environment's Python, once for all: the import takes longer than every recipe.
Nothing of ours reads the objects: the configuration is built to the end as NeMo-Run would, and the
values are taken from the instances.
"""

import copy
import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import fiddle
import nemo.collections.llm.gpt.model.ssm as ssm
import nemo.collections.llm.recipes.tp_overlap_configs.userbuffers as userbuffers
import tokenizers

from llmb_workloads.fields import RefusedError
from llmb_workloads.nemo_pretrain.build import build
from llmb_workloads.nemo_pretrain.recipe import parse_recipe

# Modules of this folder, which is first on sys.path.
leaves, nvidia = importlib.import_module("leaves"), importlib.import_module("nvidia")

SHAPE = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "seq_length",
    "gated_linear_unit",
    "normalization",
    "hybrid_override_pattern",
    "cross_entropy_loss_fusion",
    "cross_entropy_fusion_impl",
    "enable_cuda_graph",
    "attention_backend",
    "mamba_head_dim",
    "mamba_state_dim",
    "mamba_num_groups",
)


def untouched(name: str) -> dict[str, Any]:
    """The model of NeMo's unchanged recipe."""
    recipe = importlib.import_module(f"nemo.collections.llm.recipes.{name}").pretrain_recipe(
        performance_mode=True
    )
    return shape(recipe.model.config)


def instances(raw: object) -> dict[str, Any]:
    """The arguments of NeMo's pretrain, built, with the CPU instead of GPUs."""
    partial = copy.deepcopy(build(parse_recipe(raw)))
    partial.trainer.accelerator = "cpu"
    asked, aware = hub(partial.data.tokenizer), partial.optim.config.use_precision_aware_optimizer
    # These need Transformer Engine at once.
    partial.model.config.apply_rope_fusion = partial.optim.config.use_precision_aware_optimizer = (
        False
    )
    call = fiddle.build(partial)
    function = f"{call.func.__module__}.{call.func.__qualname__}"
    return {"function": function, "hub": asked, "precision_aware": aware, **call.keywords}


def hub(config: Any) -> dict[str, Any] | None:
    """The repository on the model hub, replaced by a small tokenizer of this folder; None without a
    hub.
    """
    if config.library != "huggingface":
        return None
    asked = {"asked": config.model_name, "library": config.library, "use_fast": config.use_fast}
    config.model_name = "small_tokenizer"
    return asked


def make_small_tokenizer(folder: Path) -> None:
    """Write a tokenizer of four words in the format of transformers."""
    words = {"<unk>": 0, "one": 1, "two": 2, "three": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def found(raw: object) -> dict[str, Any]:
    """The values of the instances of one recipe, as plain data."""
    call = instances(raw)
    trainer, data, model = call["trainer"], call["data"], call["model"]
    own = {type(callback).__name__: callback for callback in trainer.callbacks}
    flops = own["FLOPsMeasurementCallback"]
    return {
        "function": call["function"],
        "model": shape(model.config),
        "parallelism": plain(trainer.strategy.parallelism),
        "trainer": {
            "max_steps": trainer.max_steps,
            "nodes": trainer.num_nodes,
            "devices": trainer.num_devices,
            "validation": trainer.limit_val_batches,
            "validation_interval": trainer.val_check_interval,
            "log_every": trainer.log_every_n_steps,
            "loggers": len(trainer.loggers),
        },
        "data": {
            "kind": type(data).__name__,
            "mbs": data.micro_batch_size,
            "gbs": data.global_batch_size,
            "seq_length": data.seq_length,
            "samples": data.num_train_samples,
        },
        "tokenizer": tokenizer(model, data),
        "hub": call["hub"],
        "precision": plain(trainer.strategy.precision_plugin.dtype_config),
        "optimizer": {
            **plain(call["optim"].config),
            "use_precision_aware_optimizer": call["precision_aware"],
        },
        "callbacks": sorted(own),
        "overlap": overlap(own["MegatronCommOverlapCallback"]),
        "flops": {
            "name": flops.model,
            "same_objects": flops.model_cfg is model.config and flops.data_cfg is data,
        },
        "step_flops": step_flops(flops),
        "profile": profile(own.get("NsysCallback")),
        "checkpoint": checkpoint(own.get("ModelCheckpoint")),
        "resume": plain(call["resume"]),
        "log": {"name": call["log"].name, "dir": call["log"].log_dir, "ckpt": call["log"].ckpt},
    }


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """Every leaf of the program's and of NVIDIA's configuration, and the variables that NVIDIA's
    job exports.
    """
    theirs = nvidia.configured(row)
    return {
        "ours": leaves.leaves(build(parse_recipe(row["recipe"]))),
        "theirs": leaves.leaves(theirs.recipe),
        "executor": nvidia.executed(theirs.executor),
    }


def refusal(raw: object) -> str:
    """The program's error for a recipe that this NeMo cannot run, or an empty string."""
    try:
        build(parse_recipe(raw))
    except RefusedError as error:
        return str(error)
    return ""


def shape(config: Any) -> dict[str, Any]:
    """Fields of the model configuration for the tests; None for those that this kind of model
    lacks.
    """
    return {name: plain(getattr(config, name, None)) for name in SHAPE}


def tokenizer(model: Any, data: Any) -> dict[str, Any]:
    """The kind and size of the one tokenizer that model and data share."""
    kind = type(data.tokenizer).__name__
    return {
        "kind": kind,
        "vocabulary": data.tokenizer.vocab_size,
        "shared": model.tokenizer is data.tokenizer,
    }


def overlap(callback: Any) -> dict[str, Any]:
    """The callback's settings; user buffers as the names of NeMo's equal configurations."""
    settings = callback.user_comm_overlap_cfg
    buffers = settings.tp_comm_overlap_cfg
    names = [
        name
        for name, value in vars(userbuffers).items()
        if name.startswith("userbuffers") and value == buffers
    ]
    return {**plain(settings), "tp_comm_overlap_cfg": names if buffers is not None else None}


def step_flops(callback: Any) -> float | None:
    """FLOPs of a step by NeMo's formula; None if it has none of this name."""
    try:
        total, _ = callback.eval_model_flops()
    except KeyError:
        return None
    return float(total)


def profile(callback: Any) -> dict[str, Any] | None:
    """The steps and ranks that Nsight records."""
    if callback is None:
        return None
    start, end = callback._nsys_profile_start_step, callback._nsys_profile_end_step
    return {"start": start, "stop": end, "ranks": callback._nsys_profile_ranks}


def checkpoint(callback: Any) -> dict[str, Any] | None:
    """When and what the checkpoint callback saves."""
    if callback is None:
        return None
    return {
        "kind": type(callback).__module__,
        "every": callback._every_n_train_steps,
        "top_k": callback.save_top_k,
        "last": callback.save_last,
        "monitor": callback.monitor,
        "optimizer": callback.save_optim_on_train_end,
        "context": callback.always_save_context or callback.save_context_on_train_end,
    }


def plain(value: Any) -> Any:
    """The value in types of JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def main(recipes: Path, answer: Path) -> None:
    """Build every recipe of the file, and unchanged every NeMo recipe that they name."""
    ssm.default_mamba_stack_spec = None  # mamba-ssm needs CUDA: only layers would ask for it
    make_small_tokenizer(Path("small_tokenizer"))
    wanted = json.loads(recipes.read_text(encoding="utf-8"))
    names = sorted({raw["model_recipe"] or raw["recipe"] for raw in wanted["found"].values()})
    built = {
        "untouched": {name: untouched(name) for name in names},
        "found": {key: found(raw) for key, raw in wanted["found"].items()},
        "refused": {key: refusal(raw) for key, raw in wanted["refused"].items()},
        "compared": {key: compared(row) for key, row in wanted["compared"].items()},
    }
    answer.write_text(json.dumps(built), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
