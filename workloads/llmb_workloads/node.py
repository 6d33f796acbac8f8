# SPDX-License-Identifier: Apache-2.0
"""Describes this machine: its GPUs from NVIDIA's management library (NVML), the CPU's bf16 flags, memory."""

import ctypes
import json
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARY = "libnvidia-ml.so.1"  # comes with the driver, in containers too
_SM_CLOCK = 1  # NVML_CLOCK_SM
_TEXT = 96  # bytes: the longest name, NVML_DEVICE_NAME_V2_BUFFER_SIZE


def node_line(host: str | None = None, open_library: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """The line ``llmb node <host>: {...}`` for the log; None without a driver.

    ``max_sm_clock_mhz`` and ``power_limit_w`` are those of the lowest GPU, for which the others wait. Facts that NVML
    does not have are omitted: no run fails because of them.
    """
    try:
        library = open_library(LIBRARY)
        if library.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    try:
        facts = {name: value for name, value in _facts(library).items() if value}
    finally:
        _asked(library, "nvmlShutdown")
    name = (host or socket.gethostname()).split(".")[0]
    return f"llmb node {name}: {json.dumps(facts, sort_keys=True)}" if facts else None


def _facts(library: Any) -> dict[str, Any]:
    gpus = [gpu for index in range(_number(library, "nvmlDeviceGetCount_v2") or 0) if (gpu := _gpu(library, index))]
    models = dict.fromkeys(filter(None, (_text(library, "nvmlDeviceGetName", gpu) for gpu in gpus)))
    clocks = [_number(library, "nvmlDeviceGetMaxClockInfo", gpu, ctypes.c_int(_SM_CLOCK)) for gpu in gpus]
    limits = [_number(library, "nvmlDeviceGetEnforcedPowerLimit", gpu) for gpu in gpus]  # milliwatts
    return {
        "driver": _text(library, "nvmlSystemGetDriverVersion"),
        "gpu": ", ".join(models),
        "gpus": len(gpus),
        "max_sm_clock_mhz": min(filter(None, clocks), default=None),
        "power_limit_w": min((limit / 1000 for limit in limits if limit), default=None),
    }


def _gpu(library: Any, index: int) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    return (
        handle if _asked(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)) else None
    )


def _number(library: Any, function: str, *arguments: Any) -> int | None:
    value = ctypes.c_uint()
    return value.value if _asked(library, function, *arguments, ctypes.byref(value)) else None


def _text(library: Any, function: str, *arguments: Any) -> str | None:
    text = ctypes.create_string_buffer(_TEXT)
    is_answered = _asked(library, function, *arguments, text, ctypes.c_uint(_TEXT))
    return text.value.decode("utf-8", "replace") if is_answered else None


def _asked(library: Any, function: str, *arguments: Any) -> bool:
    """Call a function of the library; whether the library has it and it succeeded."""
    try:
        return bool(getattr(library, function)(*arguments) == 0)
    except AttributeError:
        return False


# The CPU flags of bf16 arithmetic in hardware, on x86 and on Arm.
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether Linux's list of CPU flags has bf16 instructions; False on a system without that list."""
    if not cpuinfo.exists():
        return False
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return bool(BF16_FLAGS & set(flags.split()))


def resident_memory() -> tuple[int, int]:
    """Peak and present resident memory of this process in bytes."""
    # In KiB on Linux, in bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak, peak
    present = int(statm.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    # Linux updates the peak only now and then, so it may be less than the present memory.
    return max(peak, present), present
