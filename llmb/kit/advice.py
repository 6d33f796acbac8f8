# SPDX-License-Identifier: Apache-2.0
"""Advice about a scheduler's reason, by the tables of advice.yaml."""

import re
from functools import lru_cache
from pathlib import Path

from llmb.core import yamlfile


@lru_cache(maxsize=1024)  # the jobs of a poll share few reasons
def advice(table: str, reason: str) -> str:
    """Return the first advice of ``table`` whose pattern is in ``reason``, or ""."""
    return next((row["do"] for row in _tables()[table] if re.search(row["when"], reason)), "")


@lru_cache(maxsize=1)
def _tables() -> dict[str, list[dict[str, str]]]:
    file = Path(__file__).with_name("advice.yaml")
    tables: dict[str, list[dict[str, str]]] = yamlfile.load_packaged(file).data
    return tables
