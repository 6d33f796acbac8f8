# SPDX-License-Identifier: Apache-2.0
"""One rank's part of a test of a group: an all-reduce with NCCL on GPUs, with gloo on CPUs.

It runs in a process of its own, which is killed if it hangs. The value is the bus bandwidth as
nccl-tests defines it, the median of equal parts, of the slowest rank.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

PARTS = 5  # of a measurement
_GPU_BYTES, _CPU_BYTES = 1 << 30, 4 << 20  # of the message
_GB = 1e9
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class GroupRank:
    """A rank in a group."""

    rank: int
    world: int
    local_rank: int
    #: The name of the rank's own host.
    host: str
    #: The file by which the first rank tells the others its address.
    address: Path
    #: Of the measurement, and until the group is given up.
    seconds: float
    limit: float


def measure(task: GroupRank, torch: Any) -> float:
    """Return GB/s. Raises whatever torch does, and ValueError for a wrong sum."""
    dist = torch.distributed
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        torch.cuda.set_device(task.local_rank if torch.cuda.device_count() > 1 else 0)
    dist.init_process_group(
        "nccl" if is_gpu else "gloo",
        store=_store(task, dist),
        rank=task.rank,
        world_size=task.world,
        timeout=timedelta(seconds=task.limit),
    )
    device = "cuda" if is_gpu else "cpu"
    size = _GPU_BYTES if is_gpu else _CPU_BYTES
    buffer = torch.ones(size // 4, dtype=torch.float32, device=device)
    dist.all_reduce(buffer)
    if not bool((buffer == task.world).all()):
        raise ValueError("the sum of an all-reduce is wrong")
    buffer.zero_()

    def slowest(seconds: float) -> float:
        value = torch.tensor([seconds], dtype=torch.float64, device=device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return float(value.item())

    def timed(count: int) -> float:
        slowest(0.0)  # all are here
        start = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(buffer)
        if is_gpu:
            torch.cuda.synchronize()
        return slowest((time.perf_counter() - start) / count)

    timed(2)
    count = max(1, round(task.seconds / PARTS / max(timed(2), 1e-6)))
    seconds = statistics.median(timed(count) for _ in range(PARTS))
    return float(2 * (task.world - 1) / task.world * size / seconds / _GB)


def _store(task: GroupRank, dist: Any) -> Any:
    """Return the store of the group: the first rank has it, on a free port."""
    timeout = timedelta(seconds=task.limit)
    if task.rank == 0:
        store = dist.TCPStore(
            task.host, 0, task.world, is_master=True, timeout=timeout, wait_for_workers=False
        )
        write_text(task.address, f"{task.host}:{store.port}")
        return store
    end = time.monotonic() + task.limit
    while not task.address.exists():
        if time.monotonic() > end:
            raise TimeoutError("the first rank of the group gave no address")
        time.sleep(_POLL)
    host, _, port = task.address.read_text(encoding="utf-8").rpartition(":")
    return dist.TCPStore(host, int(port), task.world, is_master=False, timeout=timeout)


def write_text(path: Path, text: str) -> None:
    """Write a file whole, under another name first."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
