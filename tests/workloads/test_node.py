# SPDX-License-Identifier: Apache-2.0
"""The program says what a node's GPUs are, and trains on where nobody can tell."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from llmb_workloads.node import node_line

REFUSED = 3  # NVML_ERROR_NOT_SUPPORTED


@dataclass
class Library:
    """In the place of NVML: GPUs as (name, MHz, milliwatts); ``lacks`` are functions of a newer
    one.
    """

    gpus: list[tuple[str, int, int]]
    lacks: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return REFUSED if name in self.refuses else self.answer(name, *arguments)

        return call

    def answer(self, name: str, *arguments: Any) -> int:
        if name == "nvmlDeviceGetHandleByIndex_v2":
            index, handle = arguments
            handle._obj.value = index.value + 1
        elif name == "nvmlDeviceGetCount_v2":
            arguments[0]._obj.value = len(self.gpus)
        elif name == "nvmlSystemGetDriverVersion":
            arguments[0].value = b"570.86.15"
        elif name.startswith("nvmlDeviceGet"):
            model, clock, limit = self.gpus[arguments[0].value - 1]
            if name == "nvmlDeviceGetName":
                assert len(model) < arguments[2].value
                arguments[1].value = model.encode()
            else:
                assert name != "nvmlDeviceGetMaxClockInfo" or arguments[1].value == 1
                arguments[-1]._obj.value = clock if "Clock" in name else limit
        return 0


def printed(library: Library) -> dict[str, Any]:
    line = node_line("gpu-001.cluster.example", lambda name: library)
    assert line is not None
    before, _, data = line.partition(": ")
    assert before == "llmb node gpu-001"
    facts: dict[str, Any] = json.loads(data)
    return facts


def test_the_lowest_gpu_of_a_node_is_reported() -> None:
    name = "NVIDIA H100 80GB HBM3"
    library = Library([(name, 1980, 700_000)] * 7 + [(name, 1755, 650_000)])
    assert printed(library) == {
        "driver": "570.86.15",
        "gpu": name,
        "gpus": 8,
        "max_sm_clock_mhz": 1755,
        "power_limit_w": 650.0,
    }
    assert (library.calls[0], library.calls[-1]) == ("nvmlInit_v2", "nvmlShutdown")


def test_gpus_that_are_not_alike_are_all_named() -> None:
    assert printed(Library([("A", 1, 1000), ("B", 2, 2000), ("A", 3, 3000)]))["gpu"] == "A, B"


@pytest.mark.parametrize("how", ["lacks", "refuses"])
@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_limit_w"}),
        ("nvmlDeviceGetMaxClockInfo", {"max_sm_clock_mhz"}),
        ("nvmlSystemGetDriverVersion", {"driver"}),
        ("nvmlDeviceGetName", {"gpu"}),
        ("nvmlDeviceGetCount_v2", {"gpu", "gpus", "max_sm_clock_mhz", "power_limit_w"}),
        ("nvmlDeviceGetHandleByIndex_v2", {"gpu", "gpus", "max_sm_clock_mhz", "power_limit_w"}),
        ("nvmlShutdown", set()),
    ],
)
def test_what_cannot_be_asked_is_omitted(how: str, function: str, missing: set[str]) -> None:
    whole = set(printed(Library([("A", 1, 1000)])))
    library = Library([("A", 1, 1000)])
    setattr(library, how, (function,))
    assert set(printed(library)) == whole - missing


def test_without_a_driver_there_is_no_line() -> None:
    asked: list[str] = []

    def fail(name: str) -> Any:
        asked.append(name)
        raise OSError(f"{name}: cannot open shared object file")

    assert node_line("n", fail) is None
    assert asked == ["libnvidia-ml.so.1"]
    assert node_line("n", lambda name: Library([], lacks=("nvmlInit_v2",))) is None
    assert node_line("n", lambda name: Library([], refuses=("nvmlInit_v2",))) is None
    nothing = Library([], refuses=("nvmlSystemGetDriverVersion",))
    assert node_line("n", lambda name: nothing) is None
    assert nothing.calls[-1] == "nvmlShutdown"
