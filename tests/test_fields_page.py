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

from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.core.tables import to_json
from llmb.judge.compare import to_data, with_published
from llmb.measure.columns import report
from llmb.measure.result import SUCCESS, ReferenceValue, Verdict
from llmb_testing.results import result_of

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
def tables() -> dict[str, dict[str, str]]:
    """The type of each field, by the line above its table."""
    text = (DOCS / "json.md").read_text("utf-8")
    blocks = re.findall(
        r"([^\n]+)\n\n\| field \| type \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\|\n)+)", text
    )
    return {
        title: dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", block, re.MULTILINE))
        for title, block in blocks
    }


KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


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


def test_what_is_printed_is_on_the_page(tables: dict[str, dict[str, str]]) -> None:
    own = Settings(workload="w", model_size="s", dtype="bf16", gpu_type=None, scale=8)
    value = {
        "experiment": "e",
        "path": "p",
        "status": SUCCESS,
        "window": Window(11, 44),
        "time_mean_seconds": 2.0,
    }
    reference = ReferenceValue(
        release="1",
        window="11-44",
        step_time_s=2.0,
        source="s",
        metric="step_time",
        value=2.0,
        unit="s",
    )
    result = result_of({**value, "configuration": own, "steps": 50, "reference": reference})
    assert result.verdict == Verdict(reference=reference)
    printed = json.loads(to_json(report([result])))
    (row,) = printed["results"]
    compared = json.loads(to_json(to_data(with_published([result]), "published")))
    pairs = [
        (row, tables["Each of `results` has:"]),
        (row["metrics"]["step_time"], tables["Each of `metrics`:"]),
        (row["reference"], tables["`reference`:"]),
        (row["configuration"], tables["`configuration`:"]),
        (printed["analysis"], tables["`analysis`:"]),
        (printed["summary"], tables["`summary`:"]),
        (compared, tables["`llmb-run compare --format json` prints:"]),
        (compared["comparisons"][0], tables["Each of `comparisons` has:"]),
    ]
    for found, known in pairs:
        assert list(found) == list(known)
        assert [name for name, value in found.items() if not fits(value, known[name])] == []
