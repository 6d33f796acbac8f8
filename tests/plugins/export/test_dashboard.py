# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard, read with the types of Grafana's own library; its queries have data."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from llmb_export.openmetrics import render
from llmb_export.results import Results

TEXT = (files("llmb_export") / "dashboard.json").read_text("utf-8")


def queries(value: Any) -> Iterator[str]:
    """Every expression of PromQL in the dashboard."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "expr":
                yield part
            yield from queries(part)
    elif isinstance(value, list):
        for part in value:
            yield from queries(part)


def test_grafanas_types_lose_nothing() -> None:
    board = Dashboard.from_json(json.loads(TEXT))
    assert json.loads(JSONEncoder().encode(board)) == json.loads(TEXT)
    assert len(board.panels or []) == len([*queries(json.loads(TEXT))])


def test_every_query_has_data(data: Mapping[str, Any], make_row: Any) -> None:
    training = {
        name: {"mean": 1.0, "unit": unit}
        for name, unit in (
            ("model_tflops_per_gpu", "TFLOPS/GPU"),
            ("tokens_per_second_per_gpu", "tokens/s/GPU"),
        )
    }
    rows = [*data["results"], make_row("more", metrics=training)]
    text = render(Results(data={**data, "results": rows}))
    names = {family.name for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    queried = {
        name for query in queries(json.loads(TEXT)) for name in re.findall(r"llmb_\w+", query)
    }
    assert queried <= names
