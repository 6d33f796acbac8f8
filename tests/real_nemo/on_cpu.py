# SPDX-License-Identifier: Apache-2.0
"""python on_cpu.py RECIPE.json: the program, with stand-ins for what only a GPU has.

Run by the NeMo environment's Python. NeMo's trainer, loops, callbacks, progress printer and checkpoints are its own.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

import megatron.core.dist_checkpointing.strategies.filesystem_async as filesystem
import nemo.lightning.io.pl as checkpoints
import torch
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from nemo.collections.llm.gpt.model.base import gpt_forward_step, local_layer_spec
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.overrides import TorchFunctionMode

import llmb_workloads.nemo_pretrain.__main__ as program
from llmb_workloads.nemo_pretrain.build import build
from llmb_workloads.nemo_pretrain.recipe import Recipe

FUSIONS = (
    "apply_rope_fusion", "bias_activation_fusion", "bias_dropout_fusion", "cross_entropy_loss_fusion",
    "gradient_accumulation_fusion", "masked_softmax_fusion", "persist_layer_norm",
)  # fmt: skip


class OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Lets tensors that are asked for on a GPU be made where there is none."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``function`` with the CPU for its device."""
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return args[0] if function is torch.Tensor.cuda else function(*args, **kwargs)


def replace_gpu() -> None:
    """Let torch.cuda and Megatron's random states be those of a CPU."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.synchronize = lambda *_: None
    CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    checkpoints._fix_tensors_device = lambda state: state
    # torch has given this function one more argument since Megatron core 0.12.
    write_item = functools.partial(filesystem._write_item, serialization_format=SerializationFormat.TORCH_SAVE)
    filesystem._write_item = write_item


def build_for_cpu(recipe: Recipe) -> Any:
    """The program's configuration, less what takes a GPU, Transformer Engine or a second process."""
    partial = build(recipe)
    model, trainer, optimizer = partial.model.config, partial.trainer, partial.optim.config
    model.transformer_layer_spec, model.forward_step_fn = local_layer_spec, masked_step
    for name in FUSIONS:
        setattr(model, name, False)
    trainer.accelerator, trainer.plugins, trainer.precision = "cpu", None, 32
    trainer.strategy.process_group_backend = "gloo"
    trainer.strategy.ddp.use_distributed_optimizer = optimizer.use_distributed_optimizer = False
    optimizer.clip_grad, optimizer.bf16 = 0.0, False
    return partial


def masked_step(model: Any, batch: dict[str, Any]) -> Any:
    """A step with the causal mask, which Transformer Engine would have made."""
    length = batch["tokens"].shape[1]
    return gpt_forward_step(model, {**batch, "attention_mask": torch.ones(1, 1, length, length).tril() < 0.5})


if __name__ == "__main__":
    replace_gpu()
    program.build = build_for_cpu  # type: ignore[attr-defined]
    with OnCpu():
        sys.exit(program.main(sys.argv[1:]))
