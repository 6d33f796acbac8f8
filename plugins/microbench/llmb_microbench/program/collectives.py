# SPDX-License-Identifier: Apache-2.0
"""The collectives: buffers as nccl-tests sizes them, the operation of torch, and its check.

The numbers of a check are small whole numbers, which every dtype holds exactly, at any number
of ranks.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

from llmb_microbench.program import formulas
from llmb_microbench.program.ranks import TorchRanks, dtype_of
from llmb_microbench.program.settings import CaseSettings, MicrobenchError
from llmb_microbench.program.timing import Case

# torch 2.13 has new names, and warns of the old ones.
_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_DISTINCT = 251  # a prime below 256, up to which bf16 holds every whole number


def summand(rank: int) -> int:
    """Return what a rank adds: both signs, so that partial sums stay small, and never 0."""
    return (rank // 2 % 4 + 1) * (-1 if rank % 2 else 1)


def sent(sender: int, receiver: int) -> int:
    """Return the number that one rank sends to another."""
    return (7 * sender + receiver) % _DISTINCT + 1


class _Buffers:
    """The buffers of one rank. ``share``: the elements of one rank's part of the message."""

    def __init__(self, settings: CaseSettings, ranks: TorchRanks) -> None:
        self.case, self.world, self.rank = settings.case, ranks.process.world, ranks.process.rank
        dtype, message = dtype_of(settings.dtype), settings.size("message_size")
        whole = self.case in formulas.WHOLE
        self.share = message // dtype.itemsize // (1 if whole else self.world)
        if message < formulas.smallest_message(self.case, dtype.itemsize, self.world):
            raise MicrobenchError(
                f"a message of {message} bytes has no element for each of {self.world} ranks;"
                " choose a larger one"
            )
        sizes = {"all_gather": (1, self.world), "reduce_scatter": (self.world, 1)}
        default = (1, 1) if whole else (self.world, self.world)
        source_parts, target_parts = sizes.get(self.case, default)
        self.source = torch.zeros(self.share * source_parts, dtype=dtype, device=ranks.device)
        self.target = torch.zeros(self.share * target_parts, dtype=dtype, device=ranks.device)
        self.message = max(source_parts, target_parts) * self.share * dtype.itemsize

    def operation(self) -> Callable[[], object]:
        """The collective on the buffers."""
        source, target = self.source, self.target
        if self.case == "all_reduce":
            return lambda: dist.all_reduce(source)
        if self.case == "all_gather":
            return lambda: _GATHER(target, source)
        if self.case == "reduce_scatter":
            return lambda: _SCATTER(target, source)
        if self.case == "all_to_all":
            return lambda: dist.all_to_all_single(target, source)
        return self._send_and_receive

    def _send_and_receive(self) -> None:
        """To the next rank, from the one before."""
        following, before = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        transfers = [
            dist.P2POp(dist.isend, self.source, following),
            dist.P2POp(dist.irecv, self.target, before),
        ]
        for work in dist.batch_isend_irecv(transfers):
            work.wait()

    def is_right(self) -> bool:
        """Run it once with known numbers. Return True if this rank's result is right."""
        senders, share = range(self.world), self.share
        parts = [self.source[start : start + share] for start in range(0, len(self.source), share)]
        for number, part in enumerate(parts):
            part.fill_(summand(self.rank) if "reduce" in self.case else self._first(number))
        self.operation()()
        result = self.source if self.case == "all_reduce" else self.target
        total = sum(map(summand, senders))
        expected = {
            "all_reduce": [total],
            "reduce_scatter": [total],
            "all_gather": [sent(sender, 0) for sender in senders],
            "all_to_all": [sent(sender, self.rank) for sender in senders],
            "send_recv": [sent((self.rank - 1) % self.world, 0)],
        }[self.case]
        slices = [result[number * share : (number + 1) * share] for number in range(len(expected))]
        right = all(
            bool((part == number).all()) for part, number in zip(slices, expected, strict=True)
        )
        # Sums that are added up again and again would leave the range of the dtype.
        self.source.zero_()
        self.target.zero_()
        return right

    def _first(self, part: int) -> int:
        return sent(self.rank, part if self.case == "all_to_all" else 0)


def collective(settings: CaseSettings, ranks: TorchRanks) -> Case:
    """Return the collective that the case names. Raises MicrobenchError for one rank alone."""
    if not ranks.is_several:
        raise MicrobenchError(f"{settings.case} needs 2 ranks or more; choose more GPUs")
    buffers = _Buffers(settings, ranks)
    world = ranks.process.world
    return Case(
        operations=(buffers.operation(),),
        values=lambda seconds: formulas.of_collective(
            settings.case, buffers.message, world, seconds
        ),
        check=buffers.is_right,
        about=f"message of {buffers.message} bytes",
    )
