# SPDX-License-Identifier: Apache-2.0
"""Tests that the quick conversion of llmb's own files never means anything else than the careful
one.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord
from llmb.contract.state import JobState
from llmb.core import own_files, typed
from llmb.core.yamlfile import Document
from llmb.measure.reader import LogReader
from llmb.measure.summary import Summary

_RECORDS = Path(__file__).parents[1] / "run" / "records"
STATE: dict[str, Any] = {
    "state": "COMPLETED",
    "reason": "",
    "exit_code": 0,
    "started": 1.5,
    "ended": 9,
    "new": [1],
}
READER = typed.to_data(LogReader(spec=ParseSpec(metrics=("busbw",))))
SUMMARY: dict[str, Any] = {
    "llmb_version": "0.1.0",
    "made_from": {"state.json": [185, 1795369995815366084], "work": [1795369995815366084]},
    "peak_tflops": 989.0,
    "reader": READER,
    "result": {
        "experiment": "e",
        "path": "e/log-e.out",
        "status": "Success",
        "window": [4, 18],
        "metrics": {
            "busbw": {"mean": 480.5, "std": 0, "n": 15, "unit": "GB/s", "better": "higher"}
        },
        "configuration": {
            "workload": "w",
            "model_size": "s",
            "dtype": "bf16",
            "gpu_type": "h100",
            "scale": 8,
        },
        "log": {"hosts": ["a", "b"], "checkpoints": []},
    },
}
WRONG = [
    None,
    True,
    -1,
    0,
    1.5,
    1e400,
    float("nan"),
    2**70,
    -(2**70),
    "",
    "x",
    "9",
    "1e3",
    "~",
    "a\0b",
    [],
    [1],
    [1, -(2**70)],
    {},
    {"a": 1},
]


def careful(cls: type, data: Any) -> tuple[Any, bool]:
    """What the careful reader makes of ``data``, and whether it has no fault."""
    reader = typed._Reader(Document(name="x", data=data), is_own=True)
    try:
        found = reader.convert(cls, data, ())
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        return None, False
    return found, not reader.faults


def variants(data: Any) -> Iterator[Any]:
    """``data`` with one value somewhere in it replaced by each of WRONG, or removed."""
    for path in paths(data):
        for value in WRONG:
            changed = copy.deepcopy(data)
            at(changed, path[:-1])[path[-1]] = value
            yield changed
        changed = copy.deepcopy(data)
        del at(changed, path[:-1])[path[-1]]
        yield changed


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def paths(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, item in items:
        yield (*above, key)
        yield from paths(item, (*above, key))


def record() -> dict[str, Any]:
    (path,) = _RECORDS.rglob("llmb-run.json")
    data: dict[str, Any] = json.loads(path.read_text())
    data.pop("schema_version")
    return {**data, "directory": "/runs/x"}


@pytest.mark.parametrize(
    ("cls", "data"),
    [(JobState, STATE), (Summary, SUMMARY), (RunRecord, record())],
    ids=["a state", "a summary", "a record"],
)
def test_it_agrees_with_the_careful_reader_or_leaves_the_data_to_it(
    cls: type, data: dict[str, Any]
) -> None:
    expected, right = careful(cls, data)
    assert right
    assert own_files.converter(cls)(data) == expected  # nothing usual is left to the careful one
    refused = 0
    for changed in variants(data):
        try:
            found = own_files.converter(cls)(changed)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            refused += 1
            continue
        assert careful(cls, changed) == (found, True), changed
    assert refused


def test_the_classes_are_the_same() -> None:
    found = own_files.converter(Summary)(SUMMARY)
    assert type(found.result.window) is tuple
    assert type(found.result.metrics["busbw"].std) is float
    assert found.reader == LogReader(spec=ParseSpec(metrics=("busbw",)))
