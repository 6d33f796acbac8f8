# SPDX-License-Identifier: Apache-2.0
"""The GPU or CPU that a process trains on: its clock, memory and dtypes; and the group of all ranks."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from llmb_workloads.node import cpu_has_bf16, resident_memory
from llmb_workloads.world import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One process's device."""

    torch_device: torch.device

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return bool(self.torch_device.type == "cuda")

    @property
    def name(self) -> str:
        """The GPU's name, or "CPU" with its number of threads."""
        if self.is_gpu:
            return str(torch.cuda.get_device_name(self.torch_device))
        return f"CPU with {torch.get_num_threads()} threads a rank"

    @property
    def has_bf16(self) -> bool:
        """Whether it has bf16 instructions."""
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
        return torch.cuda.max_memory_reserved(self.torch_device), torch.cuda.memory_allocated(self.torch_device)


def choose_device(local_rank: int) -> Device:
    """This process's GPU where there are GPUs, else the CPU."""
    if not torch.cuda.is_available():
        return Device(torch_device=torch.device("cpu"))
    # A launcher that shows each process only its own GPU leaves it the index 0.
    index = local_rank if torch.cuda.device_count() > 1 else 0
    torch.cuda.set_device(index)
    return Device(torch_device=torch.device("cuda", index))


def join_group(place: Place, device: Device) -> None:
    """Join the group of all ranks, with NCCL on GPUs and gloo on CPUs."""
    backend = "nccl" if device.is_gpu else "gloo"
    bound = device.torch_device if device.is_gpu else None
    # A single process needs no address and no port, so any number of them can share a machine.
    store = dist.HashStore() if place.world == 1 else None
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, device_id=bound)


def mean_of_ranks(value: torch.Tensor) -> float:
    """The mean of a number over all ranks."""
    total = value.detach().clone().float()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def leave_group() -> None:
    """Leave the group. Not after a failure: it would wait for the other ranks."""
    dist.destroy_process_group()
