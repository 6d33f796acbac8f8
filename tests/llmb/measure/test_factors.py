# SPDX-License-Identifier: Apache-2.0
"""Factors after numbers: 12K tokens/s is 12,000, and 480 G of a metric in GB/s is refused."""

from pathlib import Path

import pytest

from llmb.contract.formats import ParseSpec
from llmb.core.units import factor_after
from llmb.measure.log_lines import UnitMismatchError
from llmb.measure.log_reader import read_log

LINE = "llmb step {}/1 rate={}\n"


def value(folder: Path, text: str, unit: str = "tokens/s", end: str = "\n") -> float | None:
    path = folder / "log"
    path.write_text(LINE.format(0, text).rstrip("\n") + end, encoding="utf-8")
    spec = ParseSpec(metrics=("rate",), metric_units={"rate": unit} if unit else {})
    return next((step.values.get("rate") for step in read_log(path, spec).steps), None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12K tokens/s", 12_000),
        ("97.9k", 97_900),
        ("1.5 M", 1.5e6),
        ("1.5M tokens/s", 1.5e6),
        ("2G", 2e9),
        ("3 T", 3e12),
        ("4Ki", 4096),
        ("4 Mi tokens", 4 * 2**20),
        ("1Gi", 2**30),
        ("1.5B tokens", 1.5e9),
        ("1.5 B tokens", 1.5e9),
        ("12", 12),
        ("12 K=3", 12),  # another key
        ("12 Kelvin", 12),
        ("12 Models", 12),
        ("12 Max", 12),
    ],
)
def test_a_factor_after_a_number_is_read(text: str, number: float, tmp_path: Path) -> None:
    assert value(tmp_path, text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["480 G", "480G", "480 K x"])
def test_a_factor_of_a_metric_with_a_dimension_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnitMismatchError, match=r"rate is logged in [GK], but its unit is GB/s"):
        value(tmp_path, text, "GB/s")


def test_a_factor_that_the_end_of_the_file_cuts(tmp_path: Path) -> None:
    """It may be the beginning of KB."""
    assert value(tmp_path, "12K", end="") is None


def test_bytes_are_no_billion() -> None:
    assert (factor_after(b"12 B", 2), factor_after(b"12B", 2), factor_after(b"12 GB", 2)) == (
        1,
        1,
        1,
    )


def test_a_pattern_reads_a_factor(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("done 1 rate 12.5K tokens/s\n")
    spec = ParseSpec(
        needle="done ",
        iteration=r"done (?P<i>\d+)",
        patterns={"rate": r"rate (?P<value>[\d.]+)"},
        metrics=("rate",),
        metric_units={"rate": "tokens/s"},
        source="p",
    )
    assert read_log(path, spec).steps[0].values == {"rate": 12_500}


@pytest.mark.parametrize(
    ("text", "unit", "in_megabytes"),
    [
        ("123.4k", "kB/s", 0.1234),
        ("123.4K", "kB/s", 0.1234),
        ("123.4k", "B/s", 0.1234),
        ("123.4kB/s", "kB/s", 0.1234),
        ("123.4", "kB/s", 0.1234),
        ("2 Mi", "MiB/s", 2.097152),
        ("2G", "B/s", 2000),
    ],
)
@pytest.mark.parametrize(
    "pattern", [r"bw=(?P<value>[\d.]+)", r"bw=(?P<value>[\d.]+) ?(?P<unit>\S*)"]
)
def test_a_factor_is_the_prefix_of_a_stated_unit(
    pattern: str, text: str, unit: str, in_megabytes: float, tmp_path: Path
) -> None:
    """fio and others print only the prefix."""
    assert written(tmp_path, text, unit, pattern) == pytest.approx([in_megabytes])


@pytest.mark.parametrize(("text", "unit"), [("123.4k", "MB/s"), ("1M", "kB/s"), ("1k", "KiB/s")])
def test_a_factor_that_is_another_prefix_is_refused(text: str, unit: str, tmp_path: Path) -> None:
    with pytest.raises(UnitMismatchError, match=f"is logged in [kM], but its unit is {unit}"):
        written(tmp_path, text, unit, r"bw=(?P<value>[\d.]+)")


def written(folder: Path, text: str, unit: str, pattern: str) -> list[float]:
    """Return what a benchmark without steps reads of ``bw=TEXT``, in MB/s."""
    path = folder / "log"
    path.write_text(f"write: bw={text}\n")
    spec = ParseSpec(
        patterns={"write": pattern},
        units={"write": unit},
        metrics=("write",),
        metric_units={"write": "MB/s"},
        source="p",
    )
    return [step.values["write"] for step in read_log(path, spec).steps]
