# SPDX-License-Identifier: Apache-2.0
"""The telemetry of a run's nodes, cut to the measured window, however damaged its files are."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.samples import (
    MeasuredClock,
    MeasuredPower,
    MeasuredTemperature,
    Node,
    Samples,
    Telemetry,
)
from llmb.contract.window import Window
from llmb.measure import telemetry
from llmb.measure.log_reader import read_log

LINE = (
    'llmb telemetry gpu-1: {"gpus": 8, "sm_clock_mhz": {"median": 1395, "p5": 1200}, "power_w":'
    ' {"mean": 650.2, "max": 701.0}, "energy_j": 5e6, "temperature_c": {"max": 71}, "throttle":'
    ' {"sw_power_cap": 0.8}, "ecc_uncorrected": 0, "remapped_rows": 2}'
)


def step(number: int) -> str:
    return (
        f"Training epoch 0, iteration {number}/9 | lr: 1 | global_step: {number} |"
        " reduced_train_loss: 9.5 | train_step_timing in s: 10.0\n"
    )


def write_node(
    folder: Path,
    host: str = "n1",
    clocks: Mapping[float, float] | None = None,
    sizes: Mapping[float, int] | None = None,
    *,
    gpus: int = 1,
    **columns: Any,
) -> Path:
    """Write a node's file with a sample every 2 s for each of ``clocks``, by its time."""
    rows: list[dict[str, Any]] = [
        {"telemetry": 1, "host": host, "first_node": bool(sizes), "gpus": gpus}
    ]
    for time, clock in (clocks or {}).items():
        row: dict[str, Any] = {"time": time, "sm_clock_mhz": [clock] * gpus, "reasons": [0] * gpus}
        row |= {name: [value(time)] * gpus for name, value in columns.items()}
        if sizes:
            row["log_bytes"] = sizes[time]
        rows.append(row)
    path = folder / f"telemetry-{host}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def training(folder: Path) -> tuple[Path, dict[float, int]]:
    """A log of ten steps of 10 s from 1000 s on, ended by 20 s of teardown; its sizes over time."""
    log, text, sizes = folder / "log-x.out", 'llmb node n1: {"gpus": 1}\n', {}
    for number in range(10):
        for time in range(5):
            sizes[1000.0 + 10 * number + 2 * time] = len(text)
        text += step(number)
    text += "`Trainer.fit` stopped: `max_steps=10` reached.\n"
    sizes |= {1100.0 + 2 * time: len(text) for time in range(10)}
    log.write_text(text)
    return log, sizes


def of_host(nodes: tuple[Node, ...], host: str) -> Telemetry:
    (node,) = [node for node in nodes if node.host == host]
    assert node.telemetry is not None
    return node.telemetry


def test_the_line_of_a_node(tmp_path: Path) -> None:
    log = tmp_path / "log-x.out"
    log.write_text(f"{step(0)}8: {LINE}\n")
    samples = read_log(log)
    assert samples.environment.hosts == ("gpu-1",)
    assert samples.environment.described == (
        Node(
            host="gpu-1",
            gpus=8,
            telemetry=Telemetry(
                sm_clock_mhz=MeasuredClock(median=1395, p5=1200),
                power_w=MeasuredPower(mean=650.2, max=701.0),
                energy_j=5e6,
                temperature_c=MeasuredTemperature(max=71),
                throttle={"sw_power_cap": 0.8},
                ecc_uncorrected=0,
                remapped_rows=2,
            ),
        ),
    )


def test_every_node_has_its_line(tmp_path: Path) -> None:
    log = tmp_path / "log-x.out"
    lines = [LINE.replace("gpu-1", f"gpu-{number}") for number in range(1, 4)]
    log.write_text("".join(f"{line}\n" for line in (step(0), *lines, *lines)))
    described = read_log(log).environment.described
    assert [node.host for node in described] == ["gpu-1", "gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    "line",
    [
        LINE[:-2],
        LINE.replace("1395", "NaN"),
        LINE.replace('"median"', "["),
        "llmb telemetry gpu-1: {1}",
        "llmb telemetry gpu-1: []",
        'llmb telemetry gpu-1: {"gpus": true, "sm_clock_mhz": 7, "throttle": [], "energy_j": -1}',
        "llmb telemetry gpu-1: {" + "[" * 1900 + "}",
    ],
)
def test_a_damaged_line_says_nothing(tmp_path: Path, line: str) -> None:
    log = tmp_path / "log-x.out"
    log.write_text(f"{step(0)}{line}\n")
    assert not read_log(log).environment.described


def test_the_window_is_cut_by_the_size_of_the_log(tmp_path: Path) -> None:
    """No time is in the log, and the last step is long before the end."""
    log, sizes = training(tmp_path)
    # low before iteration 3 ends at 1040 s, and from the end of iteration 7 at 1080 s on
    clocks = {time: 1980.0 if 1040 <= time < 1080 else 345.0 for time in sizes}
    energy: dict[str, Any] = {"energy_j": lambda time: 500 * (time - 900)}
    write_node(tmp_path, "n1", clocks, sizes, **energy)
    write_node(tmp_path, "n2", dict.fromkeys(sizes, 1395.0))
    nodes = telemetry.nodes_of(read_log(log), [*telemetry.read_folder(log.parent)], Window(4, 7))
    first = of_host(nodes, "n1")
    assert first.sm_clock_mhz == MeasuredClock(median=1980.0, p5=1980.0)
    assert (first.seconds, first.in_window, first.energy_j) == (38.0, True, 19000.0)
    # the other node's samples of the same times
    assert of_host(nodes, "n2").seconds == 38.0
    assert [node.gpus for node in nodes] == [1, 1]


def test_the_window_may_begin_with_the_first_step(tmp_path: Path) -> None:
    log, sizes = training(tmp_path)
    write_node(tmp_path, "n1", dict.fromkeys(sizes, 1980.0), sizes)
    samples = read_log(log)
    assert telemetry.window_times([*telemetry.read_folder(tmp_path)], samples, Window(0, 4)) == (
        1010.0,
        1048.0,
    )


@pytest.mark.parametrize(
    "case", ["no sizes", "killed before", "begun after", "no window", "no offsets"]
)
def test_without_the_times_of_the_window_it_is_the_whole_run(tmp_path: Path, case: str) -> None:
    log, sizes = training(tmp_path)
    if case == "killed before":
        sizes = {time: size for time, size in sizes.items() if time < 1040}
    elif case == "begun after":
        sizes = {time: size for time, size in sizes.items() if time >= 1090}
    clocks = dict.fromkeys(sizes, 1980.0)
    write_node(tmp_path, "n1", clocks, None if case == "no sizes" else sizes)
    samples = Samples() if case == "no offsets" else read_log(log)
    window = None if case == "no window" else Window(4, 7)
    measured = of_host(
        telemetry.nodes_of(samples, [*telemetry.read_folder(log.parent)], window), "n1"
    )
    assert not measured.in_window
    assert measured.seconds == max(sizes) - min(sizes)


def test_throttling_is_a_share_of_the_time_in_which_a_gpu_works(tmp_path: Path) -> None:
    """2 s idle, 4 s too hot, 6 s without a reason; the last sample ends the time."""
    bits = {0.0: 1, 2.0: 32, 4.0: 32 | 4, 6.0: 0, 8.0: 0, 10.0: 0, 12.0: 0}
    write_node(tmp_path, "n1", dict.fromkeys(bits, 1980.0), reasons=lambda time: bits[time])
    write_node(tmp_path, "n2", dict.fromkeys(bits, 1980.0), reasons=lambda time: None)
    nodes = telemetry.nodes_of(Samples(), [*telemetry.read_folder(tmp_path)], None)
    assert of_host(nodes, "n1").throttle == {"sw_thermal": 0.4, "sw_power_cap": 0.2}
    assert of_host(nodes, "n2").throttle is None


def test_errors_and_rows_are_those_of_the_whole_run(tmp_path: Path) -> None:
    log, sizes = training(tmp_path)
    columns: dict[str, Any] = {
        "ecc_uncorrected": lambda time: 5 + (time > 1095),
        "remapped_rows": lambda time: int(time > 1100),
    }
    write_node(tmp_path, "n1", dict.fromkeys(sizes, 1980.0), sizes, **columns)
    measured = of_host(
        telemetry.nodes_of(read_log(log), [*telemetry.read_folder(log.parent)], Window(4, 7)), "n1"
    )
    assert (measured.ecc_uncorrected, measured.remapped_rows) == (1, 1)


def test_what_is_missing_or_damaged_in_a_file_is_passed_over(tmp_path: Path) -> None:
    log, sizes = training(tmp_path)
    path = write_node(tmp_path, "n1", dict.fromkeys(sizes, 1980.0), sizes)
    lines = path.read_text().splitlines()
    lines[5:5] = [
        '{"time": 1001, "sm_clock_mhz": [null]}',
        '{"time": NaN}',
        '{"time": 1002, "sm_clock_mhz": 7, "reasons": ["x"], "power_w": [1e999]}',
        "[" * 100000,
        '{"time": "1003"}',
        "\x00\xff",
    ]
    path.write_text("\n".join([*lines, lines[-1][:20]]))
    (tmp_path / "telemetry-empty.jsonl").write_text("")
    (tmp_path / "telemetry-other.jsonl").write_text('{"host": 7, "gpus": 1}\n')
    (tmp_path / "telemetry-folder.jsonl").mkdir()
    nodes = telemetry.nodes_of(read_log(log), [*telemetry.read_folder(log.parent)], Window(4, 7))
    assert [node.host for node in nodes] == ["n1"]
    assert of_host(nodes, "n1").sm_clock_mhz == MeasuredClock(median=1980.0, p5=1980.0)


def test_power_and_tokens_of_a_joule(tmp_path: Path) -> None:
    log, sizes = training(tmp_path)
    energy: dict[str, Any] = {"energy_j": lambda time: 500 * time}
    clocks = dict.fromkeys(sizes, 1980.0)
    write_node(tmp_path, "n1", clocks, sizes, gpus=2, **energy)
    write_node(tmp_path, "n2", clocks, gpus=2, power_w=lambda time: 700.0)
    nodes = telemetry.nodes_of(read_log(log), [*telemetry.read_folder(log.parent)], Window(4, 7))
    # 2 × 500 W by the counters of energy, 2 × 700 W by samples
    found = telemetry.power_metrics(nodes, 4, 4800.0)
    assert {name: value.mean for name, value in found.items()} == {
        "watts_per_gpu": 600.0,
        "tokens_per_joule": 2.0,
    }
    assert not any(value.judged for value in found.values())
    assert telemetry.power_metrics(nodes, 8, 4800.0) == {}  # a node is missing
    whole = telemetry.nodes_of(read_log(log), [*telemetry.read_folder(log.parent)], None)
    assert telemetry.power_metrics(whole, 4, 4800.0) == {}  # not of the window


Counters = Callable[[float], tuple[float | None, ...]]


# Of two GPUs with 500 W each, from 0 s to 100 s.
@pytest.mark.parametrize(
    ("counters", "times"),
    [
        (lambda time: (500 * time, 500 * time), range(101)),
        (lambda time: (500 * time, 500 * time), [*range(20), *range(80, 101)]),
        (lambda time: (500 * time, None), range(101)),
        (lambda time: (500 * time, 1e6 + 500 * time if time < 50 else 0), range(101)),
        (lambda time: (500 * time, 500 * time if time < 50 else 500 * time - 25000), range(101)),
        (lambda time: (500 * time, 500 * time if time >= 50 else None), range(101)),
        (lambda time: (500 * time, 500 * time if time < 50 else None), range(101)),
        (lambda time: (500 * time if time < 100 else None,) * 2, [*range(30), 100]),
        (lambda time: (None, None), range(101)),
    ],
    ids=[
        *("whole", "samples are missing", "one without", "loaded anew", "loaded anew, and higher"),
        *("one begins late", "one ends early", "none at the end", "none"),
    ],
)
def test_the_power_is_right_whatever_counters_are_missing(
    counters: Counters, times: Iterable[int]
) -> None:
    rows: list[dict[str, Any]] = [{"host": "n1", "gpus": 2}]
    rows += [
        {"time": time, "power_w": [500.0] * 2, "energy_j": counters(float(time))} for time in times
    ]
    node = telemetry.parse("".join(json.dumps(row) + "\n" for row in rows))
    assert node is not None
    measured = telemetry.summarize(node, (0.0, 100.0))
    found = telemetry.power_metrics([Node(host="n1", gpus=2, telemetry=measured)], 2, 4000.0)
    assert {name: value.mean for name, value in found.items()} == {
        "watts_per_gpu": 500.0,
        "tokens_per_joule": 4.0,
    }
