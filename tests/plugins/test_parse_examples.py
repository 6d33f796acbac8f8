# SPDX-License-Identifier: Apache-2.0
"""Tests that the examples of docs/logs.md read the lines below them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.spec_checks import check_declared
from llmb.measure.log_reader import read_log

_PAGE = Path(__file__).parents[2] / "docs" / "logs.md"
_EXAMPLES = re.findall(
    r"```python\n(ParseSpec\(.*?)```\n\n```text\n(.*?)```", _PAGE.read_text(), re.DOTALL
)
# By hand, from the lines: iteration from 0, last, step time in s, other values.
EXPECTED: list[list[tuple[int, int | None, float | None, dict[str, float]]]] = [
    [(0, 49, 2.6931, {})],
    [(0, None, None, {"busbw": 480.2, "latency": 35.1})],
    [(0, 99, None, {"requests": 48.1, "p99": 0.211})],
    [(12, None, 0.53, {"busbw": 480.2})],
    [(3, 49, 2.6931, {"busbw": 480.2})],
    [(1200, 9999, 2.6931, {"requests": 1234567.5})],
    [(7, None, 2.6931, {})],
    [(0, 0, None, {"requests": 1234.5})],
    [
        (0, 1, None, {"latency": 35.1, "busbw": 480.2}),
        (1, 1, None, {"latency": 35.3, "busbw": 479.8}),
    ],
]


@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_an_example(number: int, tmp_path: Path) -> None:
    code, text = _EXAMPLES[number]
    spec: ParseSpec = eval(code, {"ParseSpec": ParseSpec})
    check_declared(spec.keys, ["busbw", "latency", "requests", "p99"], spec.patterns)
    spec = replace(
        spec, metrics=("busbw", "latency"), metric_units={"busbw": "GB/s", "latency": "us"}
    )
    log = tmp_path / "x.txt"
    log.write_text(text)
    found = read_log(log, spec)
    for step, expected in zip(found.steps, EXPECTED[number], strict=True):
        iteration, last, seconds, values = expected
        assert (step.iteration, found.last) == (iteration, last)
        assert step.values == pytest.approx(values)
        if seconds is not None:
            assert step.step_time == pytest.approx(seconds)


def test_each_example_is_tested() -> None:
    assert len(_EXAMPLES) == len(EXPECTED)


def test_the_line_that_needs_no_code(tmp_path: Path) -> None:
    (line,) = re.findall(r"```text\n(llmb step [^\n]*\n)```", _PAGE.read_text())
    log = tmp_path / "x.txt"
    log.write_text(line)
    found = read_log(log, ParseSpec(metrics=("busbw", "latency")))
    assert [(step.iteration, step.values) for step in found.steps] == [
        (3, {"busbw": 480.2, "latency": 35.1})
    ]
    assert found.last == 19
