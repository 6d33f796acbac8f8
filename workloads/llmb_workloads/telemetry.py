# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_workloads.telemetry LOG: samples this node's GPUs while a training runs.

It writes telemetry-<host>.jsonl into its folder, which is the log's, and prints one line at its
end. It ends on SIGTERM, or when the process that started it is gone.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llmb_workloads import nvml
from llmb_workloads.node import host_name

INTERVAL = 2.0  # seconds
# After as many samples the interval doubles, so that a file has some MB after days.
DOUBLING = 1800
FLUSH = 30.0  # seconds that a killed run may lose
# ECC errors and remapped rows are rare, and slow to ask for: every so many samples, and at the end.
RARE = 15
MOST_BYTES = 4 << 20

Values = tuple[Any, ...]  # of each GPU, None for what the driver does not have


@dataclass(frozen=True)
class Sample:
    """One look at all GPUs of the node. A field of the file with this name has each GPU's value."""

    #: Seconds since 1970.
    time: float
    #: The size of the log at this time, on the first node. It tells when a step was logged.
    log_bytes: int | None
    sm_clock_mhz: Values
    #: Bits of nvml.REASONS.
    reasons: Values
    power_w: Values
    #: Since the driver was loaded.
    energy_j: Values
    temperature_c: Values
    #: Since the driver was loaded. None if this sample did not ask.
    ecc_uncorrected: Values | None = None
    remapped_rows: Values | None = None


def read_sample(
    library: Any, gpus: Sequence[Any], *, with_rare: bool, log: Path | None, now: float
) -> Sample:
    """Ask each of the ``gpus`` once."""

    def each(read: Callable[[Any, Any], int | None], unit: int = 1) -> Values:
        values = (read(library, gpu) for gpu in gpus)
        return tuple(value if value is None else _scaled(value, unit) for value in values)

    return Sample(
        time=round(now, 3),
        log_bytes=_size(log),
        sm_clock_mhz=each(nvml.sm_clock),
        reasons=each(nvml.clock_reasons),
        power_w=each(nvml.power, 1000),
        energy_j=each(nvml.energy, 1000),
        temperature_c=each(nvml.temperature),
        ecc_uncorrected=each(nvml.uncorrected_errors) if with_rare else None,
        remapped_rows=each(nvml.remapped_rows) if with_rare else None,
    )


def _scaled(value: int, unit: int) -> float:
    return value if unit == 1 else round(value / unit, 1)


def _size(log: Path | None) -> int | None:
    try:
        return None if log is None else log.stat().st_size
    except OSError:
        return None


def to_line(sample: Sample) -> str:
    """Return a sample as a line of the file, without what it did not ask."""
    values = {name: value for name, value in asdict(sample).items() if value is not None}
    return json.dumps(values, separators=(",", ":")) + "\n"


def summarize(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the values of the node: of its slowest GPU for clocks, of one GPU for power.

    A GPU that idles has the clocks of nothing, so these samples do not count for clocks and
    reasons. llmb.measure.telemetry has the same formulas for a part of the samples.
    """
    clocks = [sorted(column) for gpu in _gpus(samples) if (column := _busy_clocks(samples, gpu))]
    medians, lows = ([quantile(column, part) for column in clocks] for part in (0.5, 0.05))
    powers = [[value for value in sample.power_w if value is not None] for sample in samples]
    watts = [value for values in powers for value in values]
    temperatures = [v for sample in samples for v in sample.temperature_c if v is not None]
    errors = [_gain(samples, "ecc_uncorrected", gpu) for gpu in _gpus(samples)]
    rows = next((s.remapped_rows for s in reversed(samples) if s.remapped_rows is not None), ())
    return {
        "sm_clock_mhz": {"median": min(medians), "p5": min(lows)} if clocks else None,
        "power_w": {"mean": round(sum(watts) / len(watts), 1), "max": max(watts)}
        if watts
        else None,
        "energy_j": _energy(samples),
        "temperature_c": {"max": max(temperatures)} if temperatures else None,
        "throttle": _shares(samples),
        "ecc_uncorrected": _total(errors),
        "remapped_rows": _total(rows),
    }


def _gpus(samples: Sequence[Sample]) -> range:
    return range(len(samples[0].sm_clock_mhz) if samples else 0)


def _is_busy(sample: Sample, gpu: int) -> bool:
    bits = sample.reasons[gpu]
    return bits is None or not bits & nvml.IDLE


def _busy_clocks(samples: Sequence[Sample], gpu: int) -> list[float]:
    clocks = (sample.sm_clock_mhz[gpu] for sample in samples if _is_busy(sample, gpu))
    return [clock for clock in clocks if clock is not None]


def quantile(ascending: Sequence[float], part: float) -> float:
    """Return the value that at least ``part`` of the values do not exceed."""
    return ascending[max(0, -(-len(ascending) * round(part * 100) // 100) - 1)]


def _gain(samples: Sequence[Sample], name: str, gpu: int) -> float | None:
    """Return how much a counter has grown, None if the driver was loaded anew."""
    columns = (getattr(sample, name) for sample in samples)
    values = [column[gpu] for column in columns if column is not None and column[gpu] is not None]
    return values[-1] - values[0] if values and values[-1] >= values[0] else None


def _energy(samples: Sequence[Sample]) -> float | None:
    """Return the joules of all GPUs, None unless each has a counter from first to last sample.

    A sum without one GPU, or over a part of the time, gives too low a power.
    """
    gpus = _gpus(samples)
    if not all(_is_complete([sample.energy_j[gpu] for sample in samples]) for gpu in gpus):
        return None
    return _total([_gain(samples, "energy_j", gpu) for gpu in gpus])


def _is_complete(counter: Sequence[float | None]) -> bool:
    """Return whether a counter has the first and the last sample, and never falls."""
    values = [value for value in counter if value is not None]
    has_ends = bool(values) and counter[0] is not None and counter[-1] is not None
    return has_ends and values == sorted(values)


def _total(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(sum(numbers), 1) if numbers else None


def _shares(samples: Sequence[Sample]) -> dict[str, float] | None:
    """Return the share of time of each reason, of the GPU that has it longest."""
    shares: dict[str, float] = {}
    if not any(bits is not None for sample in samples for bits in sample.reasons):
        return None
    after_last = INTERVAL if len(samples) == 1 else 0.0
    ends = [sample.time for sample in samples[1:]] + [samples[-1].time + after_last]
    for gpu in _gpus(samples):
        times = [
            (max(0.0, end - sample.time), sample.reasons[gpu])
            for sample, end in zip(samples, ends, strict=True)
            if sample.reasons[gpu] is not None and _is_busy(sample, gpu)
        ]
        total = sum(seconds for seconds, _ in times)
        for name, bit in nvml.REASONS.items():
            part = sum(seconds for seconds, bits in times if bits & bit)
            if part:
                shares[name] = max(shares.get(name, 0.0), round(part / total, 3))
    return shares


class SampleFile:
    """The samples of a node as lines, written together every half minute."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._lines: list[str] = []
        self._bytes, self._written = 0, time.monotonic()

    def add(self, line: str) -> None:
        """Add a line, unless the file is full."""
        if self._bytes + len(line) > MOST_BYTES:
            return
        self._lines.append(line)
        self._bytes += len(line)
        if time.monotonic() - self._written >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what has been added. A full disk costs these lines."""
        data, self._lines, self._written = "".join(self._lines), [], time.monotonic()
        with contextlib.suppress(OSError):
            os.write(self._descriptor, data.encode())


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since 1970 that no later step of the node's clock moves.

    The power is energy by time, so a step would change it, and would mix the order of samples.
    """
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


def sample_until(
    ended: Callable[[float], bool], library: Any, gpus: Sequence[Any], log: Path | None
) -> Iterator[Sample]:
    """Yield a sample in each interval until ``ended``, which waits for the seconds it is given."""
    number, begin, clock = 0, time.monotonic(), steady_clock()
    while True:
        rare = number % RARE == 0
        yield read_sample(library, gpus, with_rare=rare, log=log, now=clock())
        number += 1
        interval = INTERVAL * 2 ** (number // DOUBLING)
        # A slow driver loses samples instead of falling behind.
        pause = interval - (time.monotonic() - begin) % interval
        if ended(pause):
            break
    yield read_sample(library, gpus, with_rare=True, log=log, now=clock())


def watch(log: Path, ended: Callable[[float], bool], open_library: nvml.OpenLibrary) -> str | None:
    """Sample until ``ended``, and return the line for the log. None without NVIDIA's driver."""
    host, is_first = host_name(), os.environ.get("LLMB_NODE_RANK", "0") == "0"
    with nvml.opened(open_library) as library:
        gpus = [] if library is None else nvml.gpus_of(library)
        if not gpus:
            return None
        written = SampleFile(log.with_name(f"telemetry-{host}.jsonl"))
        opening = {"telemetry": 1, "host": host, "first_node": is_first, "gpus": len(gpus)}
        written.add(json.dumps(opening, separators=(",", ":")) + "\n")
        samples = []
        for sample in sample_until(ended, library, gpus, log if is_first else None):
            samples.append(sample)
            written.add(to_line(sample))
        written.flush()
    values = {"gpus": len(gpus), **summarize(samples)}
    return f"llmb telemetry {host}: {json.dumps(values)}"


def main(arguments: Sequence[str], open_library: nvml.OpenLibrary = ctypes.CDLL) -> int:
    """Sample until SIGTERM, or until the parent has gone, and print the node's line."""
    stopped, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Connections of the rank to its launcher, which must close when the rank ends.
    os.closerange(3, 1024)
    with contextlib.suppress(OSError):
        os.nice(10)  # the training's threads come first
    line = watch(
        Path(arguments[0]),
        lambda pause: stopped.wait(pause) or os.getppid() != parent,
        open_library,
    )
    if line is not None:
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
