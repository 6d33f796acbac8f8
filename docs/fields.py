# SPDX-License-Identifier: Apache-2.0
"""Writes json.md, the fields of llmb's JSON, and its JSON Schemas from the code and fields.yaml;
--check: exit code 1 if one is stale.
"""

import dataclasses
import json
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmb.cli.jobs import runs_table
from llmb.cli.list_ import HERE
from llmb.cli.submit import cost, preview
from llmb.contract import settings
from llmb.contract.finding import Finding
from llmb.contract.job import Job, Training
from llmb.contract.metrics import Measured
from llmb.contract.record import Session
from llmb.contract.samples import Straggler, Telemetry
from llmb.contract.software import Software
from llmb.contract.window import Window
from llmb.core import yamlfile
from llmb.judge import compare, scaling
from llmb.measure import checkpoints, columns, facts, result, uneven
from llmb.measure.fabric import Fabric
from llmb.measure.failure_causes import Cause
from llmb.measure.losses import LossCurve
from llmb.measure.statistics import Statistics
from llmb.measure.sustained import Sustained
from llmb.plan import listing
from llmb.plan.published import Figure
from llmb.plan.recompute import Disagreement
from llmb_accept.judge import Item, PhaseOutcome
from llmb_accept.running import RowCost
from llmb_testing.generated import write

PAGE = Path(__file__).with_name("json.md")
MEANINGS = Path(__file__).with_name("fields.yaml")
SCHEMAS = Path(__file__).with_name("schemas")

HEAD = """\
# JSON

<!-- Written by `python docs/fields.py` from the code and fields.yaml: edit those. -->

The fields of `--format json`, for programs; ignore those that you do not know. A field is always
there, and null if its value is unknown, unless its meaning says otherwise. Times are ISO 8601 with
an offset.

Each output has a JSON Schema (draft 2020-12), listed at the [end](#schemas). Objects that are
printed by `llmb-run` have a `schema_version`, now 1, except for `jobs show`. It grows when a field
is removed or changes its meaning or its type; a new field changes nothing. Lists and the objects
of `llmb-install` have no place for it, and the same rule.
"""
RESULTS = """\
## Results

`llmb-run results --format json` and `llmb-run parse --format json` print `{"schema_version": 1,
"analysis": ..., "sessions": [...], "results": [...], "summary": ...}`; the `sessions` of `parse` are empty.
[Results](results.md) explains how llmb measures and judges.
Each of `results` has:
"""
JOBS = """\
## Dry run

`--dry-run --format json` prints `{"jobs": [...], "schema_version": 1}` on standard output, and
everything else on standard error.
Each job has:
"""
BUDGET = """\
With `--budget`, the jobs are those that it picks, and next to `jobs` is `budget`:
"""
RUNS = """\
## Runs

`llmb-run jobs --format json` prints a list. Each run has:
"""
LIST = """\
## Workloads

`llmb-run list --format json` prints a list. Each size of a workload has:
"""
ROWS_OF_WORKLOAD = """\
`llmb-run list -w W --format json` prints a list. Each row of the workload has:
"""
FIGURES = """\
`llmb-run list --published --format json` prints a list. Each published figure has:
"""
CHECKED = """\
`llmb-run list --published --check --format json` prints a list of printed values that do not
follow from the step time. Each has the fields of its figure, and:
"""
COMPARISONS = """\
## Comparisons

`llmb-run compare --format json` prints:
"""
ROWS = "Each of `comparisons` has:"
SCALING = "`llmb-run compare --scaling --format json` prints a list. Each row has:"

#: The text before each table whose types are in fields.yaml, by the key of its meanings.
MORE = {
    "submitted": """\
## Submitted jobs

`submit`, `submit-all`, `single` and `bulk` with `--format json` print a list. Each run has:
""",
    "run": "## A run\n\n`llmb-run jobs show RUN --format json` prints:",
    "run.before": "Each of `before`:",
    "baselines": """\
## Baselines

`llmb-run baseline list --format json` prints a list. Each baseline has:
""",
    "plugins": """\
## Plugins

`llmb-run plugins list --format json` prints a list. Each plugin has:
""",
    "nodes_check": """\
## Nodes

`llmb-run nodes check --format json` and `nodes show --check RUN` print:
""",
    "nodes_check.nodes": "Each of `nodes` of a check:",
    "measure": "Each of `measures`:",
    "nodes_history": "`llmb-run nodes show --format json` prints:",
    "nodes_history.nodes": "Each of `nodes` of `nodes show`:",
    "suspects": "`llmb-run nodes suspects --format json` prints:",
    "suspects.nodes": "Each of `nodes` of `nodes suspects`:",
    "suspects.nodes.runs": "`runs` of a suspect:",
    "diagnosis": "`llmb-run nodes diagnose --format json` prints:",
    "diagnosis.findings": "Each of `findings` of a diagnosis:",
    "diagnosis.rounds": "Each test of `rounds`:",
    "diagnosis_plan": "`llmb-run nodes diagnose --dry-run --format json` prints:",
    "diagnosis_plan.case": "`healthy` and `one_fault`:",
    "certificate": """\
## Acceptance

`accept`, `accept verify` and `accept show` with `--format json` print the certificate:
""",
    "certificate.phases": "Each of `phases`:",
    "certificate.phases.items": "Each of `items` of a phase:",
    "certificate.archive": "`archive`:",
    "acceptance_plan": "`llmb-run accept PLAN --dry-run --format json` prints:",
    "acceptance_plan.rows": "Each of `rows`:",
    "install_status": "## Installation\n\n`llmb-install status --format json` prints:",
    "install_step": "Each of `steps` that are finished:",
    "install_verify": "`llmb-install verify --format json` prints:",
    "install_fault": "Each of `faults`:",
    "install_plan": "`llmb-install` and `llmb-install add` with `--dry-run --format json` print:",
    "install_plan.steps": "Each of `steps` of a dry run:",
    "install_outcome": "`llmb-install` and `llmb-install add` with `--format json` print:",
    "install_import": "`llmb-install import --format json` prints:",
    "install_import.items": "Each of `items` of an import:",
    "doctor": "`llmb-install doctor --format json` prints:",
    "doctor.findings": "Each of `findings` of the doctor:",
}
#: The classes of objects in MORE whose fields are those of a dataclass.
CLASSES = {
    "certificate.phases": PhaseOutcome,
    "certificate.phases.items": Item,
    "acceptance_plan.rows": RowCost,
    "doctor.findings": Finding,
}
_SUBMISSION = ("submitted", "dry-run", "results")
_CERTIFICATE = ("certificate",)
#: The schemas of each command with ``--format json``.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "llmb-run accept run": ("certificate", "acceptance-plan"),
    "llmb-run accept show": _CERTIFICATE,
    "llmb-run accept verify": _CERTIFICATE,
    "llmb-run baseline list": ("baselines",),
    "llmb-run baseline show": ("results",),
    "llmb-run bulk": _SUBMISSION,
    "llmb-run compare": ("comparisons", "scaling"),
    "llmb-run jobs": ("runs",),
    "llmb-run jobs list": ("runs",),
    "llmb-run jobs show": ("run",),
    "llmb-run list": ("workloads", "workload-rows", "published", "published-check"),
    "llmb-run nodes check": ("nodes-check", "dry-run"),
    "llmb-run nodes diagnose": ("diagnosis", "diagnosis-plan"),
    "llmb-run nodes show": ("nodes-history", "nodes-check"),
    "llmb-run nodes suspects": ("suspects",),
    "llmb-run parse": ("results",),
    "llmb-run plugins": ("plugins",),
    "llmb-run plugins list": ("plugins",),
    "llmb-run results": ("results",),
    "llmb-run single": _SUBMISSION,
    "llmb-run submit": _SUBMISSION,
    "llmb-run submit-all": _SUBMISSION,
    "llmb-install": ("install-outcome", "install-plan"),
    "llmb-install add": ("install-outcome", "install-plan"),
    "llmb-install doctor": ("doctor",),
    "llmb-install import": ("install-import",),
    "llmb-install status": ("install-status",),
    "llmb-install verify": ("install-verify",),
}

WORDS = {str: "text", int: "integer", float: "number", bool: "boolean", Any: "any"}

Field = tuple[str, str]  # a name and its type in words; empty: the type is in fields.yaml


def word(hint: Any) -> str:
    """A type hint in words: ``number or null``, ``list of text``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return (
            f"{word(kinds[0])} or null"
            if len(kinds) < len(typing.get_args(hint))
            else word(kinds[0])
        )
    if hint is Window:
        return "[first, last]"
    if typing.get_origin(hint) is tuple:
        kinds = list(typing.get_args(hint))
        if kinds[1:] == [...]:
            return f"list of {'objects' if dataclasses.is_dataclass(kinds[0]) else word(kinds[0])}"
        return "[low, high]"
    if typing.get_origin(hint) is typing.Literal:
        return "text"
    return WORDS.get(hint, "object")


def of_class(cls: type, names: Iterable[str] = ()) -> list[Field]:
    """The fields of a dataclass, all or those with these ``names``."""
    hints = typing.get_type_hints(cls)
    names = names or [own.name for own in dataclasses.fields(cls) if "internal" not in own.metadata]
    return [(name, word(hints[name])) for name in names]


def hint_of(cls: type, name: str) -> Any:
    """The type hint of a field or a property."""
    found = getattr(cls, name, None)
    if isinstance(found, property):
        return typing.get_type_hints(found.fget)["return"]
    return typing.get_type_hints(cls)[name]


def of_results() -> Iterator[Field]:
    """The fields of a result."""
    parts: Mapping[str, type] = typing.get_type_hints(result.Result)
    for name, place in columns.FIELDS.items():
        if place.part in ("mean", "std"):  # of a metric, where it was measured
            yield name, word(float | None)
        else:
            yield (
                name,
                word(hint_of(parts[place.part] if place.part else result.Result, place.name)),
            )


def of_jobs() -> Iterator[Field]:
    """The fields of a job of a dry run."""
    own, training = typing.get_type_hints(Job), typing.get_type_hints(Training)
    for name in preview.FIELDS:
        kind = (
            word(own[name])
            if name in own
            else word(training[name]).removesuffix(" or null") + " or null"
        )
        yield name, "" if name == "time_limit" else kind
    names = (
        "script",
        "estimate",
        "parameters",
        "switches",
        "framework",
        "release",
        "rows_of",
        "dotted",
        "pair",
    )
    yield from ((name, "") for name in names)


def of_sessions() -> list[Field]:
    """The fields of a session, whose time is text."""
    return [(name, "" if name == "created" else kind) for name, kind in of_class(Session)]


def untyped(names: Iterable[str]) -> list[Field]:
    """Fields whose types are in fields.yaml."""
    return [(name, "") for name in names]


def _of_metric_verdict() -> list[Field]:
    """Return the fields that a metric's verdict adds, by their names in JSON."""
    kinds = dict(of_class(result.MetricVerdict))
    return [(key, kinds[name]) for key, name in columns.METRIC_VERDICT.items()]


def sections() -> list[tuple[str, str, Sequence[Field]]]:
    """The text before each table, the key of its meanings, and its fields."""
    empty = columns.report([])
    return [
        (RESULTS, "results", list(of_results())),
        ("Each of `sessions`:", "sessions", of_sessions()),
        ("Each of `metrics`:", "metrics", [*of_class(Measured), *_of_metric_verdict()]),
        ("Each of `causes`:", "causes", of_class(facts.VerdictCause)),
        ("`reference`:", "reference", of_class(result.ReferenceValue)),
        ("`configuration`:", "configuration", of_class(settings.Settings, settings.COMPARED)),
        ("`configuration.software`:", "configuration.software", of_class(Software)),
        ("`cause`:", "cause", of_class(Cause)),
        ("`statistics`:", "statistics", of_class(Statistics)),
        ("`losses`:", "losses", of_class(LossCurve)),
        ("`sustained`:", "sustained", of_class(Sustained)),
        (
            "`sustained_verdict`:",
            "sustained_verdict",
            of_class(result.SustainedVerdict),
        ),
        ("`log`:", "log", of_class(facts.LogFacts)),
        ("Each of `log.uneven`:", "log.uneven", of_class(uneven.Uneven)),
        ("`log.fabric`:", "log.fabric", of_class(Fabric)),
        ("Each of `log.stragglers`:", "log.stragglers", of_class(Straggler)),
        ("Each of `nodes`:", "nodes", of_class(facts.NodeFacts)),
        ("`nodes.telemetry`:", "nodes.telemetry", of_class(Telemetry)),
        ("Each of `log.checkpoints`:", "log.checkpoints", of_class(facts.CheckpointTime)),
        ("`checkpoints`:", "checkpoints", of_class(checkpoints.Checkpoints)),
        ("`checkpoints.saved`:", "checkpoints.saved", of_class(checkpoints.Saved)),
        ("`checkpoints.loaded`:", "checkpoints.loaded", of_class(checkpoints.Loaded)),
        ("`analysis`:", "analysis", untyped(empty["analysis"])),
        ("`summary`:", "summary", untyped(empty["summary"])),
        (JOBS, "jobs", list(of_jobs())),
        ("`estimate`:", "estimate", untyped(cost.ESTIMATE_FIELDS)),
        ("Next to `jobs` is `session`:", "session", untyped(preview.SESSION_FIELDS)),
        (BUDGET, "budget", untyped(cost.BUDGET_FIELDS)),
        ("Each of `budget.skipped`:", "budget.skipped", untyped(cost.SKIPPED_FIELDS)),
        (RUNS, "runs", untyped(runs_table.FIELDS)),
        (
            LIST,
            "list",
            untyped(
                [*(own.key for own in listing.SIZES), "metrics", "parameters", "installed", "here"]
            ),
        ),
        ("`here`:", "here", untyped(HERE)),
        (ROWS_OF_WORKLOAD, "workload_row", _of_more("workload_row")),
        (FIGURES, "published", [*of_class(Figure), *untyped(("unit", "step_time_s"))]),
        (
            CHECKED,
            "published_check",
            [field for field in of_class(Disagreement) if field[0] != "figure"],
        ),
        (COMPARISONS, "comparisons", untyped(compare.to_data([], ""))),
        (ROWS, "comparison", of_class(compare.Comparison)),
        (SCALING, "scaling", untyped(column.key for column in scaling.COLUMNS)),
        *((text, key, _of_more(key)) for key, text in MORE.items()),
    ]


def _of_more(key: str) -> list[Field]:
    """Return the fields of an object in MORE, of its class if it has one."""
    if (cls := CLASSES.get(key)) is not None:
        return of_class(cls)
    return untyped(yamlfile.load(MEANINGS).data[key])


def commands_table() -> str:
    """Return the schemas of each command as Markdown."""
    lines = ["## Schemas", "", "| command | schemas |", "|---|---|"]
    for command, names in COMMANDS.items():
        links = ", ".join(f"[{name}](schemas/{name}.json)" for name in names)
        lines.append(f"| `{command}` | {links} |")
    return "\n".join(lines)


def table(fields: Sequence[Field], meanings: Mapping[str, str | list[str]]) -> str:
    """The fields as Markdown. Raises ValueError for a field without a meaning, or a meaning without
    a field.
    """
    names = [name for name, _ in fields]
    if wrong := sorted(set(names) ^ set(meanings)):
        raise ValueError(f"docs/fields.yaml and the code differ in: {', '.join(wrong)}")
    lines = ["| field | type | meaning |", "|---|---|---|"]
    for name, kind in fields:
        own = meanings[name]
        kind, meaning = (kind, own) if isinstance(own, str) else own
        lines.append(f"| `{name}` | {kind} | {meaning} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    meanings = yamlfile.load(MEANINGS).data
    parts = [HEAD.strip("\n")]
    for text, key, fields in sections():
        parts += [text.strip("\n"), table(fields, meanings[key])]
    return "\n\n".join([*parts, commands_table()]) + "\n"


Schema = dict[str, Any]
#: The table of each field that has objects with a table of their own, by table and field.
_TABLES: Mapping[tuple[str, str], str] = {
    ("results", "reference"): "reference",
    ("results", "cause"): "cause",
    ("results", "configuration"): "configuration",
    ("results", "statistics"): "statistics",
    ("results", "log"): "log",
    ("results", "checkpoints"): "checkpoints",
    ("results", "causes"): "causes",
    ("results", "nodes"): "nodes",
    ("metrics", "reference"): "reference",
    ("configuration", "software"): "configuration.software",
    ("log", "uneven"): "log.uneven",
    ("log", "fabric"): "log.fabric",
    ("log", "stragglers"): "log.stragglers",
    ("log", "checkpoints"): "log.checkpoints",
    ("nodes", "telemetry"): "nodes.telemetry",
    ("checkpoints", "saved"): "checkpoints.saved",
    ("checkpoints", "loaded"): "checkpoints.loaded",
    ("jobs", "estimate"): "estimate",
    ("budget", "skipped"): "budget.skipped",
    ("list", "here"): "here",
    ("comparisons", "comparisons"): "comparison",
    ("comparison", "reference"): "reference",
    ("run", "before"): "run.before",
    ("nodes_check", "nodes"): "nodes_check.nodes",
    ("nodes_history", "nodes"): "nodes_history.nodes",
    ("suspects", "nodes"): "suspects.nodes",
    ("suspects.nodes", "runs"): "suspects.nodes.runs",
    ("diagnosis", "findings"): "diagnosis.findings",
    ("diagnosis", "rounds"): "diagnosis.rounds",
    ("diagnosis_plan", "healthy"): "diagnosis_plan.case",
    ("diagnosis_plan", "one_fault"): "diagnosis_plan.case",
    ("certificate", "phases"): "certificate.phases",
    ("certificate", "archive"): "certificate.archive",
    ("certificate.phases", "items"): "certificate.phases.items",
    ("acceptance_plan", "rows"): "acceptance_plan.rows",
    ("install_status", "steps"): "install_step",
    ("install_outcome", "steps"): "install_step",
    ("install_outcome", "faults"): "install_fault",
    ("install_verify", "faults"): "install_fault",
    ("install_plan", "steps"): "install_plan.steps",
    ("install_plan", "faults"): "install_fault",
    ("install_import", "items"): "install_import.items",
    ("doctor", "findings"): "doctor.findings",
}
_KINDS: Mapping[str, Schema] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "any": {},
    "[first, last]": {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
    },
    "[low, high]": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
}
_OPTIONAL = "; only "  # in the meaning of a field that is not always there


def kind_schema(kind: str, table_name: str | None) -> Schema:
    """The schema of a type in words, whose objects are those of a table. Raises KeyError."""
    if kind == "list of number or null":  # the list is there, and its items may be null
        return {"type": "array", "items": kind_schema("number or null", table_name)}
    if (nullable := kind.removesuffix(" or null")) != kind:
        return {"anyOf": [kind_schema(nullable, table_name), {"type": "null"}]}
    if (item := kind.removeprefix("list of ")) != kind:
        return {"type": "array", "items": kind_schema(item.removesuffix("s"), table_name)}
    if kind == "object" and table_name is not None:
        return {"$ref": f"#/$defs/{table_name}"}
    return dict(_KINDS[kind])


def table_schema(key: str, fields: Sequence[Field], meanings: Mapping[str, Any]) -> Schema:
    """The schema of the objects that a table describes."""
    properties = {}
    for name, kind in fields:
        entry = meanings[name]
        words, meaning = (kind, entry) if isinstance(entry, str) else entry
        schema = kind_schema(words, _TABLES.get((key, name)))
        properties[name] = {**schema, "description": meaning}
    if key == "results":
        properties["metrics"]["additionalProperties"] = {"$ref": "#/$defs/metrics"}
    if "measures" in properties:
        properties["measures"]["additionalProperties"] = {"$ref": "#/$defs/measure"}
    if "schema_version" in properties:
        properties["schema_version"]["const"] = columns.SCHEMA_VERSION
    required = [name for name, own in properties.items() if _OPTIONAL not in own["description"]]
    return {"type": "object", "properties": properties, "required": required}


def schemas() -> dict[str, Schema]:
    """The schema of each output by the name of its file."""
    all_meanings = yamlfile.load(MEANINGS).data
    tables = {key: table_schema(key, fields, all_meanings[key]) for _, key, fields in sections()}

    figure, checked = tables["published"], tables["published_check"]
    for part, own in checked.items():
        checked[part] = own if part == "type" else _joined(figure[part], own)

    def items(key: str) -> Schema:
        return {"type": "array", "items": {"$ref": f"#/$defs/{key}"}}

    def one_of(**parts: Schema) -> Schema:
        version = {"schema_version": {"const": columns.SCHEMA_VERSION}}
        return {"type": "object", "properties": {**version, **parts}}

    def ref(key: str) -> Schema:
        return {"$ref": f"#/$defs/{key}"}

    results = one_of(
        analysis=ref("analysis"),
        sessions=items("sessions"),
        results=items("results"),
        summary=ref("summary"),
    )
    results["required"] = [*results["properties"]]
    dry_run = one_of(jobs=items("jobs"), session=ref("session"), budget=ref("budget"))
    dry_run["required"] = ["schema_version", "jobs", "session"]
    roots = {
        "results": results,
        "dry-run": dry_run,
        "runs": items("runs"),
        "workloads": items("list"),
        "workload-rows": items("workload_row"),
        "published": items("published"),
        "published-check": items("published_check"),
        "comparisons": ref("comparisons"),
        "scaling": items("scaling"),
        "submitted": items("submitted"),
        "run": ref("run"),
        "baselines": items("baselines"),
        "plugins": items("plugins"),
        "nodes-check": ref("nodes_check"),
        "nodes-history": ref("nodes_history"),
        "suspects": ref("suspects"),
        "diagnosis": ref("diagnosis"),
        "diagnosis-plan": ref("diagnosis_plan"),
        "certificate": ref("certificate"),
        "acceptance-plan": ref("acceptance_plan"),
        "install-status": ref("install_status"),
        "install-verify": ref("install_verify"),
        "install-plan": ref("install_plan"),
        "install-outcome": ref("install_outcome"),
        "install-import": ref("install_import"),
        "doctor": ref("doctor"),
    }
    return {
        name: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"llmb {name}, version {columns.SCHEMA_VERSION}",
            **root,
            "$defs": _used(root, tables),
        }
        for name, root in roots.items()
    }


def _joined(one: Any, other: Any) -> Any:
    """Two mappings, or two lists, as one."""
    return {**one, **other} if isinstance(one, dict) else [*one, *other]


def _used(schema: Schema, tables: Mapping[str, Schema]) -> dict[str, Schema]:
    """The tables that a schema refers to, directly or by another table."""
    used: dict[str, Schema] = {}
    texts = [json.dumps(schema)]
    while texts:
        for key in re.findall(r'"#/\$defs/([\w.]+)"', texts.pop()):
            if key not in used:
                used[key] = tables[key]
                texts.append(json.dumps(tables[key]))
    return dict(sorted(used.items()))


def main(arguments: Sequence[str]) -> int:
    """Write page and schemas; with --check, only compare, and return 1 if one is stale."""
    texts = {PAGE: page()} | {
        SCHEMAS / f"{name}.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        for name, schema in schemas().items()
    }
    return write(texts, "fields", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
