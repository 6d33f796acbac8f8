# SPDX-License-Identifier: Apache-2.0
"""The group of all ranks: meeting, averaging a number, parting."""

import torch
import torch.distributed as dist

from llmb_workloads.device import Device
from llmb_workloads.world import Place


def join(place: Place, device: Device) -> None:
    """Meet the other ranks, by NCCL on GPUs and by gloo on CPUs."""
    backend = "nccl" if device.is_gpu else "gloo"
    bound = device.torch_device if device.is_gpu else None
    # A process alone needs no address and no port, so that any number of them share a machine.
    store = dist.HashStore() if place.world == 1 else None
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, device_id=bound)


def mean(value: torch.Tensor) -> float:
    """The mean over all ranks of a number."""
    total = value.detach().clone().float()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def part() -> None:
    """Leave the group in good order; after a failure do not, for it would wait for the others."""
    dist.destroy_process_group()
