# SPDX-License-Identifier: Apache-2.0
"""Read what was sampled on each node of a run, and cut it to the window.

Only rank 0 logs steps, so only the log tells when the window began. The first node's samples have
the size of the log at their times, and the reader of the log knows at which byte each step's line
begins: the first sample with a larger size was taken after the line. It needs no time in the log,
and no pause between steps or after the last one can shift it. All nodes use the same times, since
their clocks agree by less than an interval.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.contract.metrics import ENERGY_BY_NAME, TOKENS_PER_JOULE, WATTS_PER_GPU, Measured
from llmb.contract.samples import (
    MeasuredClock,
    MeasuredPower,
    MeasuredTemperature,
    Node,
    Samples,
    Telemetry,
)
from llmb.contract.window import Window
from llmb.core import files
from llmb.core.values import dataclass

FILES = "telemetry-*.jsonl"
# Bits of nvmlClocksEventReasons by the names of llmb_workloads.nvml.
REASONS = (
    "idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
)
_DECODER = json.JSONDecoder(parse_constant=int)  # int() raises for nan and inf
_IDLE = 1
_NUMBERS = {int, float}
_MOST_GPUS = 1 << 14  # of a node
_MOST_BYTES = 16 << 20  # of a file; the program stops at a quarter
_MOST = 1e15  # joules, bytes, seconds: no counter has more

Values = tuple[float | None, ...]  # of each GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """One look at all GPUs of a node."""

    time: float  #: seconds since 1970
    log_bytes: float | None  #: of the log at this time, on the first node
    #: The columns of the file by name: ``sm_clock_mhz``, ``power_w``, ...
    columns: Mapping[str, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSamples:
    """The samples of a node, in the order of their times."""

    host: str
    gpus: int
    is_first: bool  #: the node of rank 0
    samples: tuple[NodeSample, ...]


def nodes_of(
    samples: Samples, series: Sequence[NodeSamples], window: Window | None
) -> tuple[Node, ...]:
    """Return the nodes that the log describes or that have a ``series`` of samples.

    Their telemetry is that of the ``window`` if the samples tell, or else of the whole run.
    """
    nodes = joined(samples.environment.described)
    times = None if window is None else window_times(series, samples, window)
    sampled = [
        Node(host=node.host, gpus=node.gpus, telemetry=summarize(node, times)) for node in series
    ]
    return joined((*nodes, *sampled))


def joined(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return one node for each host, with all that is known of it. Later values win."""
    by_host: dict[str, Node] = {}
    for node in nodes:
        earlier = by_host.get(node.host)
        by_host[node.host] = node if earlier is None else _with_values(earlier, node)
    return tuple(by_host.values())


def _with_values(node: Node, later: Node) -> Node:
    names = ("driver", "gpu", "gpus", "max_sm_clock_mhz", "power_limit_w", "telemetry")
    values = {name: getattr(later, name) for name in names}
    return replace(node, **{name: value for name, value in values.items() if value is not None})


def read_folder(folder: Path) -> Iterator[NodeSamples]:
    """Yield what each node of a run has written, as far as it can be read."""
    paths: list[Path] = []
    with contextlib.suppress(OSError):  # such as a stale handle
        paths = sorted(folder.glob(FILES))
    for path in paths:
        with contextlib.suppress(OSError):
            text = files.read_start(path, _MOST_BYTES).decode("utf-8", "replace")
            if (node := parse(text)) is not None:
                yield node


def parse(text: str) -> NodeSamples | None:
    """Return the samples in the ``text`` of a node's file, None if it does not name the node."""
    opening, *rows = (_row(line) for line in text.splitlines() or [""])
    host, gpus = opening.get("host"), opening.get("gpus")
    if not isinstance(host, str) or not host or type(gpus) is not int or not 0 < gpus < _MOST_GPUS:
        return None
    read = [sample for row in rows if (sample := _sample(row)) is not None]
    samples = tuple(sorted(read, key=lambda sample: sample.time))
    is_first = opening.get("first_node") is True
    return NodeSamples(host=host[:253], gpus=gpus, is_first=is_first, samples=samples)


def _row(line: str) -> dict[str, Any]:
    """Return the object of a line, empty for one that is cut off or damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        row = _DECODER.decode(line)
        return row if isinstance(row, dict) else {}
    return {}


def _sample(row: Mapping[str, Any]) -> NodeSample | None:
    time = _number(row.get("time"))
    if time is None:
        return None
    columns = {name: _values(values) for name, values in row.items() if type(values) is list}
    return NodeSample(time=time, log_bytes=_number(row.get("log_bytes")), columns=columns)


def _values(values: list[Any]) -> Values:
    """Return a column's values, None for each that is no possible number."""
    # A run of 64 nodes has millions of values, and hardly one that is none.
    are_numbers = bool(values) and _NUMBERS.issuperset(map(type, values))
    if are_numbers and min(values) >= 0 and max(values) < _MOST:
        return tuple(values)
    return tuple(map(_number, values))


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST:
        return value
    return None


def window_times(
    series: Sequence[NodeSamples], samples: Samples, window: Window
) -> tuple[float, float] | None:
    """Return the times between which the steps of ``window`` ran, None if nothing tells.

    They are those of the first sample after the last line before the window, and of the last
    sample before the line of its last step. Each is at most an interval off.
    """
    first, last = window.first - samples.first, window.last - samples.first
    before = [offset for iteration, offset in samples.offsets if iteration < first]
    inside = [offset for iteration, offset in samples.offsets if first <= iteration <= last]
    sized = [
        (sample.log_bytes, sample.time)
        for node in series
        if node.is_first
        for sample in node.samples
        if sample.log_bytes is not None
    ]
    if not inside or not sized or sized[-1][0] <= inside[-1]:
        return None
    # Without a line before it, the window begins with the first step, whose start nobody logs.
    begin = before[-1] if before else inside[0]
    start = next(time for size, time in sized if size > begin)  # the last one is
    end = next((time for size, time in reversed(sized) if size <= inside[-1]), None)
    if end is None:
        return None
    # A window that is shorter than two intervals has the samples around it.
    return (start, end) if start <= end else (end, start)


def time_of_line(series: Sequence[NodeSamples], offset: int | None) -> float | None:
    """Return when the line at the byte ``offset`` of the log was there, at most an interval late.

    None if no sample was taken after it, or if nothing tells.
    """
    if offset is None:
        return None
    times = (
        sample.time
        for node in series
        if node.is_first
        for sample in node.samples
        if sample.log_bytes is not None and sample.log_bytes > offset
    )
    return next(times, None)


def summarize(node: NodeSamples, times: tuple[float, float] | None) -> Telemetry:
    """Return the values of a node between two ``times``, None for all its samples.

    llmb_workloads.telemetry has the same formulas for all samples. New ECC errors and remapped rows
    are always those of the whole run.
    """
    inside = [s for s in node.samples if times is None or times[0] <= s.time <= times[1]]
    samples = inside or node.samples
    reasons = _columns(samples, "reasons", node.gpus)
    clock_columns = _columns(samples, "sm_clock_mhz", node.gpus)
    busy = map(_busy_clocks, clock_columns, reasons)
    clocks = [sorted(column) for column in busy if column]
    watts = _numbers_in(_columns(samples, "power_w", node.gpus))
    degrees = _numbers_in(_columns(samples, "temperature_c", node.gpus))
    errors = _total(map(_gain, _columns(node.samples, "ecc_uncorrected", node.gpus)))
    rows = _columns(node.samples, "remapped_rows", node.gpus)
    remapped = _total(
        next((value for value in reversed(column) if value is not None), None) for column in rows
    )
    return Telemetry(
        sm_clock_mhz=MeasuredClock(
            median=min(quantile(column, 0.5) for column in clocks),
            p5=min(quantile(column, 0.05) for column in clocks),
        )
        if clocks
        else None,
        power_w=MeasuredPower(mean=round(math.fsum(watts) / len(watts), 1), max=max(watts))
        if watts
        else None,
        energy_j=_energy(_columns(samples, "energy_j", node.gpus)),
        temperature_c=MeasuredTemperature(max=max(degrees)) if degrees else None,
        throttle=_shares(samples, reasons),
        ecc_uncorrected=None if errors is None else int(errors),
        remapped_rows=None if remapped is None else int(remapped),
        seconds=round(samples[-1].time - samples[0].time, 3) if samples else None,
        in_window=bool(inside) and times is not None,
    )


def _columns(samples: Sequence[NodeSample], name: str, gpus: int) -> list[Values]:
    """Return the values of each GPU over time, None for what was not sampled."""
    missing = (None,) * gpus
    rows = [sample.columns.get(name, missing) for sample in samples]
    if any(len(row) != gpus for row in rows):
        rows = [(*row, *missing)[:gpus] for row in rows]
    return [*zip(*rows, strict=True)] if rows else [()] * gpus


def _busy_clocks(clocks: Values, reasons: Values) -> list[float]:
    """Return the clocks of a GPU without the samples in which it idles."""
    return [
        clock
        for clock, bits in zip(clocks, reasons, strict=True)
        if clock is not None and (bits is None or not int(bits) & _IDLE)
    ]


def _numbers_in(columns: Iterable[Values]) -> list[float]:
    return [value for column in columns for value in column if value is not None]


def quantile(ascending: Sequence[float], part: float) -> float:
    """Return the value that at least ``part`` of the values do not exceed. A clock stays one."""
    return ascending[max(0, -(-len(ascending) * round(part * 100) // 100) - 1)]


def _gain(column: Values) -> float | None:
    """Return how much a counter has grown, None if the driver was loaded anew."""
    values = [value for value in column if value is not None]
    return values[-1] - values[0] if values and values[-1] >= values[0] else None


def _energy(counters: Sequence[Values]) -> float | None:
    """Return the joules of all GPUs, None unless each has a counter from first to last sample.

    A sum without one GPU, or over a part of the time, gives too low a power. Samples of the power
    have a mean all the same.
    """
    return _total(map(_gain, counters)) if all(map(_is_complete, counters)) else None


def _is_complete(counter: Values) -> bool:
    """Return whether a counter has the first and the last sample, and never falls."""
    values = [value for value in counter if value is not None]
    has_ends = bool(values) and counter[0] is not None and counter[-1] is not None
    return has_ends and values == sorted(values)


def _total(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(math.fsum(numbers), 1) if numbers else None


def _shares(samples: Sequence[NodeSample], reasons: Sequence[Values]) -> dict[str, float] | None:
    """Return the share of time of each of REASONS, of the GPU that has it longest."""
    if not any(bits is not None for column in reasons for bits in column):
        return None
    times = [sample.time for sample in samples]
    ends = [*times[1:], times[-1] + (1.0 if len(times) == 1 else 0.0)]
    lengths = [end - time for time, end in zip(times, ends, strict=True)]
    shares: dict[str, float] = {}
    for column in reasons:
        seconds: dict[int, float] = {}  # by the bits that were set
        for length, bits in zip(lengths, column, strict=True):
            if bits is not None and not int(bits) & _IDLE:
                seconds[int(bits)] = seconds.get(int(bits), 0.0) + length
        total = math.fsum(seconds.values())
        for place, name in enumerate(REASONS):
            part = math.fsum(length for bits, length in seconds.items() if bits >> place & 1)
            if part:
                shares[name] = max(shares.get(name, 0.0), round(part / total, 3))
    return shares


def power_metrics(
    nodes: Sequence[Node], gpus: int | None, tokens_per_second: float | None
) -> dict[str, Measured]:
    """Return the power of one GPU in the window and the tokens that a joule trains.

    There are none unless the telemetry of the window covers exactly the job's ``gpus``.
    """
    telemetries = [node.telemetry for node in nodes if node.telemetry is not None]
    sampled = sum(node.gpus or 0 for node in nodes if node.telemetry is not None)
    if not gpus or sampled != gpus or not all(item.in_window for item in telemetries):
        return {}
    watts = [_watts(node) for node in nodes if node.telemetry is not None]
    total = math.fsum(value for value in watts if value is not None)
    if None in watts or total <= 0:
        return {}
    values = {WATTS_PER_GPU: total / gpus}
    if tokens_per_second:
        values[TOKENS_PER_JOULE] = tokens_per_second / total
    return {name: ENERGY_BY_NAME[name].measured(value, None, 0) for name, value in values.items()}


def _watts(node: Node) -> float | None:
    """Return the mean power of all GPUs of a node: by its counters of energy, else by samples."""
    telemetry = node.telemetry
    if telemetry is None:
        return None
    if telemetry.energy_j and telemetry.seconds:
        return telemetry.energy_j / telemetry.seconds
    power = telemetry.power_w
    return None if power is None or node.gpus is None else power.mean * node.gpus


def read_line(host: str, text: str) -> Node | None:
    """Return the node of a line ``llmb telemetry HOST: {...}`` with this ``text`` in braces."""
    data = _row(text)
    gpus = data.get("gpus")
    clock, power, heat = (data.get(key) for key in ("sm_clock_mhz", "power_w", "temperature_c"))
    median, p5 = _numbers(clock, "median", "p5")
    mean, most = _numbers(power, "mean", "max")
    (hottest,) = _numbers(heat, "max")
    errors, rows = _numbers(data, "ecc_uncorrected", "remapped_rows")
    shares = data.get("throttle")
    telemetry = Telemetry(
        sm_clock_mhz=None if not median or p5 is None else MeasuredClock(median=median, p5=p5),
        power_w=None if mean is None or most is None else MeasuredPower(mean=mean, max=most),
        energy_j=_number(data.get("energy_j")),
        temperature_c=None if hottest is None else MeasuredTemperature(max=hottest),
        throttle={
            name: share for name in REASONS if (share := _number(shares.get(name))) is not None
        }
        if isinstance(shares, dict)
        else None,
        ecc_uncorrected=None if errors is None else int(errors),
        remapped_rows=None if rows is None else int(rows),
    )
    if telemetry == Telemetry():
        return None
    count = gpus if type(gpus) is int and 0 < gpus < _MOST_GPUS else None
    return Node(host=host, gpus=count, telemetry=telemetry)


def _numbers(values: object, *names: str) -> list[float | None]:
    return [_number(values.get(name)) if isinstance(values, dict) else None for name in names]
