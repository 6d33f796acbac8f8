# SPDX-License-Identifier: Apache-2.0
"""Measures one GPU, or the CPU in its place: compute, memory, transfers, NVLink, the local disk.

Every rank of a node measures at the same time, as a training does. Each value is the median of
equal parts, so that one disturbance does not count. torch is used if it is installed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmb_nodes.program import exchange, facts

PARTS = 5  # of each measurement
_JOIN_SECONDS = 60
_GB = 1e9

Outcome = dict[str, Any]  # {"value": V}, {"fault": TEXT} or {"absent": TEXT}


class AbsentError(Exception):
    """This node does not have what the measure needs: no fault of it."""


@dataclass(frozen=True)
class Rank:
    """A process of the check, and how long it measures."""

    node: str
    local_rank: int
    local_world: int
    folder: Path
    #: For each measure.
    seconds: float
    #: Matrices and buffers are small.
    is_quick: bool = False


class Bench:
    """The measures of one rank. torch, the device and the node's group are made on first use."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._torch: Any = None
        self._has_group = False

    def measure(self, name: str, row: Mapping[str, Any]) -> Outcome | None:
        """Return the outcome of one measure, None if another rank of the node has it."""
        if exchange.is_of_node(name, row) and self.rank.local_rank != 0:
            return None
        if "command" in row:
            return facts.number_of(str(row["command"]))
        try:
            return {"value": _MEASURES[name](self)}
        except AbsentError as error:
            return {"absent": str(error)}
        # Whatever CUDA, NCCL or a disk says about this node is what the check is for.
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return {"fault": lines[0][:200]}

    @property
    def torch(self) -> Any:
        """torch, with the GPU of this rank selected. Raises AbsentError, or as its import does."""
        if self._torch is None:
            try:
                import torch
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise AbsentError("torch is not installed") from error
            if torch.cuda.is_available():
                several = torch.cuda.device_count() > 1
                torch.cuda.set_device(self.rank.local_rank if several else 0)
            self._torch = torch
        return self._torch

    @property
    def is_gpu(self) -> bool:
        """Return True if this rank has a GPU."""
        try:
            return bool(self.torch.cuda.is_available())
        except AbsentError:
            return False

    @property
    def device(self) -> str:
        """The device by torch's name."""
        return "cuda" if self.is_gpu else "cpu"

    def gpu(self) -> Any:
        """torch. Raises AbsentError without a GPU."""
        if not self.torch.cuda.is_available():
            raise AbsentError("torch sees no GPU")
        return self.torch

    def rate(self, operation: Callable[[], object], amount: float) -> float:
        """Return ``amount`` of one operation per second: the median of PARTS."""

        def timed(count: int) -> float:
            start = time.perf_counter()
            for _ in range(count):
                operation()
            if self._torch is not None and self.is_gpu:
                self._torch.cuda.synchronize()
            return time.perf_counter() - start

        timed(1)
        once = max(timed(2) / 2, 1e-7)
        count = max(1, round(self.rank.seconds / PARTS / once))
        return amount / statistics.median(timed(count) / count for _ in range(PARTS))

    def group(self) -> Any:
        """torch.distributed with a group of the ranks of this node. Raises AbsentError."""
        if self.rank.local_world < 2:
            raise AbsentError("one rank on this node")
        torch = self.torch
        if not self._has_group:
            from datetime import timedelta

            if self.is_gpu:
                os.environ.setdefault("NCCL_IB_DISABLE", "1")  # nothing leaves the node
                os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
            else:
                os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            torch.distributed.init_process_group(
                "nccl" if self.is_gpu else "gloo",
                init_method=f"tcp://127.0.0.1:{_common_port(self.rank)}",
                rank=self.rank.local_rank,
                world_size=self.rank.local_world,
                timeout=timedelta(seconds=_JOIN_SECONDS),
            )
            self._has_group = True
        return torch


def _common_port(rank: Rank) -> int:
    """Return a port that the first rank of the node chooses. Raises TimeoutError."""
    path = rank.folder / f"port-{rank.node}.txt"
    if rank.local_rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        part = path.with_suffix(".part")
        part.write_text(str(port), encoding="utf-8")
        part.replace(path)
        return int(port)
    for _ in range(_JOIN_SECONDS * 10):
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text(encoding="utf-8"))
        time.sleep(0.1)
    raise TimeoutError("the first rank of this node did not come to the all-reduce")


def _matrix_product(bench: Bench) -> float:
    """Return TFLOPS: bf16 on a GPU, fp32 on a CPU."""
    torch = bench.torch
    side = (4096 if bench.rank.is_quick else 8192) if bench.is_gpu else 512
    dtype = torch.bfloat16 if bench.is_gpu else torch.float32
    a, b = (torch.randn(side, side, device=bench.device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    return bench.rate(lambda: torch.mm(a, b, out=out), 2 * side**3) / 1e12


def _memory(bench: Bench) -> float:
    """Return GB/s of a copy in the memory of the device, read and written bytes."""
    if not bench.is_gpu:
        size = 32 << 20
        source, target = memoryview(bytearray(size)), memoryview(bytearray(size))

        def copy() -> None:
            target[:] = source

        return bench.rate(copy, 2 * size) / _GB
    size = 1 << 30
    a = torch_bytes(bench, size, "cuda")
    b = bench.torch.empty_like(a)
    return bench.rate(lambda: b.copy_(a), 2 * size) / _GB


def torch_bytes(bench: Bench, size: int, device: str, *, pinned: bool = False) -> Any:
    """Return ``size`` bytes on a device."""
    torch = bench.torch
    return torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned)


def _host_to_device(bench: Bench) -> float:
    """Return GB/s from pinned memory of the host to the GPU."""
    bench.gpu()
    size = 256 << 20
    host, device = torch_bytes(bench, size, "cpu", pinned=True), torch_bytes(bench, size, "cuda")
    return bench.rate(lambda: device.copy_(host, non_blocking=True), size) / _GB


def _device_to_host(bench: Bench) -> float:
    """Return GB/s from the GPU to pinned memory of the host."""
    bench.gpu()
    size = 256 << 20
    host, device = torch_bytes(bench, size, "cpu", pinned=True), torch_bytes(bench, size, "cuda")
    return bench.rate(lambda: host.copy_(device, non_blocking=True), size) / _GB


def _all_reduce(bench: Bench) -> float:
    """Return GB/s of bus bandwidth between the ranks of this node, as nccl-tests counts it."""
    torch, ranks = bench.group(), bench.rank.local_world
    size = ((256 if bench.rank.is_quick else 4096) if bench.is_gpu else 4) << 20
    dtype, item = (torch.bfloat16, 2) if bench.is_gpu else (torch.float32, 4)
    data = torch.zeros(size // item, device=bench.device, dtype=dtype)
    # Every rank does the same number of operations: a rate of its own would wait forever.
    times = []
    for _ in range(1 + PARTS):
        start = time.perf_counter()
        torch.distributed.all_reduce(data)
        if bench.is_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return size / statistics.median(times[1:]) * 2 * (ranks - 1) / ranks / _GB


def _disk(bench: Bench) -> float:
    """Return GB/s of writing a file to the folder for temporary files, until it is on the disk."""
    block, count = b"\0" * (4 << 20), 4 if bench.rank.is_quick else 32
    times = []
    with tempfile.TemporaryFile(dir=facts.temporary()) as file:
        for _ in range(3):
            file.seek(0)
            start = time.perf_counter()
            for _ in range(count):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return len(block) * count / statistics.median(times) / _GB


_MEASURES: dict[str, Callable[[Bench], float]] = {
    "matrix_product": _matrix_product,
    "memory": _memory,
    "host_to_device": _host_to_device,
    "device_to_host": _device_to_host,
    "all_reduce": _all_reduce,
    "disk": _disk,
}
