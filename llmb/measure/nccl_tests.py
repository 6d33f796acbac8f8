# SPDX-License-Identifier: Apache-2.0
"""Tables of nccl-tests and rccl-tests in a log: the bus bandwidth by message size.

``8589934592 2147483648 float sum -1 31308 274.36 480.13 0 31310 274.35 480.11 0`` has the size in
bytes, and time (us), algorithm and bus bandwidth (GB/s) and wrong values, out of place and in
place. The figure is the highest bus bandwidth of the large messages: the average that the program
prints also has messages of a few bytes. With several types or operations (``-d all``, ``-o all``) a
size has several rows, and its bandwidth is that of the best. With ``-J FILE`` it writes the same as
JSON.
"""

import contextlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from llmb.contract.metrics import STEP_TIME, MetricSpec
from llmb.contract.samples import Environment, NcclTable, Samples
from llmb.core.scan import Hit, Line, needle, plain, strip_escapes
from llmb.measure.result import Metrics

TABLE = needle("#wrong")  # twice in the heading: of both places
DEVICE, START = needle("#  Rank ", b"["), needle("# Collective test starting:")
BUSBW = "busbw"
_LARGE = 16  # messages of at least this part of the largest one are large
_NUMBER = rb"(\d{1,15}(?:\.\d{1,9})?(?:e[+]\d\d)?)"
_PLACE = (
    rb"\s+" + _NUMBER + rb"\s+" + _NUMBER + rb"\s+" + _NUMBER + rb"\s+(?:" + _NUMBER + rb"|N/A)"
)
_EACH_ITERATION = rb"(?:(?:\s+[\d.e+]{1,12}){4})?"  # with -I: minimum, maximum, p99, deviation
_ROW = re.compile(
    rb"(?:^|\s)(\d{1,18})\s+\d{1,18}\s+\w{1,20}\s+(?P<redop>\w{1,20})\s+-?\d{1,6}"
    + _PLACE
    + _EACH_ITERATION
    + _PLACE
    + _EACH_ITERATION
    + rb"(?:\s+[\d-]{10}\s+[\d:.]{8,15})?\s*$"  # with -S: the time
)
_REPORT = b'{"version":'
_MOST = 1 << 26  # bytes of a report
_END = b"# Avg bus bandwidth"
_DEVICE = re.compile(
    rb"#  Rank\s{1,8}(?P<rank>\d{1,6}) .{0,80}? on\s{1,20}(?P<host>[\w.-]{1,253}) device\s{1,8}"
    rb"\d{1,4} \[[\w:.]{1,20}\] (?P<gpu>[^\r\n]{1,80})"
)
_START = re.compile(rb"# Collective test starting:\s{1,8}(\S{1,1024})")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_OPERATION = b"none"


def environment_of(text: bytes, line: Line) -> Environment:
    """Return what one line of the heading shows, found by the ``text`` of DEVICE or START."""
    after = b"" if line.cut else strip_escapes(line.after)
    if text == START.text:
        match = _START.match(after)
        return Environment(operation="" if match is None else _operation(match[1].decode()))
    match = _DEVICE.match(after)
    if match is None:
        return Environment()
    return Environment(
        hosts=(match["host"].decode(),),
        world_size=int(match["rank"]) + 1,
        gpus=(plain(match["gpu"]),),
    )


def _operation(program: str) -> str:
    """Return ``all_reduce`` of ``/opt/all_reduce_perf_mpi`` and of ``AllReduce``."""
    name = program.rsplit("/", 1)[-1].removesuffix("_mpi").removesuffix("_perf")
    return plain(_CAPITAL.sub("_", name).lower(), 40)


def table_at(hit: Hit) -> NcclTable:
    """Return the table whose heading is at ``hit``. Lines of NCCL may be between its rows."""
    rows, wrong, ended = dict[int, float](), list[int](), False
    reduces, factor = False, None
    for line in hit.block.behind(hit.at).splitlines():
        if ended := _END in line:
            break
        row = _ROW.search(strip_escapes(line).strip(b"\0"))  # holes of a file of two writers
        if row is None:
            continue
        size, out_of_place, in_place = int(row[1]), float(row[5]), float(row[9])
        rows[size] = max(out_of_place, in_place, rows.get(size, 0.0))
        reduces = row["redop"] != _NO_OPERATION
        factor = out_of_place / float(row[4]) if float(row[4]) else None
        if any(count is not None and float(count) for count in (row[6], row[10])):
            wrong.append(size)
    return NcclTable(
        busbw=tuple(rows.items()),
        wrong=tuple(dict.fromkeys(wrong)),
        ended=ended,
        reduces=reduces,
        factor=factor,
    )


def samples_of_report(stream: BinaryIO) -> Samples | None:
    """Return the content of a JSON report, None for any other file. Leaves it at its start."""
    data: Any = None
    # EOFError and zlib.error are of a damaged log in gzip, whose other readers report it
    with contextlib.suppress(ValueError, RecursionError, EOFError, zlib.error):
        if stream.read(len(_REPORT)) == _REPORT:
            data = json.loads(_REPORT + stream.read(_MOST))
    stream.seek(0)
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, list):
        return None
    rows, wrong = dict[int, float](), list[int]()
    for row in results:
        size = row.get("size") if isinstance(row, dict) else None
        places = [row[name] for name in ("out_of_place", "in_place") if _is_place(row, name)]
        if isinstance(size, int) and places:
            values = [float(place["bus_bw"]) for place in places]
            rows[size] = max(*values, rows.get(size, 0.0))
            if any(place.get("nwrong") for place in places):
                wrong.append(size)
    table = NcclTable(
        busbw=tuple(rows.items()),
        wrong=tuple(dict.fromkeys(wrong)),
        ended="end_time" in data,
    )
    return Samples(nccl_table=table, environment=_environment_of_report(data))


def _environment_of_report(data: dict[str, Any]) -> Environment:
    config, args = data.get("config"), data.get("args")
    devices = config.get("devices") if isinstance(config, dict) else None
    ranks = (
        [rank for rank in devices if isinstance(rank, dict)] if isinstance(devices, list) else []
    )
    hosts, gpus = (
        tuple(dict.fromkeys(plain(rank[name]) for rank in ranks if isinstance(rank.get(name), str)))
        for name in ("hostname", "device_info")
    )
    program = args[0] if isinstance(args, list) and args else None
    return Environment(
        hosts=hosts,
        gpus=gpus,
        world_size=len(ranks) or None,
        operation=_operation(program) if isinstance(program, str) else "",
    )


def _is_place(row: Any, name: str) -> bool:
    place = row.get(name) if isinstance(row, dict) else None
    return isinstance(place, dict) and isinstance(place.get("bus_bw"), int | float)


def with_table(metrics: Metrics, samples: Samples, declared: Sequence[MetricSpec] = ()) -> Metrics:
    """Add the bus bandwidths of a log whose only figures are in its table.

    Wrong values make any measurement invalid. ``declared`` are the metrics of the run's workload.
    """
    table = samples.nccl_table
    if table is None or not table.busbw:
        return metrics
    names = ", ".join(map(_in_words, table.wrong[:3]))
    wrong = (f"wrong values in messages of {names}",) if table.wrong else ()
    metrics = replace(metrics, invalid=(*metrics.invalid, *wrong))
    if metrics.has_figures or metrics.headline not in (STEP_TIME, BUSBW):
        return metrics
    sizes = sorted(table.busbw, reverse=True)
    large = [value for size, value in sizes if size * _LARGE >= sizes[0][0]]
    specs = {spec.name: spec for spec in declared}
    spec = specs.get(BUSBW, MetricSpec(name=BUSBW, unit="GB/s"))
    measured = {BUSBW: spec.measured(max(large), None, 0)}
    for size, value in sizes:
        each = MetricSpec(name=f"{BUSBW}_{_in_words(size)}", unit="GB/s", judged=False)
        measured[each.name] = each.measured(value, None, 0)
    return replace(metrics, measured={**measured, **metrics.measured}, headline=BUSBW)


def _in_words(size: int) -> str:
    """``8G``, ``512M``, or the number of bytes."""
    for letter, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor}{letter}"
    return str(size)
