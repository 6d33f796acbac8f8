# SPDX-License-Identifier: Apache-2.0
"""The CTRF report, validated with CTRF's own schema: a copy of the file in npm's ctrf 0.3.0."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llmb_export.ctrf import render
from llmb_export.results import Results, Times

SCHEMA = Path(__file__).with_name("ctrf") / "ctrf-schema-0.0.json"
DIGEST = "742dee4cffda469902a9c30c4a87b0b7000d59d2ee502dcccb12ec471cea96a2"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    content = SCHEMA.read_bytes()
    assert hashlib.sha256(content).hexdigest() == DIGEST
    schema = json.loads(content)
    jsonschema.Draft7Validator.check_schema(schema)
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    return jsonschema.Draft7Validator(schema, format_checker=checker)


def test_every_outcome(validator: jsonschema.Draft7Validator, data: Mapping[str, Any]) -> None:
    times = {  # the first one waited for 60 s
        "run-good": Times(submitted=100.0, ran=3.5, ended=163.5),
        "run-slow": Times(submitted=50.0),
        "run-slower": Times(submitted=60.0, ran=5.0),
    }
    report = json.loads(render(Results(data=data, times=times)))
    validator.validate(report)
    results = report["results"]
    tests = {test["name"].partition(" [")[0]: test for test in results["tests"]}
    assert {name: test["status"] for name, test in tests.items() if name.isalpha()} == {
        "good": "passed",
        "slow": "failed",
        "slower": "failed",
        "doubtful": "passed",
        "fast": "passed",
        "unclear": "skipped",
        "wrong": "failed",
        "new": "skipped",
        "Failed": "failed",
        "Cancelled": "failed",
        "Running": "pending",
        "Pending": "pending",
        "Unknown": "other",
    }
    good = tests["good"]
    assert (good["start"], good["stop"], good["duration"]) == (100_000, 163_500, 3500)
    assert (tests["slow"]["start"], tests["slow"]["duration"]) == (50_000, 0)
    assert tests["wrong"]["message"] == "98 % of the reference"
    summary = results["summary"]
    counts = ("passed", "failed", "skipped", "pending", "other")
    assert summary["tests"] == len(data["results"]) == sum(summary[name] for name in counts)
    assert tests["slower"]["duration"] == 5000
    assert not any("stop" in tests[name] for name in ("slow", "slower"))
    assert summary["start"] == 50_000


def test_a_run_that_failed_has_its_verdict(make_row: Any) -> None:
    rows = [make_row("e", None, status="Failed", verdict=word) for word in ("INVALID", None)]
    tests = json.loads(render(Results(data={"results": rows})))["results"]["tests"]
    assert [test["rawStatus"] for test in tests] == ["INVALID", "Failed"]
    assert [test["status"] for test in tests] == ["failed", "failed"]


def test_no_results(validator: jsonschema.Draft7Validator) -> None:
    validator.validate(json.loads(render(Results(data={"results": []}))))


def test_the_schema_refuses_a_wrong_status(
    validator: jsonschema.Draft7Validator, data: Mapping[str, Any]
) -> None:
    report = json.loads(render(Results(data=data)))
    report["results"]["tests"][0]["status"] = "PASS"
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(report)
