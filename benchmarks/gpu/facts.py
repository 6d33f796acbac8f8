# SPDX-License-Identifier: Apache-2.0
"""Every value that llmb reads from NVML, raw with return codes, idle and under load."""

import ctypes
import time
from typing import Any

from gpu import driver
from gpu.context import Context
from llmb_workloads import node, nvml, telemetry

LOADED = 15.0  # seconds of load
SIZE, SMALL_SIZE = 8192, 512


def run(context: Context) -> None:
    """Read the values idle, then under load, and compare them with NVIDIA's bindings."""
    peak, _ = node.resident_memory()
    context.record("cpu", {"bf16": node.cpu_has_bf16(), "resident_bytes": peak})
    idle = _read()
    if idle is None:
        context.record("driver", None, "no NVIDIA driver: there are no values of GPUs here")
        return
    context.record("idle", idle, idle["node_line"])
    seconds = LOADED if context.is_gpu else 4.0
    size = SIZE if context.is_gpu else SMALL_SIZE
    with context.start_torch("gpu.burn", seconds, size) as process:
        assert process.stdout is not None
        process.stdout.readline()  # its first second is over
        time.sleep(seconds / 3)
        loaded = _read()
        process.communicate()
    assert loaded is not None
    context.record("load", loaded)
    for name, state in (("idle", idle), ("under load", loaded)):
        context.record(f"clocks {name}", _clocks(state), f"{name}: {_clock_text(state)}")
    failed = _failed(loaded)
    context.record("failed_calls", failed, f"calls that this driver refuses: {_text(failed)}")
    wrong = [row for row in [*idle["sampled"], *loaded["sampled"]] if driver.differ(row)]
    has_bindings = any("theirs" in row for row in loaded["sampled"])
    if has_bindings:
        context.record("differences", wrong, f"differences from NVIDIA's bindings: {len(wrong)}")
    else:
        context.record("differences", None, "NVIDIA's bindings (nvidia-ml-py) are not installed")


def _read() -> dict[str, Any] | None:
    """Return every call of node.py and telemetry.py, and further values of each GPU."""
    recorders: list[driver.RecordingLibrary] = []

    def open_library(name: str) -> driver.RecordingLibrary:
        recorders.append(driver.RecordingLibrary(ctypes.CDLL(name)))
        return recorders[-1]

    line = node.node_line("this-machine", open_library)
    if line is None:
        return None
    with nvml.opened(open_library) as library:
        gpus = nvml.gpus_of(library)
        sample = telemetry.read_sample(library, gpus, with_rare=True, log=None, now=time.time())
        for gpu in gpus:
            driver.read_further(library, gpu)
        both = [row for i, gpu in enumerate(gpus) for row in driver.read_both(library, gpu, i)]
    return {
        "node_line": line,
        "sample": telemetry.to_line(sample).strip(),
        "sampled": both,
        "calls": [call for recorder in recorders for call in recorder.calls],
    }


def _clocks(state: dict[str, Any]) -> dict[str, int]:
    """Return the SM clocks of the first GPU in MHz, by the function that answered."""
    clocks: dict[str, int] = {}
    for call in state["calls"]:
        if call["arguments"] == [driver.SM] and call["code"] == 0 and "Clock" in call["function"]:
            clocks.setdefault(call["function"].removeprefix("nvmlDeviceGet"), call["answers"][0])
    return clocks


def _clock_text(state: dict[str, Any]) -> str:
    return ", ".join(f"{name} {mhz}" for name, mhz in sorted(_clocks(state).items())) + " (SM, MHz)"


def _failed(state: dict[str, Any]) -> dict[str, int | str]:
    """Return the return codes other than 0, by function and its arguments.

    A function that the driver does not have is one too.
    """
    return {
        f"{call['function']}{call['arguments'] or ''}": call["code"]
        for call in state["calls"]
        if call["code"] != 0
    }


def _text(codes: dict[str, int | str]) -> str:
    names = (f"{name.removeprefix('nvmlDeviceGet')} = {code}" for name, code in codes.items())
    return ", ".join(names) or "none"
