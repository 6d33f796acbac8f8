# SPDX-License-Identifier: Apache-2.0
"""The table of facts and measures: checks.yaml, changed by a site's file, for one GPU type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmb import api
from llmb_nodes.row_faults import GPUS, NOTE, KeyPath, faults_of

CHECKS = Path(__file__).with_name("checks.yaml")
#: The measures that the program has itself. Others are commands of a site that print a number.
MEASURES = ("matrix_product", "memory", "host_to_device", "device_to_host", "all_reduce", "disk")
_DEEPEST = 5  # keys of a path: facts, a name, types, a GPU type, a rule

Table = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFile:
    """A file of facts and measures."""

    path: Path
    table: Table
    #: The line of each key.
    lines: Mapping[KeyPath, int]

    def fault(self, path: KeyPath, problem: str, hint: str) -> Exception:
        """Return the error for the value at ``path``."""
        key = ".".join(map(str, path))
        above = path
        while above and above not in self.lines:
            above = above[:-1]
        place = f"{self.path}:{self.lines[above]}" if above else f"{self.path}"
        message = f"{place}: {key} {problem}" if key else f"{place} {problem}"
        return api.UsageError(
            message, hint=hint, code="checks-invalid", key=key, value=str(self.path)
        )


def table_for(gpu_type: str, gpus_per_node: int, site_file: Path | None = None) -> Table:
    """Return the table that a check of this GPU type is given. Raises UsageError."""
    last = read(CHECKS)
    table = last.table
    if site_file is not None:
        last = read(site_file)
        table = merged(table, last.table)
    for name, row in table["facts"].items():
        if not row.get("ask"):
            raise last.fault(("facts", name), "has no ask", "ask: command TEXT")
    for name, row in table["measures"].items():
        if name not in MEASURES and not row.get("command"):
            hint = f"add command: TEXT, or use {', '.join(MEASURES)}"
            raise last.fault(("measures", name), "has no command", hint)
    facts = {name: _of_type(row, gpu_type, gpus_per_node) for name, row in table["facts"].items()}
    measures = {name: _measure(row, gpu_type) for name, row in table["measures"].items()}
    return {**table, "facts": facts, "measures": measures}


def read(path: Path) -> ChecksFile:
    """Read a file of facts and measures. Raises UsageError for its first fault."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{path} cannot be read: {' '.join(str(error).split())}"
        hint = "plugins.llmb-nodes.checks in cluster_config.yaml names it"
        raise api.UsageError(message, hint=hint, code="file-unreadable", value=str(path)) from error
    data = api.parse_yaml(text, str(path))
    file = ChecksFile(path=path, table=data, lines=_lines_of(root))
    if root is None or not isinstance(data, dict):
        raise file.fault((), "is no mapping", "write facts: and measures:")
    for section in ("collective", "facts", "measures"):
        data.setdefault(section, {})
    for fault in faults_of(data):
        raise file.fault(fault.path, fault.problem, fault.hint)
    return file


def _lines_of(node: Any, path: KeyPath = ()) -> dict[KeyPath, int]:
    """Return the line of each key of a node of YAML, from 1."""
    lines: dict[KeyPath, int] = {}
    if node is None or node.id != "mapping" or len(path) > _DEEPEST:
        return lines
    for key, value in node.value:
        here = (*path, key.value)
        lines[here] = key.start_mark.line + 1
        lines.update(_lines_of(value, here))
    return lines


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
        "source": row.get("source") or "",
        "rule": resolved,
        "severity": row.get("severity") or NOTE,
        "fix": row.get("fix") or "",
    }


def _measure(row: Mapping[str, Any], gpu_type: str) -> Table:
    values = {**row, **((row.get("types") or {}).get(gpu_type) or {})}
    return {key: value for key, value in values.items() if key != "types"}
