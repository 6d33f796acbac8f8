# SPDX-License-Identifier: Apache-2.0
"""python on_cpu.py RECIPE.json [--narrow] [--defer]: the program, with mocks of what only GPUs
have.

Run by the NeMo environment's Python. NeMo's trainer, loops, callbacks, progress printer and
checkpoints are its own, as are Megatron's layers: linear ones add their weight gradients to the
gradient buffer, with a stand-in for Apex's kernel. After each step a line says how many gradients
of the output layer are still held for later, and how many weight gradients of it were computed.
``--narrow`` trains the recipe's layers with widths that a CPU can compute. ``--defer`` defers the
output layer's gradients whatever the program says.
"""

import contextlib
import copy
import functools
import os
import sys
from typing import Any

import mocks

mocks.install([mocks.FUSED_GRADIENT])

import lightning.pytorch as pl  # noqa: E402
import megatron.core.dist_checkpointing.strategies.filesystem_async as filesystem  # noqa: E402
import nemo.lightning.io.pl as checkpoints  # noqa: E402
import nemo_run  # noqa: E402
import torch  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.optimizer import ChainedOptimizer  # noqa: E402
from megatron.core.tensor_parallel.layers import ColumnParallelLinear  # noqa: E402
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker  # noqa: E402
from nemo.collections.llm.gpt.model.base import gpt_forward_step, local_layer_spec  # noqa: E402
from torch.distributed.checkpoint.filesystem import SerializationFormat  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

import llmb_workloads.nemo_pretrain.__main__ as program  # noqa: E402
from llmb_workloads.nemo_pretrain.build import build  # noqa: E402
from llmb_workloads.nemo_pretrain.recipe import NemoRunRecipe  # noqa: E402

FUSIONS = (
    "apply_rope_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "cross_entropy_loss_fusion",
    "masked_softmax_fusion",
    "persist_layer_norm",
)
NARROW = {
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "seq_length": 64,
}
NARROW_VOCABULARY = 1024


class Held(pl.Callback):  # type: ignore[misc]
    """Prints after each step which gradients of the output layer are still deferred."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Print the number of deferred gradients and of computed weight gradients."""
        for module in trainer.strategy.megatron_parallel.modules():
            if isinstance(module, GPTModel):
                held, weight = len(module.grad_output_buffer or ()), module.output_layer.weight
                computed = mocks.CALLS[tuple(weight.shape)]
                print(
                    f"on_cpu: gradients of the output layer held: {held}, computed: {computed}",
                    flush=True,
                )


class OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Creates tensors for GPUs on the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call ``function`` with the CPU for its device."""
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return args[0] if function is torch.Tensor.cuda else function(*args, **kwargs)


def replace_gpu() -> None:
    """Replace torch.cuda and Megatron's random states with those of the CPU."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.synchronize = lambda *_: None
    CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    checkpoints._fix_tensors_device = lambda state: state
    # torch has given this function one more argument since Megatron core 0.12.
    write_item = functools.partial(
        filesystem._write_item, serialization_format=SerializationFormat.TORCH_SAVE
    )
    filesystem._write_item = write_item


class Inner(ColumnParallelLinear):  # type: ignore[misc]
    """A layer inside the model, which like Transformer Engine's does not support the deferral of
    the output layer.
    """

    def __init__(self, *sizes: Any, config: Any, **others: Any) -> None:
        config = copy.copy(config)
        config.defer_embedding_wgrad_compute = False
        super().__init__(*sizes, config=config, **others)


def layers(config: Any) -> Any:
    """Megatron's layers made of torch operations."""
    found = local_layer_spec(config)
    found.submodules.self_attention.submodules.linear_qkv = Inner
    found.submodules.mlp.submodules.linear_fc1 = Inner
    return found


def spoil_gradient(step: int) -> None:
    """Make one weight's gradient NaN at ``step``; weights and loss then do not change."""
    measure, update = ChainedOptimizer.get_grad_norm, ChainedOptimizer.step_with_ready_grads
    steps = []

    def measured(self: Any) -> Any:
        steps.append(step)
        if len(steps) - 1 == step:
            self.chained_optimizers[0].get_main_grads_for_grad_norm()[0].view(-1)[0] = float("nan")
        return measure(self)

    ChainedOptimizer.get_grad_norm = measured
    ChainedOptimizer.step_with_ready_grads = lambda self: len(steps) - 1 == step or update(self)


def build_for_cpu(recipe: NemoRunRecipe, *, narrow: bool, defer: bool) -> Any:
    """The program's configuration without what needs a GPU or Transformer Engine."""
    partial = build(recipe)
    model, trainer, optimizer = partial.model.config, partial.trainer, partial.optim.config
    model.transformer_layer_spec, model.forward_step_fn = layers, masked_step
    for name in FUSIONS:
        setattr(model, name, False)
    trainer.accelerator, trainer.plugins, trainer.precision = "cpu", None, 32
    trainer.strategy.process_group_backend = "gloo"
    trainer.strategy.sequence_parallel = False  # torch's norms do not split the sequence
    trainer.strategy.ddp.use_distributed_optimizer = optimizer.use_distributed_optimizer = False
    optimizer.use_precision_aware_optimizer = False
    optimizer.clip_grad, optimizer.bf16 = 0.0, False
    if narrow:
        for name, value in NARROW.items():
            setattr(model, name, value)
        partial.data.seq_length = NARROW["seq_length"]
        partial.data.tokenizer.vocab_size = NARROW_VOCABULARY
    for callback in trainer.callbacks:
        if callback.__fn_or_cls__.__name__ == "MegatronCommOverlapCallback" and defer:
            callback.defer_embedding_wgrad_compute, callback.wgrad_deferral_limit = True, 50
    trainer.callbacks = [*trainer.callbacks, nemo_run.Config(Held)]
    return partial


def masked_step(model: Any, batch: dict[str, Any]) -> Any:
    """A step with the causal mask, which Transformer Engine would create."""
    length = batch["tokens"].shape[1]
    return gpt_forward_step(
        model, {**batch, "attention_mask": torch.ones(1, 1, length, length).tril() < 0.5}
    )


def main(words: list[str]) -> int:
    """Run the program with the arguments that are not options of this script, and return its exit
    code.
    """
    replace_gpu()
    if spoilt := os.environ.get("LLMB_TEST_SPOILT_STEP"):
        spoil_gradient(int(spoilt))
    adapted = functools.partial(build_for_cpu, narrow="--narrow" in words, defer="--defer" in words)
    program.build = adapted  # type: ignore[attr-defined]
    with OnCpu():
        return program.main([word for word in words if word not in ("--narrow", "--defer")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
