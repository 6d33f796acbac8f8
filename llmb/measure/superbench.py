# SPDX-License-Identifier: Apache-2.0
"""Read the results of superbench, which are files in JSON.

``results.json`` of a rank is a list of benchmarks: ``{"name": "nccl-bw:nvlink", "return_code": 0,
"raw_data": {"raw_output_allreduce": ["# nThread 1 ..."]}, "result": {"return_code": [0],
"allreduce_8589934592_busbw": [480.13], ...}, ...}``. The raw data have the program's own output, or
the time of each step of a model in ms. ``results-summary.jsonl`` has a line for each node:
``{"nccl-bw:nvlink/allreduce_8589934592_busbw": 480.13, ..., "node": "node-0"}``.
"""

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from llmb.contract.metrics import LOWER, STEP_TIME, Better, MetricSpec
from llmb.contract.samples import Environment, NcclTable, Samples, Step
from llmb.core.scan import open_log, plain, read_chunks
from llmb.measure import suites
from llmb.measure.result import Metrics

NAME = "superbench"
RAW_LOG = "rawdata.log"  # beside results.json, with log_raw_data
_START = re.compile(rb"\s*\[\s*(?:null|\{\s*\"name\"|\])")
_HEAD = 64
_MOST = 1 << 24  # bytes of a file
_CODE = "return_code"
_TRAIN_TIME = re.compile(r"(?:.+_)?train_step_time")
_NCCL = re.compile(r"([a-z]+)_(?:\d+_\d+:)?(\d{1,18})_(busbw|algbw|time)")
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
}
_REDUCES = frozenset({"allreduce", "reducescatter", "reduce"})
# By the end of a metric's name, its unit and the direction in which it is better.
_UNITS: tuple[tuple[re.Pattern[str], str, Better], ...] = (
    (re.compile(r"step_time(?:_\d+)?$"), "ms", LOWER),
    (re.compile(r"(?:busbw|algbw|_bw)$"), "GB/s", "higher"),
    (re.compile(r"\d_time$"), "us", LOWER),  # of a message size
    (re.compile(r"throughput(?:_\d+)?$"), "samples/s", "higher"),
    (re.compile(r"tflops$"), "TFLOPS", "higher"),
)
ReadText = Callable[[BinaryIO], Samples]


def samples_of_results(path: Path, stream: BinaryIO, read_text: ReadText) -> Samples | None:
    """Return the content of a file of superbench, None for any other. Leaves it at its start.

    The results of all ranks of a benchmark are one. ``read_text`` reads the output of a program as
    a log.
    """
    if path.name == suites.SUPERBENCH_SUMMARY:
        return _of_summary(stream)
    if _START.match(_beginning(stream, _HEAD)) is None:
        return None
    first = _benchmarks(_beginning(stream, _MOST))
    if first is None:
        return None
    other_logs = [other for other in suites.ranks_beside(path) if other != path]
    ranks = [first, *filter(None, (_benchmarks(_beginning_at(other)) for other in other_logs))]
    read = [benchmark for rank in ranks for benchmark in rank]
    samples = read_text(io.BytesIO(_output(path, first)))
    if not samples.steps:
        steps = _steps(first)
        samples = replace(samples, steps=steps, last=len(steps) - 1 if steps else samples.last)
    if samples.nccl_table is None:
        samples = _with_table(samples, read)
    values = _values(read)
    if samples.nccl_table is not None:  # has the same by size
        values = {name: numbers for name, numbers in values.items() if not _NCCL.fullmatch(name)}
    has_any = values or samples.nccl_table is not None
    faults = list(_faults(read)) or ([] if has_any else ["the file has no results"])
    return replace(
        samples,
        framework=samples.framework or NAME,
        figures={name: tuple(all_) for name, all_ in values.items()},
        failed="; ".join(faults[:3]) or None,
    )


def _beginning(stream: BinaryIO, size: int) -> bytes:
    """Return the first bytes, of a damaged file in gzip those before the damage. Rewinds it."""
    data = bytearray()
    for chunk in read_chunks(stream, size):
        data += chunk
        if len(data) >= size:
            break
    stream.seek(0)
    return bytes(data[:size])


def _beginning_at(path: Path) -> bytes:
    """Return the content of a file, compressed or not, empty if it cannot be read."""
    try:
        with open_log(path) as stream:
            return _beginning(stream, _MOST)
    except OSError:
        return b""


def _benchmarks(data: bytes) -> list[dict[str, Any] | None] | None:
    """Return the benchmarks of a file, None for one that failed without a result.

    None for any other file, also for one that is cut off, or larger than _MOST.
    """
    if len(data) >= _MOST:
        return None  # it takes memory, and is cut off here
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, list):
        return None
    if not all(item is None or (isinstance(item, dict) and "result" in item) for item in raw):
        return None
    return raw


def _output(path: Path, benchmarks: Iterable[dict[str, Any] | None]) -> bytes:
    """Return what the programs of the benchmarks printed."""
    texts = [
        text
        for benchmark in filter(None, benchmarks)
        for values in _mapping(benchmark.get("raw_data")).values()
        if isinstance(values, list)
        for text in values
        if isinstance(text, str)
    ]
    if texts:
        return "\n".join(texts).encode("utf-8", "replace")
    return _beginning_at(path.with_name(RAW_LOG))


def _steps(benchmarks: Iterable[dict[str, Any] | None]) -> tuple[Step, ...]:
    """Return the steps of the only model that was trained, none if several were.

    Of several runs of the model, the last one counts.
    """
    trained = [
        runs[-1]
        for benchmark in filter(None, benchmarks)
        for name, runs in _mapping(benchmark.get("raw_data")).items()
        if _TRAIN_TIME.fullmatch(name) and isinstance(runs, list) and runs
    ]
    if len(trained) != 1 or not isinstance(trained[0], list):
        return ()
    times = [_number(time) for time in trained[0]]
    # -1 fills the place of what a rank did not measure
    if not times or not all(time is not None and time > 0 for time in times):
        return ()
    return tuple(
        Step(iteration=number, step_time=time / 1000)
        for number, time in enumerate(times)
        if time is not None
    )


def _with_table(samples: Samples, benchmarks: Iterable[dict[str, Any] | None]) -> Samples:
    """Add the bus bandwidths of a benchmark without the output of nccl-tests."""
    operations: dict[str, dict[str, dict[int, float]]] = {}
    for benchmark in filter(None, benchmarks):
        for name, values in _mapping(benchmark.get("result")).items():
            match = _NCCL.fullmatch(name)
            numbers = [*_numbers(values)] if isinstance(values, list) else []
            if match is not None and numbers:
                value = math.fsum(numbers) / len(numbers)  # of all runs
                sizes = operations.setdefault(match[1], {}).setdefault(match[3], {})
                sizes[int(match[2])] = max(value, sizes.get(int(match[2]), 0.0))
    if len(operations) != 1:  # none, or several operations
        return samples
    ((operation, kinds),) = operations.items()
    busbw, algbw = kinds.get("busbw", {}), kinds.get("algbw", {})
    if not busbw:
        return samples
    largest = max(busbw)
    table = NcclTable(
        busbw=tuple(busbw.items()),
        ended=True,
        reduces=operation in _REDUCES,
        factor=busbw[largest] / algbw[largest] if algbw.get(largest) else None,
    )
    environment: Environment = replace(
        samples.environment, operation=_OPERATIONS.get(operation, operation)
    )
    return replace(samples, nccl_table=table, environment=environment)


def _values(benchmarks: Iterable[dict[str, Any] | None]) -> dict[str, list[float]]:
    """Return the values of each metric, of all ranks and runs.

    If several benchmarks are in one file, such as models, a metric's name begins with its own.
    """
    read = list(filter(None, benchmarks))
    several = len({benchmark.get("name") for benchmark in read}) > 1
    values: dict[str, list[float]] = {}
    for benchmark in read:
        place = f"{str(benchmark.get('name')).rpartition('/')[2]}_" if several else ""
        for name, numbers in _mapping(benchmark.get("result")).items():
            if name != _CODE and isinstance(numbers, list):
                values.setdefault(_metric(place + name), []).extend(_numbers(numbers))
    return {name: numbers for name, numbers in values.items() if numbers}


def _faults(benchmarks: Iterable[dict[str, Any] | None]) -> Iterator[str]:
    """Yield each benchmark that failed, once."""
    codes = dict.fromkeys(
        (None, None) if benchmark is None else (benchmark.get("name"), _code(benchmark))
        for benchmark in benchmarks
    )
    for name, code in codes:
        if name is None and code is None:
            yield "a benchmark of superbench has no result; sb-exec.log says why"
        elif code != 0:
            yield f"superbench's {plain(str(name), 80)} ended with return code {code}"


def _code(benchmark: Mapping[str, Any]) -> float | None:
    code = benchmark.get(_CODE)
    return code if isinstance(code, int) else _first(_mapping(benchmark.get("result")).get(_CODE))


def _of_summary(stream: BinaryIO) -> Samples | None:
    """Return the values of all nodes in a summary, None for any other file."""
    data = _beginning(stream, _MOST)
    values: dict[str, list[float]] = {}
    hosts, faults = list[str](), list[str]()
    for line in data.splitlines():
        try:
            node = json.loads(line)
        except (ValueError, RecursionError):
            continue  # of a file that is cut off
        if not isinstance(node, dict) or not isinstance(node.get("node"), str):
            return None
        hosts.append(plain(node["node"], 80))
        for name, value in node.items():
            number = _number(value)
            if number is None:
                continue
            if re.search(rf"(?:^|/){_CODE}(?::\d+)?$", name):
                if number:
                    faults.append(f"{plain(name, 80)} is {number:g} on {hosts[-1]}")
            else:
                values.setdefault(_metric(re.sub(r":\d+$", "", name)), []).append(number)
    if not hosts:
        return None
    return Samples(
        framework=NAME,
        environment=Environment(hosts=tuple(dict.fromkeys(hosts))),
        figures={name: tuple(all_) for name, all_ in values.items()},
        failed="; ".join(faults[:3]) or None,
    )


def with_figures(metrics: Metrics, samples: Samples) -> Metrics:
    """Add the values that a suite reports: the mean and deviation over ranks, runs and nodes.

    The first one is the headline if there is no other. No verdict is about them.
    """
    if not samples.figures:
        return metrics
    from statistics import fmean, pstdev  # takes 3 ms, which few logs need

    measured = {}
    for name, values in samples.figures.items():
        unit, better = unit_of(name)
        spec = MetricSpec(name=name, unit=unit, better=better, judged=False)
        measured[name] = spec.measured(fmean(values), pstdev(values), len(values))
    headline = metrics.headline
    if headline == STEP_TIME and not metrics.has_figures:
        headline = next(iter(measured))
    return replace(metrics, measured={**measured, **metrics.measured}, headline=headline)


def unit_of(name: str) -> tuple[str, Better]:
    """Return the unit of a metric of superbench, empty if its name does not show it."""
    units = ((unit, better) for pattern, unit, better in _UNITS if pattern.search(name))
    return next(units, ("", "higher"))


def _metric(name: str) -> str:
    """Return a metric's name with letters, digits and _."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return word if word[:1].isalpha() else f"metric_{word}"


def _mapping(raw: Any) -> dict[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _first(values: Any) -> float | None:
    return next(_numbers(values), None) if isinstance(values, list) else None


def _numbers(values: Iterable[Any]) -> Iterator[float]:
    return (number for value in values if (number := _number(value)) is not None)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number and math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None
