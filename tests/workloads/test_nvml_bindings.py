# SPDX-License-Identifier: Apache-2.0
"""Our calls of NVML are those of NVIDIA's own Python bindings: functions, arguments, constants."""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from llmb_workloads import nvml
from llmb_workloads.node import node_line

GPU = ctypes.c_void_p(1)
Call = tuple[str, tuple[tuple[str, Any], ...]]


class Recorder:
    """A fake library that notes each call, and succeeds."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append((name, tuple(map(shape, arguments))))
            return 0

        return call


def shape(argument: Any) -> tuple[str, Any]:
    """Return what C sees of an argument: a pointer to so many bytes, or a value of so many."""
    if isinstance(argument, ctypes.Array):
        return "pointer", ctypes.sizeof(argument)
    pointed = getattr(argument, "_obj", None)
    if pointed is not None:
        return "pointer", ctypes.sizeof(pointed)
    if isinstance(argument, (ctypes.c_void_p, ctypes._Pointer)):
        return "handle", None
    return f"{ctypes.sizeof(argument)} bytes", argument.value


def theirs(monkeypatch: pytest.MonkeyPatch, function: str, *arguments: Any) -> list[Call]:
    recorder = Recorder()
    monkeypatch.setattr(pynvml, "nvmlLib", recorder)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    getattr(pynvml, function)(*arguments)
    return recorder.calls


@pytest.mark.parametrize(
    ("ours", "function", "arguments"),
    [
        (nvml.sm_clock, "nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,)),
        (nvml.clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons", ()),
        (nvml.power, "nvmlDeviceGetPowerUsage", ()),
        (nvml.energy, "nvmlDeviceGetTotalEnergyConsumption", ()),
        (nvml.temperature, "nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
        (
            nvml.uncorrected_errors,
            "nvmlDeviceGetTotalEccErrors",
            (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
        ),
        (nvml.remapped_rows, "nvmlDeviceGetRemappedRows", ()),
        (nvml.remap_pending, "nvmlDeviceGetRemappedRows", ()),
        (nvml.remap_failed, "nvmlDeviceGetRemappedRows", ()),
    ],
)
def test_each_sampled_value_is_asked_as_the_bindings_ask_it(
    monkeypatch: pytest.MonkeyPatch,
    ours: Callable[[Any, Any], int | None],
    function: str,
    arguments: tuple[int, ...],
) -> None:
    recorder = Recorder()
    assert ours(recorder, GPU) == 0
    assert recorder.calls == theirs(monkeypatch, function, GPU, *arguments)


def test_the_reasons_of_older_drivers_are_asked_as_the_bindings_ask_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Older(Recorder):
        def __getattr__(self, name: str) -> Callable[..., int]:
            if name == "nvmlDeviceGetCurrentClocksEventReasons":
                raise AttributeError(name)
            return super().__getattr__(name)

    older = Older()
    assert nvml.clock_reasons(older, GPU) == 0
    function = "nvmlDeviceGetCurrentClocksThrottleReasons"
    assert older.calls == theirs(monkeypatch, function, GPU)


def test_the_reasons_have_the_bits_and_names_of_the_bindings() -> None:
    names = {
        "idle": "GpuIdle",
        "applications_clocks": "ApplicationsClocksSetting",
        "sw_power_cap": "SwPowerCap",
        "hw_slowdown": "HwSlowdown",
        "sync_boost": "SyncBoost",
        "sw_thermal": "SwThermalSlowdown",
        "hw_thermal": "HwThermalSlowdown",
        "hw_power_brake": "HwPowerBrakeSlowdown",
        "display_clocks": "DisplayClockSetting",
    }
    bits = {name: getattr(pynvml, f"nvmlClocksEventReason{word}") for name, word in names.items()}
    assert bits == nvml.REASONS
    assert sum(bits.values()) == pynvml.nvmlClocksEventReasonAll


def test_the_facts_of_a_node_are_asked_as_the_bindings_ask_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OneGpu(Recorder):
        def __getattr__(self, name: str) -> Callable[..., int]:
            call = super().__getattr__(name)

            def counted(*arguments: Any) -> int:
                if name == "nvmlDeviceGetCount_v2":
                    arguments[0]._obj.value = 1
                return call(*arguments)

            return counted

    library = OneGpu()
    node_line("n", lambda name: library)
    expected = [
        theirs(monkeypatch, function, *arguments)
        for function, arguments in (
            ("nvmlDeviceGetCount", ()),
            ("nvmlDeviceGetHandleByIndex", (0,)),
            ("nvmlDeviceGetName", (GPU,)),
            ("nvmlDeviceGetMaxClockInfo", (GPU, pynvml.NVML_CLOCK_SM)),
            ("nvmlDeviceGetEnforcedPowerLimit", (GPU,)),
        )
    ]
    assert library.calls[1:-2] == [call for calls in expected for call in calls]
    # The bindings' buffer for the version is shorter than ours, which is for names too.
    assert [name for name, _ in library.calls[-2:]] == [
        "nvmlSystemGetDriverVersion",
        "nvmlShutdown",
    ]
    assert pynvml.NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE <= 96
