# SPDX-License-Identifier: Apache-2.0
"""From seconds to the metrics of workload.yaml. Pure.

Source of the bandwidths: PERFORMANCE.md of NVIDIA's nccl-tests. Units: GB/s is 1e9 bytes a second,
TFLOPS 1e12 operations, us 1e-6 seconds.
"""

from collections.abc import Callable

# The bytes that cross the slowest link for each byte of the message, by the number of ranks.
BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "send_recv": lambda ranks: 1.0,
}

# the message of a rank is one part; of the other cases, a part for each rank
WHOLE = ("all_reduce", "send_recv")


def smallest_message(case: str, item: int, ranks: int) -> int:
    """The bytes of the smallest message, with one item of ``item`` bytes in each part."""
    return item if case in WHOLE else item * ranks


def bandwidth(moved: int, seconds: float) -> float:
    """GB/s of ``moved`` bytes."""
    return moved / seconds / 1e9


def microseconds(seconds: float) -> float:
    """The same duration in us."""
    return seconds * 1e6


def of_collective(case: str, message: int, ranks: int, seconds: float) -> dict[str, float]:
    """Return the metrics of ``message`` bytes: the larger buffer of one rank."""
    algorithm = bandwidth(message, seconds)
    return {
        "busbw": algorithm * BUS_FACTORS[case](ranks),
        "algbw": algorithm,
        "latency": microseconds(seconds),
    }


def of_gemm(size: int, seconds: float) -> dict[str, float]:
    """N x N by N x N: a multiplication and an addition for each of the N^3 pairs."""
    return {"tflops": 2 * size**3 / seconds / 1e12}


def of_memory(copied: int, seconds: float) -> dict[str, float]:
    """A copy of ``copied`` bytes reads and writes each of them."""
    return {"copy_bw": bandwidth(2 * copied, seconds)}


def of_launch(seconds: float) -> dict[str, float]:
    """One kernel."""
    return {"launch_latency": microseconds(seconds)}
