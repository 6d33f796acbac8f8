# SPDX-License-Identifier: Apache-2.0
"""Saves model and optimizer with torch.distributed.checkpoint: each rank writes its share."""

import time
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from llmb_workloads.step import Trainer
from llmb_workloads.steplog import checkpoint_name


def save_checkpoint(trainer: Trainer, folder: Path, *, loss: float, consumed_samples: int) -> tuple[float, float]:
    """Write `folder`/default--.../weights/*.distcp; returns when it started (epoch) and the seconds it took."""
    started, clock = time.time(), time.perf_counter()
    model, optimizer = get_state_dict(trainer.model, trainer.optimizer)
    weights = folder / checkpoint_name(loss, consumed_samples) / "weights"
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=weights)
    return started, time.perf_counter() - clock
