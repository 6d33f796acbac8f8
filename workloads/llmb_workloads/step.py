# SPDX-License-Identifier: Apache-2.0
"""One training step: every micro batch, the gradients' all-reduce, the optimizer; its trace; the checkpoint."""

import contextlib
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from llmb_workloads.device import Device
from llmb_workloads.steplog import checkpoint_name
from llmb_workloads.torch_recipe import Profile
from llmb_workloads.world import Place

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
        """Train on the micro batches of this rank, each (samples, seq + 1); their mean loss in nats."""
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
        with torch.autocast(self.device.torch_device.type, torch.bfloat16, enabled=self.dtype == "bf16"):
            logits = self.model(input_ids=inputs).logits
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Tracer:
    """A torch.profiler trace of the steps that the recipe names, one file for each rank."""

    def __init__(self, wanted: Profile | None, place: Place, device: Device) -> None:
        self._wanted = wanted
        self._rank = place.rank
        self._activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.is_gpu else [])
        self._profiler: Any = None
        if wanted is not None:
            # Now, so that a run with an invalid folder fails at once.
            Path(wanted.dir).mkdir(parents=True, exist_ok=True)

    def before(self, step: int) -> None:
        """Call before each step, and at the end with max_steps: starts or stops the trace."""
        if self._wanted is not None and step == self._wanted.start_step:
            self._profiler = profile(activities=self._activities)
            self._profiler.start()
        if self._wanted is not None and step == self._wanted.stop_step:
            self._profiler.stop()
            trace = Path(self._wanted.dir) / f"rank{self._rank}.pt.trace.json"
            self._profiler.export_chrome_trace(str(trace))


def save_checkpoint(trainer: Trainer, folder: Path, *, loss: float, consumed_samples: int) -> tuple[float, float]:
    """Save model and optimizer as `folder`/default--.../weights/*.distcp, each rank its share.

    Returns the start in epoch seconds and the seconds that it took.
    """
    started, clock = time.time(), time.perf_counter()
    model, optimizer = get_state_dict(trainer.model, trainer.optimizer)
    weights = folder / checkpoint_name(loss, consumed_samples) / "weights"
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=weights)
    return started, time.perf_counter() - clock
