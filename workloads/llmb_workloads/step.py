# SPDX-License-Identifier: Apache-2.0
"""One training step: every micro batch, the gradients' all-reduce, the optimizer."""

import contextlib
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from llmb_workloads.device import Device

# The customary values for pretraining language models.
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
        """Learn from the micro batches of this rank, each (samples, seq + 1); their mean loss, in nats."""
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
