# SPDX-License-Identifier: Apache-2.0
"""The table of facts and measures: checks.yaml, changed by a site's file, for one GPU type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmb import api

CHECKS = Path(__file__).with_name("checks.yaml")
GPUS = "GPUS"
RULES = ("equals", "at_least", "at_most", "same")
_FACT = {"ask", "source", "rule", "severity", "fix", "types"}
_MEASURE = {"unit", "minimum", "spread", "command", "types"}
#: The measures that the program has itself. Others are commands of a site that print a number.
MEASURES = ("matrix_product", "memory", "host_to_device", "device_to_host", "all_reduce", "disk")
_COLLECTIVE = {"seconds", "limit", "command"}
_TOP = {"facts", "measures", "collective", "hang_seconds", "patience"}

Table = dict[str, Any]


def table_for(gpu_type: str, gpus_per_node: int, site_file: Path | None = None) -> Table:
    """Return the table that a check of this GPU type is given. Raises UsageError."""
    table = read(CHECKS)
    if site_file is not None:
        table = merged(table, read(site_file))
    for name, row in table["facts"].items():
        if not row.get("ask"):
            raise _fault(site_file or CHECKS, f"facts.{name}", "has no ask", "ask: command TEXT")
    for name, row in table["measures"].items():
        if name not in MEASURES and not row.get("command"):
            hint = f"add command: TEXT, or use {', '.join(MEASURES)}"
            raise _fault(site_file or CHECKS, f"measures.{name}", "has no command", hint)
    facts = {name: _of_type(row, gpu_type, gpus_per_node) for name, row in table["facts"].items()}
    measures = {name: _measure(row, gpu_type) for name, row in table["measures"].items()}
    return {**table, "facts": facts, "measures": measures}


def read(path: Path) -> Table:
    """Return a file of facts and measures. Raises UsageError for what is no such file."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{path} cannot be read: {' '.join(str(error).split())}"
        hint = "plugins.llmb-nodes.checks in cluster_config.yaml names it"
        raise api.UsageError(message, hint=hint, code="file-unreadable", value=str(path)) from error
    if not isinstance(data, dict):
        raise _fault(path, "", "is no mapping", "write facts: and measures:")
    _check_keys(path, "", data, _TOP)
    collective = data.setdefault("collective", {})
    if not isinstance(collective, dict):
        raise _fault(path, "collective", "is no mapping", f"its keys are {', '.join(_COLLECTIVE)}")
    _check_keys(path, "collective", collective, _COLLECTIVE)
    for section, keys in (("facts", _FACT), ("measures", _MEASURE)):
        rows = data.setdefault(section, {})
        if not isinstance(rows, dict):
            raise _fault(path, section, "is no mapping", "write NAME: {...} for each row")
        for name, row in rows.items():
            place = f"{section}.{name}"
            if row is None:  # a site removes a row
                continue
            if not isinstance(row, dict):
                raise _fault(
                    path, place, "is no mapping", f"its keys are {', '.join(sorted(keys))}"
                )
            _check_keys(path, place, row, keys)
            _check_rule(path, place, row.get("rule") or {})
    return data


def merged(table: Table, site: Table) -> Table:
    """Return ``table`` with the rows of a site. Its keys override those of a row, null omits it."""
    sections = {}
    for section in ("facts", "measures"):
        rows = dict(table[section])
        for name, row in site[section].items():
            if row is None:
                rows.pop(name, None)
            else:
                rows[name] = {**rows.get(name, {}), **row}
        sections[section] = rows
    sections["collective"] = {**table["collective"], **site["collective"]}
    return {**table, **site, **sections}


def _of_type(row: Mapping[str, Any], gpu_type: str, gpus_per_node: int) -> Table:
    rule = (row.get("types") or {}).get(gpu_type) or row.get("rule") or {}
    resolved = {key: gpus_per_node if value == GPUS else value for key, value in rule.items()}
    return {
        "ask": str(row["ask"]),
        "source": row.get("source", ""),
        "rule": resolved,
        "severity": row.get("severity", "note"),
        "fix": row.get("fix", ""),
    }


def _measure(row: Mapping[str, Any], gpu_type: str) -> Table:
    values = {**row, **((row.get("types") or {}).get(gpu_type) or {})}
    return {key: value for key, value in values.items() if key != "types"}


def _check_keys(path: Path, place: str, row: Mapping[str, Any], keys: set[str]) -> None:
    for key in row:
        if key not in keys:
            named = f"{place}.{key}" if place else str(key)
            raise _fault(path, named, "is not a key here", f"use {', '.join(sorted(keys))}")


def _check_rule(path: Path, place: str, rule: Any) -> None:
    if not isinstance(rule, dict) or any(key not in RULES for key in rule):
        raise _fault(path, f"{place}.rule", "is not a rule", f"use one of {', '.join(RULES)}")


def _fault(path: Path, place: str, problem: str, hint: str) -> Exception:
    message = f"{path}: {place} {problem}" if place else f"{path} {problem}"
    return api.UsageError(message, hint=hint, code="checks-invalid", key=place, value=str(path))
