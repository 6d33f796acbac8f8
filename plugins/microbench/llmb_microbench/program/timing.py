# SPDX-License-Identifier: Apache-2.0
"""A case and its timing: warm-up, check, iterations between barriers. The slowest rank counts.

An iteration repeats a short operation until it takes long enough for the clock, and divides, as
nccl-tests does.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmb_microbench.program.ranks import TorchRanks

WARM_UP = 5  # iterations
LONG_ENOUGH = 0.01  # seconds of one iteration
MOST = 1000  # operations of an iteration


@dataclass(frozen=True)
class Case:
    """One benchmark, ready to run."""

    #: They are timed one after another, each by its own.
    operations: tuple[Callable[[], object], ...]
    #: Returns the metrics from the seconds of each operation.
    values: Callable[..., dict[str, float]]
    #: Returns True if a rank's result is right.
    check: Callable[[], bool]
    #: A description of the measurement, for the first line of the log.
    about: str
    #: Operations repeat within an iteration.
    repeats: bool = True


def count_for(seconds: float) -> int:
    """Return the number of operations of this duration in one iteration."""
    return max(1, min(MOST, math.ceil(LONG_ENOUGH / max(seconds, 1e-9))))


def timed(ranks: "TorchRanks", operation: Callable[[], object], count: int) -> float:
    """Seconds of one operation of ``count``, of the slowest rank."""
    ranks.barrier()
    start = ranks.clock()
    for _ in range(count):
        operation()
    return ranks.max([(ranks.clock() - start) / count])[0]


def warm_up(ranks: "TorchRanks", case: Case) -> list[int]:
    """Run each operation until caches and clocks settle. Return how often to repeat each."""
    counts = []
    for operation in case.operations:
        count, turns = 1, WARM_UP if case.repeats else 1
        for _ in range(turns):
            seconds = timed(ranks, operation, count)
            count = count_for(seconds) if case.repeats else 1
        counts.append(count)
    return counts


def iterations(
    ranks: "TorchRanks", case: Case, counts: list[int], steps: int
) -> Iterator[dict[str, float]]:
    """The metrics of each iteration."""
    for _ in range(steps):
        pairs = zip(case.operations, counts, strict=True)
        yield case.values(*(timed(ranks, operation, count) for operation, count in pairs))


def line(step: int, steps: int, values: dict[str, float]) -> str:
    """The line of one iteration, as llmb reads it without a plugin's own format."""
    return f"llmb step {step}/{steps - 1} " + " ".join(
        f"{name}={value:.6g}" for name, value in values.items()
    )
