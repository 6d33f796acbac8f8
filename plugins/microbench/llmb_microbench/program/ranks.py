# SPDX-License-Identifier: Apache-2.0
"""The ranks of a run as torch sees them: device, process group, barrier, agreement."""

import time

import torch
import torch.distributed as dist

from llmb_microbench.program.settings import MicrobenchError, RankProcess

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class TorchRanks:
    """All ranks: NCCL on GPUs, gloo on CPUs. One rank alone has no process group."""

    def __init__(self, process: RankProcess) -> None:
        self.process = process
        self.device = _device(process.local_rank)
        if self.is_several:
            bound = self.device if self.is_gpu else None
            dist.init_process_group(
                self.backend, rank=process.rank, world_size=process.world, device_id=bound
            )

    @property
    def is_several(self) -> bool:
        """Return True if there are other ranks."""
        return self.process.world > 1

    @property
    def is_gpu(self) -> bool:
        """Return True if the ranks use GPUs."""
        return bool(self.device.type == "cuda")

    @property
    def backend(self) -> str:
        """The library that moves the bytes."""
        return "nccl" if self.is_gpu else "gloo"

    @property
    def description(self) -> str:
        """Device and backend, for the first line of the log."""
        threads = f"CPU with {torch.get_num_threads()} threads a rank"
        name = torch.cuda.get_device_name(self.device) if self.is_gpu else threads
        return f"{name}, torch {torch.__version__}" + (
            f", {self.backend}" if self.is_several else ""
        )

    def clock(self) -> float:
        """Seconds, once the device has finished its work."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.is_several:
            self.max([0.0])  # on a GPU the barrier of torch returns before the others have come
        self.clock()

    def max(self, values: list[float]) -> list[float]:
        """The largest of each value over all ranks."""
        if not self.is_several:
            return values
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(together, op=dist.ReduceOp.MAX)
        return [float(value) for value in together.tolist()]

    def require(self, is_right: bool, case: str) -> None:
        """Raise WrongResultError on every rank unless the result of each was right."""
        is_wrong = self.max([0.0 if is_right else 1.0])[0] > 0
        if is_wrong:
            place = "here" if not is_right else "on another rank"
            raise WrongResultError(f"rank {self.process.rank}: {case} gave a wrong result {place}")


class WrongResultError(Exception):
    """The hardware or a library computed or moved something wrong: no figure is worth anything."""


def dtype_of(name: str) -> torch.dtype:
    """torch's dtype. Raises MicrobenchError."""
    if name not in DTYPES:
        raise MicrobenchError(f"dtype {name} is unknown; use {', '.join(DTYPES)}")
    return DTYPES[name]


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # A launcher that shows each process only its own GPU leaves it the index 0.
    index = local_rank if torch.cuda.device_count() > 1 else 0
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
