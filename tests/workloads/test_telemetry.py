# SPDX-License-Identifier: Apache-2.0
"""The program beside a training samples the GPUs of its node, and no driver can make it fail."""

import ctypes
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmb.measure import telemetry as reader
from llmb_testing import nvml as fake_nvml
from llmb_testing.nvml import Change
from llmb_workloads import nvml, telemetry
from llmb_workloads.telemetry import Sample, summarize

pytestmark = pytest.mark.skipif(not fake_nvml.has_compiler(), reason="needs a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def watch(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[dict[str, Any] | None, list[dict[str, Any]]]]:
    """Sample a few times without waiting: the line's values, and the rows of the file."""

    def run(*changes: Change, looks: int = 3, node: str = "0") -> Any:
        variables = fake_nvml.environment(library, tmp_path / "script", changes)
        monkeypatch.setenv("NVML_SCRIPT", variables["NVML_SCRIPT"])
        monkeypatch.setenv("LLMB_NODE_RANK", node)
        pauses: Iterator[bool] = iter([False] * (looks - 1) + [True])
        log = tmp_path / "log-x.out"
        log.write_text("12345")
        for path in tmp_path.glob("telemetry-*"):
            path.unlink()
        line = telemetry.watch(log, lambda pause: next(pauses), lambda _: ctypes.CDLL(str(library)))
        rows = [
            json.loads(text)
            for path in tmp_path.glob("telemetry-*.jsonl")
            for text in path.read_text().splitlines()
        ]
        if line is None:
            return None, rows
        head, _, values = line.partition(": ")
        assert head == f"llmb telemetry {rows[0]['host']}"
        return json.loads(values), rows

    return run


def test_the_line_and_the_file_of_a_node(watch: Any) -> None:
    values, (opening, *samples) = watch(
        Change(key="gpus", value=2), Change(key="clock", value=1395, gpu=1)
    )
    energy = values.pop("energy_j")
    assert values == {
        "gpus": 2,
        "sm_clock_mhz": {"median": 1395, "p5": 1395},
        "power_w": {"mean": 650.0, "max": 650.0},
        "temperature_c": {"max": 61},
        "throttle": {},
        "ecc_uncorrected": 0,
        "remapped_rows": 0,
    }
    assert energy >= 0
    assert (opening["gpus"], opening["first_node"]) == (2, True)
    assert [sample["sm_clock_mhz"] for sample in samples] == [[1980, 1395]] * 4
    assert [sample["log_bytes"] for sample in samples] == [5] * 4
    # rare values are asked at both ends
    assert [name in samples[0] for name in ("ecc_uncorrected", "remapped_rows")] == [True, True]
    assert ["ecc_uncorrected" in sample for sample in samples] == [True, False, False, True]


def test_only_the_first_node_has_the_size_of_the_log(watch: Any) -> None:
    _, (opening, *samples) = watch(node="1")
    assert opening["first_node"] is False
    assert not any("log_bytes" in sample for sample in samples)


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetClockInfo", "sm_clock_mhz"),
        ("nvmlDeviceGetCurrentClocksEventReasons", "throttle"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetTotalEccErrors", "ecc_uncorrected"),
        ("nvmlDeviceGetRemappedRows", "remapped_rows"),
    ],
)
def test_what_the_driver_does_not_have_is_null(watch: Any, function: str, missing: str) -> None:
    values, _ = watch(Change(key=function, value=0))
    assert [name for name, value in values.items() if value is None] == [missing]


def test_without_gpus_or_driver_there_is_nothing(
    watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watch(Change(key="gpus", value=0)) == (None, [])
    monkeypatch.setenv("NVML_SCRIPT", str(tmp_path / "missing"))
    nothing = os.devnull

    def absent(name: str) -> Any:
        raise OSError(name)

    assert telemetry.watch(Path(nothing), lambda pause: True, absent) is None


def test_a_file_is_bounded(watch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(telemetry, "MOST_BYTES", 2000)
    values, rows = watch(looks=50)
    assert 2 < len(rows) < 10
    assert values["sm_clock_mhz"]["median"] == 1980
    (path,) = tmp_path.glob("telemetry-*.jsonl")
    assert path.stat().st_size <= 2000


def test_the_interval_grows_with_the_length_of_a_run(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "DOUBLING", 4)
    pauses: list[float] = []

    def ended(pause: float) -> bool:
        pauses.append(pause)
        return len(pauses) == 10

    assert len([*telemetry.sample_until(ended, ctypes.CDLL(str(library)), [], None)]) == 11
    bounds = [2.0] * 3 + [4.0] * 4 + [8.0] * 3
    assert all(0 < pause <= most for pause, most in zip(pauses, bounds, strict=True))
    assert max(pauses) > 4


@pytest.mark.parametrize("step", [0.0, 600.0, -30.0, -600.0])
def test_a_clock_that_is_set_moves_no_sample(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    clocks = SimpleNamespace(
        monotonic=lambda: 70.0 + seconds[0],
        time=lambda: 1e9 + seconds[0] + (step if seconds[0] > 5 else 0.0),
    )
    monkeypatch.setattr(telemetry, "time", clocks)

    def ended(pause: float) -> bool:
        seconds[0] += pause
        return seconds[0] >= 10

    times = [sample.time for sample in telemetry.sample_until(ended, None, [], None)]
    assert times == [1e9, 1e9 + 2, 1e9 + 4, 1e9 + 6, 1e9 + 8, 1e9 + 10]


def test_samples_are_written_together_and_a_killed_program_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    written = telemetry.SampleFile(tmp_path / "f")
    written.add("a\n")
    assert (tmp_path / "f").read_text() == ""
    clock[0] = telemetry.FLUSH
    written.add("b\n")
    assert (tmp_path / "f").read_text() == "a\nb\n"
    assert telemetry.FLUSH <= 60


def series(
    *clocks: int, bits: int = 0, gpus: int = 1, idle: int = 0, errors: tuple[int, ...] = ()
) -> list[Sample]:
    """One sample every 2 s; the first ``idle`` ones of a GPU that idles."""
    return [
        Sample(
            time=1000.0 + 2 * number,
            log_bytes=None,
            sm_clock_mhz=(clock,) * gpus,
            reasons=(nvml.IDLE if number < idle else bits,) * gpus,
            power_w=(500.0 + number,) * gpus,
            energy_j=(1e6 + 1000.0 * number,) * gpus,
            temperature_c=(40 + number,) * gpus,
            ecc_uncorrected=(errors[number],) * gpus if errors else None,
            remapped_rows=(3,) * gpus if number == len(clocks) - 1 else None,
        )
        for number, clock in enumerate(clocks)
    ]


def test_an_idle_gpu_says_nothing_of_clocks() -> None:
    values = summarize(series(345, 345, 345, 1980, 1935, 1950, idle=3))
    assert values["sm_clock_mhz"] == {"median": 1950, "p5": 1935}
    assert values["throttle"] == {}
    assert summarize(series(345, 345, idle=2))["sm_clock_mhz"] is None


def test_the_share_of_time_of_a_reason() -> None:
    cool, hot = series(*[1980] * 6), series(*[1395] * 11, bits=0x20 | 0x4)
    values = summarize([*cool[:5], *hot[5:]])
    assert values["throttle"] == {"sw_power_cap": 0.5, "sw_thermal": 0.5}


def test_new_errors_and_energy_are_differences() -> None:
    values = summarize(series(1, 2, 3, gpus=2, errors=(7, 7, 8)))
    assert (values["ecc_uncorrected"], values["energy_j"]) == (2, 4000.0)
    assert values["remapped_rows"] == 6
    # the driver was loaded anew
    assert summarize(series(1, 2, errors=(7, 0)))["ecc_uncorrected"] is None


def with_energy(*counters: tuple[float | None, ...]) -> list[Sample]:
    samples = series(*[1980] * len(counters), gpus=len(counters[0]))
    return [
        replace(sample, energy_j=values) for sample, values in zip(samples, counters, strict=True)
    ]


PARTLY_COUNTED = {
    "one without": with_energy((0, None), (1000, None), (2000, None)),
    "one begins late": with_energy((0, None), (1000, 0), (2000, 1000)),
    "one ends early": with_energy((0, 0), (1000, 1000), (2000, None)),
    "loaded anew": with_energy((0, 1e6), (1000, 0), (2000, 1000)),
    "loaded anew, and higher": with_energy((0, 50), (1000, 0), (2000, 1000)),
}


@pytest.mark.parametrize("samples", PARTLY_COUNTED.values(), ids=PARTLY_COUNTED)
def test_no_energy_of_some_gpus_or_a_part_of_the_time(samples: list[Sample]) -> None:
    assert summarize(samples)["energy_j"] is None


def test_a_counter_may_be_missing_between_the_ends() -> None:
    assert summarize(with_energy((0, 0), (1000, None), (2000, 3000)))["energy_j"] == 5000.0


@pytest.mark.parametrize(
    "samples",
    [
        series(1980, 1395, 1980, 1200, bits=0x44, gpus=3, errors=(0, 0, 1, 1)),
        series(345, 1980, 1965, idle=1),
        series(1980),
        *PARTLY_COUNTED.values(),
        with_energy((0, 0), (1000, None), (2000, 3000)),
    ],
)
def test_llmb_computes_the_same_of_all_samples(samples: list[Sample]) -> None:
    """The program's line and llmb's values of the file are two codes with one meaning."""
    gpus = len(samples[0].sm_clock_mhz)
    opening = {"telemetry": 1, "host": "n", "first_node": True, "gpus": gpus}
    text = json.dumps(opening) + "\n" + "".join(map(telemetry.to_line, samples))
    node = reader.parse(text)
    assert node is not None
    line = json.dumps({"gpus": gpus, **summarize(samples)})
    read = reader.read_line("n", line)
    assert read is not None
    computed = reader.summarize(node, None)
    assert read.telemetry == replace(computed, seconds=None)
