# SPDX-License-Identifier: Apache-2.0
"""Gives advice on the reason why a workload waits, from advice.yaml."""

import re
from functools import lru_cache
from pathlib import Path

import yaml


@lru_cache(maxsize=1024)  # the jobs of a poll share few reasons
def advice(reason: str) -> str:
    """Return the first advice whose pattern is in ``reason``, or ""."""
    return next((row["do"] for row in _rows() if re.search(row["when"], reason)), "")


@lru_cache(maxsize=1)
def _rows() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = yaml.safe_load(
        Path(__file__).with_name("advice.yaml").read_text(encoding="utf-8")
    )
    return rows
