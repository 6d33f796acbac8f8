# SPDX-License-Identifier: Apache-2.0
"""NVML as llmb calls it, with the return code of each call, and as NVIDIA's bindings call it."""

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

from llmb_workloads import nvml

#: Further values of a GPU, by function: the C type of the answer, and the arguments before it.
#: Each only reads.
UINT, SIGNED, ULONG = ctypes.c_uint, ctypes.c_int, ctypes.c_ulonglong
GRAPHICS, SM, MEMORY = 0, 1, 2  # nvmlClockType_t
FURTHER: list[tuple[str, Any, tuple[int, ...]]] = [
    *(
        (f"nvmlDeviceGet{word}", UINT, (kind,))
        for word in (
            "ClockInfo",
            "MaxClockInfo",
            "ApplicationsClock",
            "DefaultApplicationsClock",
            "MaxCustomerBoostClock",
        )
        for kind in (GRAPHICS, SM, MEMORY)
    ),
    ("nvmlDeviceGetEnforcedPowerLimit", UINT, ()),
    ("nvmlDeviceGetPowerManagementLimit", UINT, ()),
    ("nvmlDeviceGetPowerManagementDefaultLimit", UINT, ()),
    ("nvmlDeviceGetSupportedClocksEventReasons", ULONG, ()),
    ("nvmlDeviceGetPerformanceState", SIGNED, ()),
    ("nvmlDeviceGetPersistenceMode", SIGNED, ()),
    ("nvmlDeviceGetComputeMode", SIGNED, ()),
    ("nvmlDeviceGetCurrPcieLinkGeneration", UINT, ()),
    ("nvmlDeviceGetMaxPcieLinkGeneration", UINT, ()),
    ("nvmlDeviceGetCurrPcieLinkWidth", UINT, ()),
    ("nvmlDeviceGetMaxPcieLinkWidth", UINT, ()),
    ("nvmlDeviceGetNumGpuCores", UINT, ()),
]
#: Values that llmb samples: our function, the bindings' function and its arguments after the GPU.
SAMPLED: list[tuple[Callable[[Any, Any], int | None], str, tuple[int, ...]]] = [
    (nvml.sm_clock, "nvmlDeviceGetClockInfo", (SM,)),
    (nvml.clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons", ()),
    (nvml.power, "nvmlDeviceGetPowerUsage", ()),
    (nvml.energy, "nvmlDeviceGetTotalEnergyConsumption", ()),
    (nvml.temperature, "nvmlDeviceGetTemperature", (nvml.GPU_TEMPERATURE,)),
    (nvml.uncorrected_errors, "nvmlDeviceGetTotalEccErrors", (nvml.UNCORRECTED, nvml.VOLATILE)),
    (nvml.remapped_rows, "nvmlDeviceGetRemappedRows", ()),
]


class RecordingLibrary:
    """A library whose calls are noted: function, arguments, return code, answers, milliseconds."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.calls: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            self.calls.append({"function": name, "arguments": [], "code": "no such function"})
            raise

        def call(*arguments: Any) -> int:
            begin = time.perf_counter()
            code = int(function(*arguments))
            took = (time.perf_counter() - begin) * 1000
            self.calls.append(
                {
                    "function": name,
                    "arguments": [
                        argument.value
                        for argument in arguments
                        if isinstance(argument, UINT | SIGNED)
                    ],
                    "code": code,
                    "answers": list(_answers(arguments)),
                    "milliseconds": round(took, 4),
                }
            )
            return code

        return call


def _answers(arguments: tuple[Any, ...]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, ctypes.Array):
            yield argument.value.decode("utf-8", "replace")
        elif (pointed := getattr(argument, "_obj", None)) is not None:
            yield pointed.value


def read_further(library: Any, gpu: Any) -> None:
    """Ask every value of FURTHER. The recording library notes the answers."""
    for function, kind, arguments in FURTHER:
        nvml.read_number(library, function, gpu, *map(ctypes.c_int, arguments), kind=kind)


def read_both(library: Any, gpu: Any, index: int) -> list[dict[str, Any]]:
    """Return each sampled value as llmb has it, and as NVIDIA's bindings do (`theirs`).

    `theirs` is an error's text if the bindings raise one, and missing without bindings.
    """
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        pynvml = None
    if pynvml is not None:
        pynvml.nvmlInit()
    rows = []
    for ours, function, arguments in SAMPLED:
        row: dict[str, Any] = {"function": function, "ours": ours(library, gpu)}
        if pynvml is not None:
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                theirs = getattr(pynvml, function)(handle, *arguments)
                # Corrected and uncorrected rows together, as ours.
                row["theirs"] = sum(theirs[:2]) if isinstance(theirs, list | tuple) else theirs
            except pynvml.NVMLError as error:
                row["theirs"] = str(error)
        rows.append(row)
    if pynvml is not None:
        pynvml.nvmlShutdown()
    return rows


def differ(row: dict[str, Any]) -> bool:
    """Return True if llmb and the bindings disagree. Two reads of a moving value are not equal."""
    ours, theirs = row["ours"], row.get("theirs")
    if theirs is None or isinstance(theirs, str):
        return "theirs" in row and ours is not None
    if ours is None:
        return True
    moving = ("ClockInfo", "PowerUsage", "EnergyConsumption", "Temperature")
    if row["function"].endswith(moving):
        return bool(abs(ours - theirs) > 0.25 * max(abs(theirs), 1))
    return bool(ours != theirs)
