# SPDX-License-Identifier: Apache-2.0
"""The lines of the log: first two of llmb, then lines in the format of NeMo 2."""

import time
from dataclasses import dataclass

from llmb_workloads.torch_recipe import TorchRecipe
from llmb_workloads.world import Process

EMULATED = (
    "torch_pretrain: this device has no bf16 instructions, so bf16 is emulated in software and slow"
)


def slowed_line(pause: float) -> str:
    """Return the line of a run that is slow on purpose, by the share ``pause`` of each step."""
    return f"torch_pretrain: slow on purpose: a pause of {100 * pause:.0f} % after each step"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """The figures of one step that rank 0 logs: bytes, seconds, TFLOPS.

    `tflops` is None if FLOPs are unknown.
    """

    step: int
    max_steps: int
    learning_rate: float
    global_batch: int
    peak_memory: int
    memory: int
    loss: float
    seconds: float
    tflops: float | None


def opening_line(recipe: TorchRecipe, process: Process, device: str, parameters: int) -> str:
    """The first line: model, dtype, ranks and device."""
    model = f"{recipe.model.architecture} of {parameters / 1e6:.2f} M parameters"
    return f"torch_pretrain: {model} in {recipe.dtype}, ranks: {process.world}, {device}"


def format_value(value: float) -> str:
    """A number as NeMo prints it: integers in full, others with 4 significant digits."""
    if float(value).is_integer():
        return str(int(value))
    # Unlike '.4g', '.4' uses scientific notation from 1000 on, as NeMo does.
    return format(value, ".4")


def tflops_per_gpu(model_flops: float, global_batch: int, seconds: float, world: int) -> float:
    """Return model TFLOPS of one rank. `model_flops` is the FLOPs of a sample."""
    return model_flops * global_batch / seconds / world / 1e12


def step_line(record: LoggedStep) -> str:
    """Return the line of one step. As in NeMo, the first one has no consumed_samples."""
    values: dict[str, float | None] = {
        "lr": record.learning_rate,
        "global_batch_size": record.global_batch,
        "global_step": record.step,
        "peak_memory_usage": record.peak_memory,
        "memory_allocated": record.memory,
        "reduced_train_loss": record.loss,
        "train_step_timing in s": record.seconds,
        "TFLOPS_per_GPU": record.tflops,
        "consumed_samples": (record.step + 1) * record.global_batch if record.step else None,
    }
    head = f"Training epoch 0, iteration {record.step}/{record.max_steps - 1}"
    shown = [f"{key}: {format_value(value)}" for key, value in values.items() if value is not None]
    return " | ".join([head, *shown])


def end_line(max_steps: int) -> str:
    """The line after the last step."""
    return f"`Trainer.fit` stopped: `max_steps={max_steps}` reached."


def checkpoint_name(loss: float, consumed_samples: int) -> str:
    """The name of a checkpoint's folder, as NeMo names it."""
    return f"default--reduced_train_loss={loss:.4f}-epoch=0-consumed_samples={consumed_samples}"


def checkpoint_line(*, iteration: int, started: float, seconds: float) -> str:
    """Return the line after a save. `started` is in seconds since the epoch."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started + seconds))
    return (
        f"[NeMo I {stamp} nemo_logging:393] Global Checkpoint Save : Rank: 0 : "
        f"Iteration: {iteration} : Start time: {started:.3f}s : Save duration: {seconds:.3f}s"
    )
