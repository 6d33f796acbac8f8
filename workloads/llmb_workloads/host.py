# SPDX-License-Identifier: Apache-2.0
"""What the machine says of a process that trains on its CPU: memory, and bf16 instructions."""

import resource
import sys
from pathlib import Path

# The CPU flags that mean bf16 arithmetic in hardware, on x86 and on Arm.
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether Linux's list of CPU flags names bf16 instructions; a system without that list has none."""
    if not cpuinfo.exists():
        return False
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return bool(BF16_FLAGS & set(flags.split()))


def resident_memory() -> tuple[int, int]:
    """Peak and present resident memory of this process in bytes."""
    # Linux counts in KiB, macOS in bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak, peak
    present = int(statm.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    # Linux updates its peak now and then, so that it may lag behind the present.
    return max(peak, present), present
