# SPDX-License-Identifier: Apache-2.0
"""Objects of `results --format json` with all outcomes and with texts that need escapes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

Row = dict[str, Any]


def a_row(experiment: str, ratio: float | None = 1.0, **changes: Any) -> Row:
    """The object of a run of training, with the keys that exports read."""
    number = 1.0 if ratio is None else ratio
    row: Row = {
        "experiment": experiment,
        "status": "Success",
        "reason": None,
        "verdict": "PASS",
        "verdict_reason": "98 % of the reference",
        "ratio": ratio,
        "pooled_ratio": None,
        "run": f"run-{experiment}",
        "session": "2026-11-26a",
        "headline": "step_time",
        "configuration": {
            "workload": "pretrain_llama3.1",
            "model_size": "8b",
            "dtype": "bf16",
            "gpu_type": "h100",
            "scale": 16,
        },
        "metrics": {
            "step_time": {"mean": 2.0 / number, "unit": "s"},
            "mfu": {"mean": 0.4 * number, "unit": "fraction"},
            "busbw": {"mean": 480.0 * number, "unit": "GB/s"},
            "watts_per_gpu": {"mean": 650.0, "unit": "W/GPU"},
            "latency": {"mean": 12.0, "unit": "us"},
        },
        "nodes": [
            {
                "name": "n1",
                "telemetry": {
                    "sm_clock_mhz": {"median": 1755.0, "p5": 1740.0},
                    "power_w": {"mean": 640.0, "max": 700.0},
                    "energy_j": 1.5e6,
                    "temperature_c": {"max": 71.0},
                    "throttle": {"sw_power_cap": 0.25},
                    "ecc_uncorrected": 0,
                    "remapped_rows": None,
                    "seconds": 60.0,
                    "in_window": True,
                },
            },
            {"name": "n2", "telemetry": None},
        ],
    }
    return row | changes


ODD = 'a "quoted"\\ 50 %: one,\ntwo | <b>three</b> \N{EURO SIGN} \r\x1b[31m'


@pytest.fixture
def make_row() -> Callable[..., Row]:
    return a_row


@pytest.fixture
def data() -> Mapping[str, Any]:
    """Results with every status and every verdict."""
    rows = [
        a_row("good"),
        a_row("slow", 0.9, verdict="FAIL", verdict_reason=ODD),
        a_row("slower", 0.8, verdict="FAIL", pooled_ratio=0.81),
        a_row("doubtful", 0.97, verdict="WARN"),
        a_row("fast", 1.2, verdict="SUSPICIOUS"),
        a_row("unclear", 0.97, verdict="INCONCLUSIVE"),
        a_row("wrong", None, verdict="INVALID", reason="the loss is not a number"),
        a_row("new", None, verdict="NO_REFERENCE"),
        *(
            a_row(status, None, status=status, verdict=None, verdict_reason=None, reason=ODD)
            | {"metrics": {}, "nodes": []}
            for status in ("Failed", "Cancelled", "Running", "Pending", "Unknown")
        ),
        a_row(ODD, verdict=None, run=None, session=None, configuration=None),
    ]
    session = {"id": "2026-11-26a", "created": "2026-11-26T12:00:00+00:00"}
    return {"schema_version": 1, "sessions": [session], "results": rows}
