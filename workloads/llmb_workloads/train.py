# SPDX-License-Identifier: Apache-2.0
"""A data-parallel training run; rank 0 logs each step in NeMo's format."""

from pathlib import Path

import torch

from llmb_workloads.data import BatchPlan, sample_tokens, samples_of_step, successor_map
from llmb_workloads.device import Device, choose_device, join_group, leave_group, mean_of_ranks
from llmb_workloads.models import build, parameter_count
from llmb_workloads.node import node_line
from llmb_workloads.step import Tracer, Trainer, save_checkpoint
from llmb_workloads.steplog import (
    EMULATED,
    StepRecord,
    checkpoint_line,
    end_line,
    opening_line,
    step_line,
    tflops_per_gpu,
)
from llmb_workloads.torch_recipe import Recipe
from llmb_workloads.world import Place


def train(recipe: Recipe, place: Place, plan: BatchPlan) -> Trainer:
    """Train for max_steps; returns the trainer. Any failure is raised as its exception."""
    device = choose_device(place.local_rank)
    join_group(place, device)
    torch.manual_seed(recipe.seed)
    model = build(recipe.model, str(device.torch_device))
    _log(place, opening_line(recipe, place, f"{device.name}, torch {torch.__version__}", parameter_count(model)))
    if device.is_gpu and place.local_rank == 0 and (line := node_line()) is not None:
        print(line, flush=True)
    if recipe.dtype == "bf16" and not device.has_bf16:
        # A warning and no change: another precision would be another benchmark.
        _log(place, EMULATED)
    trainer = Trainer(model, device, dtype=recipe.dtype, learning_rate=recipe.learning_rate)
    loss = _run_steps(recipe, place, plan, trainer)
    if recipe.checkpoint is not None and recipe.checkpoint.save:
        _save(recipe, Path(recipe.checkpoint.dir), place, trainer, loss)
    # Last, as in NeMo: readers of the log take the run for finished.
    _log(place, end_line(recipe.max_steps))
    leave_group()
    return trainer


def _run_steps(recipe: Recipe, place: Place, plan: BatchPlan, trainer: Trainer) -> float:
    """Run every step; returns the last step's loss."""
    successors = successor_map(recipe.model.vocab, recipe.seed)
    tracer = Tracer(recipe.profile, place, trainer.device)
    loss = float("nan")
    for step in range(recipe.max_steps):
        batches = [_tokens(recipe, successors, numbers) for numbers in samples_of_step(plan, place, step)]
        tracer.before(step)
        started = trainer.device.clock()
        share = trainer.step(batches)
        seconds = trainer.device.clock() - started
        loss = mean_of_ranks(share)
        _log(place, step_line(_record(recipe, place, trainer.device, step, loss, seconds)))
    tracer.before(recipe.max_steps)
    return loss


def _save(recipe: Recipe, folder: Path, place: Place, trainer: Trainer, loss: float) -> None:
    consumed = recipe.max_steps * recipe.global_batch
    started, seconds = save_checkpoint(trainer, folder, loss=loss, consumed_samples=consumed)
    _log(place, checkpoint_line(iteration=recipe.max_steps, started=started, seconds=seconds))


def _tokens(recipe: Recipe, successors: dict[int, int], numbers: range) -> torch.Tensor:
    # One token more than the model's input: each token's target is the next one.
    length = recipe.model.seq_length + 1
    samples = [sample_tokens(successors, length=length, seed=recipe.seed, number=number) for number in numbers]
    return torch.tensor(samples)


def _record(recipe: Recipe, place: Place, device: Device, step: int, loss: float, seconds: float) -> StepRecord:
    peak, present = device.memory()
    flops = recipe.model_flops
    return StepRecord(
        step=step,
        max_steps=recipe.max_steps,
        learning_rate=recipe.learning_rate,
        global_batch=recipe.global_batch,
        peak_memory=peak,
        memory=present,
        loss=loss,
        seconds=seconds,
        tflops=None if flops is None else tflops_per_gpu(flops, recipe.global_batch, seconds, place.world),
    )


def _log(place: Place, line: str) -> None:
    if place.rank == 0:
        print(line, flush=True)
