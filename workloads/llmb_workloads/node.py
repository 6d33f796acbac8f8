# SPDX-License-Identifier: Apache-2.0
"""Describes this machine: its GPUs by NVIDIA's library (NVML), the CPU's bf16 flags, memory."""

import ctypes
import json
import resource
import socket
import sys
from pathlib import Path
from typing import Any

from llmb_workloads import nvml


def host_name(host: str | None = None) -> str:
    """Return the short name of this machine, or of ``host``."""
    return (host or socket.gethostname()).split(".")[0]


def node_line(host: str | None = None, open_library: nvml.OpenLibrary = ctypes.CDLL) -> str | None:
    """Return the line ``llmb node <host>: {...}`` for the log, or None without a driver.

    ``max_sm_clock_mhz`` and ``power_limit_w`` are the lowest GPU's, for which the others wait.
    Facts that NVML does not have are omitted: no run fails because of them.
    """
    with nvml.opened(open_library) as library:
        if library is None:
            return None
        facts = {name: value for name, value in _facts(library).items() if value}
    if not facts:
        return None
    return f"llmb node {host_name(host)}: {json.dumps(facts, sort_keys=True)}"


def _facts(library: Any) -> dict[str, Any]:
    gpus = nvml.gpus_of(library)
    names = (nvml.read_text(library, "nvmlDeviceGetName", gpu) for gpu in gpus)
    models = dict.fromkeys(filter(None, names))
    clocks = [
        nvml.read_number(library, "nvmlDeviceGetMaxClockInfo", gpu, ctypes.c_int(nvml.SM_CLOCK))
        for gpu in gpus
    ]
    # milliwatts
    limits = [nvml.read_number(library, "nvmlDeviceGetEnforcedPowerLimit", gpu) for gpu in gpus]
    return {
        "driver": nvml.read_text(library, "nvmlSystemGetDriverVersion"),
        "gpu": ", ".join(models),
        "gpus": len(gpus),
        "max_sm_clock_mhz": min(filter(None, clocks), default=None),
        "power_limit_w": min((limit / 1000 for limit in limits if limit), default=None),
    }


# The CPU flags of bf16 arithmetic in hardware, on x86 and on Arm.
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return True if Linux lists bf16 instructions among the CPU's flags."""
    if not cpuinfo.exists():
        return False
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return bool(BF16_FLAGS & set(flags.split()))


def resident_memory() -> tuple[int, int]:
    """Return peak and present resident memory of this process in bytes."""
    # In KiB on Linux, in bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak, peak
    present = int(statm.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    # Linux updates the peak only now and then, so it may be less than the present memory.
    return max(peak, present), present
