# SPDX-License-Identifier: Apache-2.0
"""Recorded runs have the metrics of MLPerf's lines and of nccl-tests' tables, as parsed logs do."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
ROW = "  8589934592    2147483648     float     sum      -1    31308  274.36  480.13       0    31310  274.35  480.11       {wrong}\n"
TABLE = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
    + ROW
)
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 159.2 \n"
MLPERF = (
    ':::MLLOG {{"namespace": "", "time_ms": 1000000, "key": "run_start", "value": null}}\n'
    ':::MLLOG {{"namespace": "", "time_ms": 1600000, "key": "run_stop", "value": null, "metadata":'
    ' {{"status": "{status}", "samples_count": 6000}}}}\n'
)


@pytest.fixture
def result(install: Any, run: Command) -> Callable[[str], dict[str, Any]]:
    def of(log: str) -> dict[str, Any]:
        install.run("a1", install.job("nemotron4_15b", "bf16", 16), log)
        (row,) = json.loads(run("results", "--format", "json").stdout)["results"]
        return dict(row)

    return of


def test_a_table_of_nccl_tests(result: Callable[[str], dict[str, Any]]) -> None:
    row = result(TABLE.format(wrong=0) + END)
    assert (row["status"], row["headline"]) == ("Success", "busbw")
    assert row["metrics"]["busbw"]["mean"] == 480.13
    assert row["metrics"]["busbw_8G"]["mean"] == 480.13


def test_wrong_values_make_a_recorded_run_invalid(
    result: Callable[[str], dict[str, Any]],
) -> None:
    row = result(TABLE.format(wrong=3) + END)
    assert (row["verdict"], row["invalid"]) == ("INVALID", ["wrong values in messages of 8G"])


def test_a_table_without_its_end_has_failed(result: Callable[[str], dict[str, Any]]) -> None:
    assert result(TABLE.format(wrong=0))["status"] == "Failed"


@pytest.mark.parametrize(("status", "word"), [("success", "Success"), ("aborted", "Failed")])
def test_a_run_of_mlperf(status: str, word: str, result: Callable[[str], dict[str, Any]]) -> None:
    row = result(MLPERF.format(status=status))
    assert (row["status"], row["headline"]) == (word, "time_to_train")
    assert row["metrics"]["time_to_train"]["mean"] == 600
    assert row["metrics"]["samples_per_second"]["mean"] == 10
