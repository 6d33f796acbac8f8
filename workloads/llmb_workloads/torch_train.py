# SPDX-License-Identifier: Apache-2.0
"""A data-parallel training run: device, steps, trace, checkpoint. Rank 0 logs in NeMo's format."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from llmb_workloads.models import build, parameter_count
from llmb_workloads.node import cpu_has_bf16, node_line, resident_memory
from llmb_workloads.steplog import (
    EMULATED,
    LoggedStep,
    checkpoint_line,
    checkpoint_name,
    end_line,
    opening_line,
    slowed_line,
    step_line,
    tflops_per_gpu,
)
from llmb_workloads.torch_recipe import TorchProfile, TorchRecipe
from llmb_workloads.world import BatchPlan, Process, sample_tokens, samples_of_step, successor_map


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One process's device."""

    torch_device: torch.device

    @property
    def is_gpu(self) -> bool:
        """Return True for a GPU."""
        return bool(self.torch_device.type == "cuda")

    @property
    def name(self) -> str:
        """The GPU's name, or "CPU" with its number of threads."""
        if self.is_gpu:
            return str(torch.cuda.get_device_name(self.torch_device))
        return f"CPU with {torch.get_num_threads()} threads a rank"

    @property
    def has_bf16(self) -> bool:
        """Return True if it has bf16 instructions."""
        if self.is_gpu:
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return cpu_has_bf16()

    def clock(self) -> float:
        """Seconds, once the device has finished all its work."""
        if self.is_gpu:
            torch.cuda.synchronize(self.torch_device)
        return time.perf_counter()

    def memory(self) -> tuple[int, int]:
        """Peak and present memory in bytes: the GPU's, or this process's resident memory."""
        if not self.is_gpu:
            return resident_memory()
        # NeMo also logs the memory that torch has reserved as the peak.
        return torch.cuda.max_memory_reserved(self.torch_device), torch.cuda.memory_allocated(
            self.torch_device
        )


def choose_device(local_rank: int) -> Device:
    """Return this process's GPU if there are GPUs, else the CPU."""
    if not torch.cuda.is_available():
        return Device(torch_device=torch.device("cpu"))
    # A launcher that shows each process only its own GPU leaves it the index 0.
    index = local_rank if torch.cuda.device_count() > 1 else 0
    torch.cuda.set_device(index)
    return Device(torch_device=torch.device("cuda", index))


def join_group(process: Process, device: Device) -> None:
    """Join the group of all ranks, with NCCL on GPUs and gloo on CPUs."""
    backend = "nccl" if device.is_gpu else "gloo"
    bound = device.torch_device if device.is_gpu else None
    # A single process needs no address and no port, so any number of them can share a machine.
    store = dist.HashStore() if process.world == 1 else None
    dist.init_process_group(
        backend, store=store, rank=process.rank, world_size=process.world, device_id=bound
    )


def mean_of_ranks(value: torch.Tensor) -> float:
    """The mean of a number over all ranks."""
    total = value.detach().clone().float()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


# Common values for pretraining language models.
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0


class Trainer:
    """The model, replicated on every rank, with its optimizer."""

    def __init__(self, model: Any, device: Device, *, dtype: str, learning_rate: float) -> None:
        self.device = device
        self.dtype = dtype
        index = [device.torch_device.index] if device.is_gpu else None
        self.model = DistributedDataParallel(model, device_ids=index)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )

    def step(self, batches: list[torch.Tensor]) -> torch.Tensor:
        """Train on the micro batches, each (samples, seq + 1). Return their mean loss in nats."""
        total = torch.zeros((), device=self.device.torch_device)
        for number, tokens in enumerate(batches, start=1):
            # Only the last micro batch exchanges gradients with the other ranks.
            last = number == len(batches)
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = self._loss(tokens.to(self.device.torch_device)) / len(batches)
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def _loss(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        # Weights stay fp32; in bf16 the matrix products run in bf16.
        with torch.autocast(
            self.device.torch_device.type, torch.bfloat16, enabled=self.dtype == "bf16"
        ):
            logits = self.model(input_ids=inputs).logits
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Tracer:
    """A torch.profiler trace of the steps that the recipe names, one file for each rank."""

    def __init__(
        self, profile_steps: TorchProfile | None, process: Process, device: Device
    ) -> None:
        self._profile = profile_steps
        self._rank = process.rank
        self._activities = [ProfilerActivity.CPU] + (
            [ProfilerActivity.CUDA] if device.is_gpu else []
        )
        self._profiler: Any = None
        if profile_steps is not None:
            # Now, so that a run with an invalid folder fails at once.
            Path(profile_steps.dir).mkdir(parents=True, exist_ok=True)

    def before(self, step: int) -> None:
        """Start or stop the trace. Call before each step, and at the end with max_steps."""
        if self._profile is not None and step == self._profile.start_step:
            self._profiler = profile(activities=self._activities)
            self._profiler.start()
        if self._profile is not None and step == self._profile.stop_step:
            self._profiler.stop()
            trace = Path(self._profile.dir) / f"rank{self._rank}.pt.trace.json"
            self._profiler.export_chrome_trace(str(trace))


def save_checkpoint(
    trainer: Trainer, folder: Path, *, loss: float, consumed_samples: int
) -> tuple[float, float]:
    """Save model and optimizer as `folder`/default--.../weights/*.distcp, each rank its share.

    Returns the start in epoch seconds and the seconds that it took.
    """
    started, clock = time.time(), time.perf_counter()
    model, optimizer = get_state_dict(trainer.model, trainer.optimizer)
    weights = folder / checkpoint_name(loss, consumed_samples) / "weights"
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=weights)
    return started, time.perf_counter() - clock


def train(recipe: TorchRecipe, process: Process, plan: BatchPlan, pause: float = 0.0) -> Trainer:
    """Train for max_steps, and return the trainer. Any failure is raised as its exception.

    ``pause``: a share of each step by which the step lasts longer on purpose.
    """
    device = choose_device(process.local_rank)
    join_group(process, device)
    torch.manual_seed(recipe.seed)
    model = build(recipe.model, str(device.torch_device))
    _log(
        process,
        opening_line(
            recipe, process, f"{device.name}, torch {torch.__version__}", parameter_count(model)
        ),
    )
    if device.is_gpu and process.local_rank == 0 and (line := node_line()) is not None:
        print(line, flush=True)
    if recipe.dtype == "bf16" and not device.has_bf16:
        # A warning and no change: another precision would be another benchmark.
        _log(process, EMULATED)
    trainer = Trainer(model, device, dtype=recipe.dtype, learning_rate=recipe.learning_rate)
    if pause:
        _log(process, slowed_line(pause))
    loss = _run_steps(recipe, process, plan, trainer, pause)
    if recipe.checkpoint is not None and recipe.checkpoint.save:
        consumed = recipe.max_steps * recipe.global_batch
        folder = Path(recipe.checkpoint.dir)
        started, seconds = save_checkpoint(trainer, folder, loss=loss, consumed_samples=consumed)
        _log(process, checkpoint_line(iteration=recipe.max_steps, started=started, seconds=seconds))
    # Last, as in NeMo: readers of the log take the run for finished.
    _log(process, end_line(recipe.max_steps))
    dist.destroy_process_group()  # not after a failure: it would wait for the other ranks
    return trainer


def _run_steps(
    recipe: TorchRecipe, process: Process, plan: BatchPlan, trainer: Trainer, pause: float
) -> float:
    """Run every step, each longer by the share ``pause``, and return the last step's loss."""
    successors = successor_map(recipe.model.vocab, recipe.seed)
    tracer = Tracer(recipe.profile, process, trainer.device)
    loss = float("nan")
    for step in range(recipe.max_steps):
        batches = [
            _tokens(recipe, successors, numbers) for numbers in samples_of_step(plan, process, step)
        ]
        tracer.before(step)
        started = trainer.device.clock()
        share = trainer.step(batches)
        if pause:
            time.sleep(pause * (trainer.device.clock() - started))
        seconds = trainer.device.clock() - started
        loss = mean_of_ranks(share)
        _log(process, step_line(_record(recipe, process, trainer.device, step, loss, seconds)))
    tracer.before(recipe.max_steps)
    return loss


def _tokens(recipe: TorchRecipe, successors: dict[int, int], numbers: range) -> torch.Tensor:
    # One token more than the model's input: each token's target is the next one.
    length = recipe.model.seq_length + 1
    samples = [
        sample_tokens(successors, length=length, seed=recipe.seed, number=number)
        for number in numbers
    ]
    return torch.tensor(samples)


def _record(
    recipe: TorchRecipe, process: Process, device: Device, step: int, loss: float, seconds: float
) -> LoggedStep:
    peak, present = device.memory()
    flops = recipe.model_flops
    return LoggedStep(
        step=step,
        max_steps=recipe.max_steps,
        learning_rate=recipe.learning_rate,
        global_batch=recipe.global_batch,
        peak_memory=peak,
        memory=present,
        loss=loss,
        seconds=seconds,
        tflops=None
        if flops is None
        else tflops_per_gpu(flops, recipe.global_batch, seconds, process.world),
    )


def _log(process: Process, line: str) -> None:
    if process.rank == 0:
        print(line, flush=True)
