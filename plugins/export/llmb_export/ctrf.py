# SPDX-License-Identifier: Apache-2.0
"""Results in the Common Test Report Format (https://ctrf.io): a run is a test."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from llmb_export.results import Outcome, Results, Row, outcome_of, ratio_of, reason_of, word_of

SPEC_VERSION = "0.0.0"  # of CTRF
Status = Literal["passed", "failed", "skipped", "pending", "other"]
_STATUS: Mapping[Outcome, Status] = {
    "passed": "passed",
    "warned": "passed",
    "failed": "failed",
    "undecided": "skipped",
    "open": "pending",
}


def render(results: Results) -> str:
    """Return the report as JSON."""
    tests = [_test(results, row) for row in results.rows]
    counts = Counter(test["status"] for test in tests)
    starts = [test["start"] for test in tests if "start" in test]
    now = round(time.time() * 1000)
    stops = [test.get("stop", test["start"]) for test in tests if "start" in test]
    summary = {
        "tests": len(tests),
        **{status: counts[status] for status in ("passed", "failed", "skipped", "pending")},
        "other": counts["other"],
        "start": min(starts, default=now),
        "stop": max(stops, default=now),
    }
    report = {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "reportId": str(uuid.uuid4()),
        "generatedBy": "llmb-run export ctrf",
        "results": {"tool": {"name": "llmb"}, "summary": summary, "tests": tests},
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def _test(results: Results, row: Row) -> dict[str, Any]:
    settings = row["configuration"] or {}
    suite = [word for key in ("workload", "model_size") if (word := settings.get(key))]
    run, times = row.get("run"), results.times_of(row)
    test: dict[str, Any] = {
        "testId": row["experiment"],
        "name": f"{row['experiment']} [{run}]" if run else row["experiment"],
        "status": _status(row),
        "rawStatus": word_of(row),
        "duration": 0 if times is None else round((times.ran or 0.0) * 1000),
        "suite": suite or ["log"],
        "labels": _labels(row, settings),
    }
    if run:
        test["executionId"] = run
    if reason := reason_of(row):
        test["message"] = reason
    if times is not None:
        test["start"] = round(times.submitted * 1000)
        if times.ended is not None:
            test["stop"] = round(times.ended * 1000)
    return test


def _status(row: Row) -> Status:
    """Return the status of the test. Other: its result is unknown."""
    is_known = row["status"] != "Unknown"
    return _STATUS[outcome_of(row)] if is_known else "other"


def _labels(row: Row, settings: Mapping[str, Any]) -> dict[str, Any]:
    measured = row["metrics"].get(row["headline"]) or {}
    labels = {
        "dtype": settings.get("dtype"),
        "gpu_type": settings.get("gpu_type"),
        "gpus": settings.get("scale"),
        "verdict": row["verdict"],
        "ratio": ratio_of(row),
        "metric": row["headline"] if measured else None,
        "value": measured.get("mean"),
        "unit": measured.get("unit"),
    }
    return {name: value for name, value in labels.items() if value is not None}
