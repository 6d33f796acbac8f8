# SPDX-License-Identifier: Apache-2.0
"""Tables of nccl-tests, as common.cu of release 2.13 and later prints them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.samples import NcclTable, Samples, Step
from llmb.judge.judge import judge
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Metrics, Result
from llmb.measure.run_result import has_ended

HEAD = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid  12345 on    node001 device  0 [0x1b] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROW = "{:12d}  {:12d}  float   sum   -1  {:8.2f}  274.36  {:6.2f}  {:>5}  31310  274.35  {:6.2f}  {:>5}\n"
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 159.200 \n#\n"
INFO = "node001:7:9 [0] NCCL INFO comm 0x576e rank 1 nranks 8 cudaDev 0 busId 2000\n"
BANDWIDTHS = {8: 0.01, 1048576: 40.5, 1073741824: 478.1, 4294967296: 480.9, 8589934592: 480.1}


def table(wrong: dict[int, int] | None = None, check: str = "0") -> str:
    return "".join(
        INFO
        + ROW.format(
            size,
            size // 4,
            31.0,
            value,
            (wrong or {}).get(size, check),
            max(value - 0.3, 0.0),
            check,
        )
        for size, value in BANDWIDTHS.items()
    )


def read(folder: Path, log: str) -> Result:
    path = folder / "all_reduce.txt"
    path.write_text(log, encoding="utf-8")
    (result,) = judge([result_of_log(path, LogReader())], [])
    return result


@pytest.mark.parametrize("prefix", ["", " 0: ", "[1,0]<stdout>: "])
def test_the_figure_is_the_peak_at_large_sizes(prefix: str, tmp_path: Path) -> None:
    log = "".join(prefix + line for line in (HEAD + table() + END).splitlines(keepends=True))
    got = read(tmp_path, log)
    assert (got.status, got.metrics.headline, got.verdict.word) == (
        "Success",
        "busbw",
        "NO_REFERENCE",
    )
    assert got.metrics.mean("busbw") == 480.9
    assert got.metrics.mean("busbw_8G") == 480.1
    assert got.metrics.mean("busbw_1M") == 40.5
    assert got.metrics.mean("busbw_8") == 0.01
    assert len(got.metrics.measured) == 6


def test_a_small_message_is_never_the_figure(tmp_path: Path) -> None:
    """In a cache, a message may be faster than the network."""
    log = HEAD + table().replace(" 40.50", "900.00") + END
    assert read(tmp_path, log).metrics.mean("busbw") == 480.9


def test_wrong_values_are_invalid(tmp_path: Path) -> None:
    got = read(tmp_path, HEAD + table({1048576: 3}) + END)
    assert (got.verdict.word, got.metrics.invalid) == (
        "INVALID",
        ("wrong values in messages of 1M",),
    )


def test_values_that_are_not_checked_are_valid(tmp_path: Path) -> None:
    got = read(tmp_path, HEAD + table(check="N/A") + END)
    assert (got.metrics.invalid, got.metrics.mean("busbw")) == ((), 480.9)


def test_a_table_without_its_end_has_failed(tmp_path: Path) -> None:
    got = read(tmp_path, HEAD + table() + "x: Test NCCL failure common.cu:303 'unhandled error'\n")
    assert (got.status, got.reason, got.verdict.word) == (
        "Failed",
        "the table of nccl-tests has no end",
        None,
    )


def test_steps_beside_a_table_without_its_end_are_the_measurement() -> None:
    """The last step of a program that prints both tells that the program has ended."""
    table = NcclTable(busbw=((8, 1.0),))
    steps = (Step(iteration=0, step_time=2.0, values={"busbw": 480.0}),)
    metrics = Metrics(headline="busbw")
    assert has_ended(Samples(steps=steps, nccl_table=table), metrics)
    assert not has_ended(Samples(nccl_table=table), metrics)
    assert has_ended(Samples(nccl_table=replace(table, ended=True)), metrics)


def test_the_last_of_several_tables(tmp_path: Path) -> None:
    other = (HEAD + table() + END).replace("480.90", "390.25")
    assert read(tmp_path, HEAD + table() + END + other).metrics.mean("busbw") == 480.6


# Bus bandwidths of 512M and of 8G, of each type in the order of its rows.
SEVERAL_TYPES = {
    "float": (450.0, 480.0),
    "half": (460.0, 200.0),
    "double": (440.0, 300.0),
}
BEST_OF_TYPES = (480.0, 460.0, 480.0)


def bandwidths(result: Result) -> tuple[float | None, ...]:
    return tuple(map(result.metrics.mean, ("busbw", "busbw_512M", "busbw_8G")))


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_of_several_types_of_a_size(order: int, tmp_path: Path) -> None:
    """With -d all, each type has its rows, and a size is there once for each type."""
    rows = [
        ROW.format(size, size // 4, 31.0, value, "0", value - 1, "0").replace("float", kind)
        for kind, values in [*SEVERAL_TYPES.items()][::order]
        for size, value in zip((2**29, 2**33), values, strict=True)
    ]
    assert bandwidths(read(tmp_path, HEAD + "".join(rows) + END)) == BEST_OF_TYPES


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_of_several_types_of_a_report(order: int, tmp_path: Path) -> None:
    rows = [
        {"size": size, "type": kind, "out_of_place": {"bus_bw": value, "nwrong": 0}}
        for kind, values in [*SEVERAL_TYPES.items()][::order]
        for size, value in zip((2**29, 2**33), values, strict=True)
    ]
    text = json.dumps({"version": 2, "results": rows, "end_time": "x"}, separators=(",", ":"))
    assert bandwidths(read(tmp_path, text)) == BEST_OF_TYPES


def test_wrong_values_of_several_types_name_the_size_once(tmp_path: Path) -> None:
    got = read(tmp_path, HEAD + 2 * table({1048576: 3}) + END)
    assert got.metrics.invalid == ("wrong values in messages of 1M",)


@pytest.mark.parametrize("count", ["1", "1e+06", "1.5e+09"])
def test_a_count_of_wrong_values_may_have_an_exponent(count: str, tmp_path: Path) -> None:
    got = read(tmp_path, HEAD + table(check=count) + END)
    assert got.verdict.word == "INVALID"
    assert got.metrics.mean("busbw") == 480.9


def test_columns_of_each_iteration_and_of_the_time(tmp_path: Path) -> None:
    """With -I and -S."""
    more = "   31.05   35.20   34.90    1.52"
    row = (
        "  8589934592    2147483648     float     sum      -1  1.3e+05  274.36  480.13       0"
        f"{more}  1.3e+05  274.35  480.11       0{more}  2026-11-22 09:41:00\n"
    )
    assert read(tmp_path, HEAD + row + END).metrics.measured["busbw"].mean == 480.13


def report(wrong: str = "0.000000", end: str = ',"end_time":"2026-11-22 09:41:00"') -> str:
    """As util.cu writes it with -J."""
    rows = ",".join(
        f'{{"size":{size},"count":{size // 4},"type":"float","redop":"sum","root":"    -1",'
        f'"out_of_place":{{"time":31.000000,"alg_bw":1.000000,"bus_bw":{value:f},"nwrong":{wrong}}},'
        '"in_place":{"time":"nan","alg_bw":"nan","bus_bw":"nan","nwrong":null},'
        '"actual_iterations":20,"experiment_name":"all_reduce"}'
        for size, value in BANDWIDTHS.items()
    )
    return (
        '{"version":2,"start_time":"2026-11-22 09:40:00","args":["all_reduce_perf"],"env":["A=b"],'
        f'"nccl_version":22803,"results":[{rows}]{end}}}'
    )


def test_a_report_in_json(tmp_path: Path) -> None:
    got = read(tmp_path, report())
    assert (got.status, got.metrics.mean("busbw"), got.metrics.mean("busbw_1G")) == (
        "Success",
        480.9,
        478.1,
    )
    assert read(tmp_path, report("3.000000")).verdict.word == "INVALID"
    assert read(tmp_path, report("null")).verdict.word == "NO_REFERENCE"
    assert read(tmp_path, report(end="")).status == "Failed"
    assert read(tmp_path, report()[:-40]).status == "Unknown"


def test_parse_shows_the_bandwidth(tmp_path: Path, llmb_here: Callable[..., Any]) -> None:
    log = tmp_path / "all_reduce.txt"
    log.write_text(HEAD + table() + END, encoding="utf-8")
    done = llmb_here("parse", log)
    assert done.returncode == 0, done.stderr
    assert "480.9" in done.stdout
