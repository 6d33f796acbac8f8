# SPDX-License-Identifier: Apache-2.0
"""Tests of docs/json.md: what the commands print is on the page, and nothing else."""

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llmb.results.columns import from_json, report
from llmb.results.description import Configuration
from llmb.results.result import SUCCESS, Reference, Verdict
from llmb.stats.measure import Window
from llmb.text.tables import to_json
from llmb.verdict.compare import to_data, with_published

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fields", DOCS / "fields.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables() -> list[dict[str, str]]:
    """The tables of the page in their order: the type of each field."""
    text = (DOCS / "json.md").read_text("utf-8")
    blocks = re.findall(r"\| field \| type \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\|\n)+)", text)
    return [dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", block, re.MULTILINE)) for block in blocks]


KINDS: Mapping[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


def fits(value: Any, kind: str) -> bool:
    if value is None:
        return kind.endswith(" or null")
    word = kind.removesuffix(" or null")
    if word == "object":
        return isinstance(value, dict)
    return isinstance(value, KINDS.get(word, (list,)))


def test_the_page_is_up_to_date(script: ModuleType) -> None:
    assert (DOCS / "json.md").read_text("utf-8") == script.page()


def test_a_field_without_a_meaning_is_an_error(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="new"):
        script.table([("new", "text")], {})
    with pytest.raises(ValueError, match="gone"):
        script.table([], {"gone": "removed"})


def test_what_is_printed_is_on_the_page(tables: list[dict[str, str]]) -> None:
    own = Configuration(workload="w", model_size="s", dtype="bf16", gpu_type=None, scale=8)
    value = {"experiment": "e", "path": "p", "status": SUCCESS, "window": Window(11, 44), "time_mean_seconds": 2.0}
    reference = Reference(
        release="1", window="11-44", step_time_s=2.0, source="s", metric="step_time", value=2.0, unit="s"
    )
    result = from_json({**value, "configuration": own, "steps": 50, "reference": reference})
    assert result.verdict == Verdict(reference=reference)
    printed = json.loads(to_json(report([result])))
    (row,) = printed["results"]
    compared = json.loads(to_json(to_data(with_published([result]), "published")))
    pairs = [
        (row, tables[0]),
        (row["metrics"]["step_time"], tables[1]),
        (row["reference"], tables[3]),
        (row["configuration"], tables[4]),
        (printed["analysis"], tables[13]),
        (printed["summary"], tables[14]),
        (compared, tables[22]),
        (compared["comparisons"][0], tables[23]),
    ]
    for found, known in pairs:
        assert list(found) == list(known)
        assert [name for name, value in found.items() if not fits(value, known[name])] == []
