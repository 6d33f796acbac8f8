# SPDX-License-Identifier: Apache-2.0
"""Calls of NVIDIA's library for its GPUs (NVML), by ctypes: compute nodes have no bindings."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

LIBRARY = "libnvidia-ml.so.1"  # comes with the driver, in containers too
SM_CLOCK = 1  # NVML_CLOCK_SM
GPU_TEMPERATURE = 0  # NVML_TEMPERATURE_GPU
UNCORRECTED, VOLATILE = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
#: The bits of nvmlClocksEventReason..., by their names in the log.
REASONS = {
    "idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
IDLE = REASONS["idle"]
_TEXT = 96  # bytes: the longest name, NVML_DEVICE_NAME_V2_BUFFER_SIZE

OpenLibrary = Callable[[str], Any]


@contextlib.contextmanager
def opened(open_library: OpenLibrary = ctypes.CDLL) -> Iterator[Any]:
    """Initialize the library for the block. Its value is None if there is no driver."""
    try:
        library = open_library(LIBRARY)
        if library.nvmlInit_v2() != 0:
            library = None
    except (OSError, AttributeError):
        library = None
    try:
        yield library
    finally:
        if library is not None:
            is_answered(library, "nvmlShutdown")


def is_answered(library: Any, function: str, *arguments: Any) -> bool:
    """Call a function of the library, and return True if it exists and succeeded."""
    try:
        return bool(getattr(library, function)(*arguments) == 0)
    except AttributeError:
        return False


def read_number(
    library: Any, function: str, *arguments: Any, kind: type[Any] = ctypes.c_uint
) -> int | None:
    """Return the number that a function writes, of the C type ``kind``, or None."""
    value = kind()
    answered = is_answered(library, function, *arguments, ctypes.byref(value))
    return int(value.value) if answered else None


def read_text(library: Any, function: str, *arguments: Any) -> str | None:
    """Return the text that a function writes, or None."""
    text = ctypes.create_string_buffer(_TEXT)
    answered = is_answered(library, function, *arguments, text, ctypes.c_uint(_TEXT))
    return text.value.decode("utf-8", "replace") if answered else None


def gpus_of(library: Any) -> list[ctypes.c_void_p]:
    """Return a handle of each GPU that this process can see."""
    handles = []
    for index in range(read_number(library, "nvmlDeviceGetCount_v2") or 0):
        handle = ctypes.c_void_p()
        if is_answered(
            library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)
        ):
            handles.append(handle)
    return handles


def sm_clock(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the present SM clock in MHz."""
    return read_number(library, "nvmlDeviceGetClockInfo", gpu, ctypes.c_int(SM_CLOCK))


def clock_reasons(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the bits of REASONS for which the clocks are low. Drivers before 535 say throttle."""
    for word in ("Event", "Throttle"):
        function = f"nvmlDeviceGetCurrentClocks{word}Reasons"
        bits = read_number(library, function, gpu, kind=ctypes.c_ulonglong)
        if bits is not None:
            return bits
    return None


def power(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the present power in milliwatts."""
    return read_number(library, "nvmlDeviceGetPowerUsage", gpu)


def energy(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the energy in millijoules since the driver was loaded (Volta and newer)."""
    function = "nvmlDeviceGetTotalEnergyConsumption"
    return read_number(library, function, gpu, kind=ctypes.c_ulonglong)


def temperature(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the temperature of the GPU in degrees Celsius."""
    sensor = ctypes.c_int(GPU_TEMPERATURE)
    return read_number(library, "nvmlDeviceGetTemperature", gpu, sensor)


def uncorrected_errors(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the uncorrected ECC errors since the driver was loaded."""
    kinds = ctypes.c_int(UNCORRECTED), ctypes.c_int(VOLATILE)
    function = "nvmlDeviceGetTotalEccErrors"
    return read_number(library, function, gpu, *kinds, kind=ctypes.c_ulonglong)


def remapped_rows(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the rows of memory that were replaced, after errors of both kinds (Ampere)."""
    counts = _remapping(library, gpu)
    return counts[0] + counts[1] if counts is not None else None


def remap_pending(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return 1 if rows of memory are replaced at the next reset of the GPU, otherwise 0."""
    counts = _remapping(library, gpu)
    return counts[2] if counts is not None else None


def remap_failed(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return 1 if a row of memory could not be replaced, otherwise 0."""
    counts = _remapping(library, gpu)
    return counts[3] if counts is not None else None


def _remapping(library: Any, gpu: ctypes.c_void_p) -> tuple[int, ...] | None:
    """Return rows replaced for corrected and uncorrected errors, and whether pending and failed."""
    counts = [ctypes.c_uint() for _ in range(4)]
    answered = is_answered(
        library, "nvmlDeviceGetRemappedRows", gpu, *(ctypes.byref(count) for count in counts)
    )
    return tuple(count.value for count in counts) if answered else None
