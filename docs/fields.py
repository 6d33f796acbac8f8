# SPDX-License-Identifier: Apache-2.0
"""Writes json.md, the fields of llmb's JSON, from the code and fields.yaml; --check: exit code 1 if
it is stale.
"""

import dataclasses
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
from llmb.contract.job import Job, Training
from llmb.contract.metrics import Measured
from llmb.contract.record import Session
from llmb.contract.samples import Straggler, Telemetry
from llmb.contract.software import Software
from llmb.contract.window import Window
from llmb.core import yamlfile
from llmb.judge import compare, scaling
from llmb.measure import checkpoints, columns, facts, result, uneven
from llmb.measure.causes import Cause
from llmb.measure.fabric import Fabric
from llmb.measure.losses import LossCurve
from llmb.measure.statistics import Statistics
from llmb.plan import listing

PAGE = Path(__file__).with_name("json.md")
MEANINGS = Path(__file__).with_name("fields.yaml")
NAME = "docs/json.md"

HEAD = """\
# JSON

<!-- Written by `python docs/fields.py` from the code and fields.yaml: edit those. -->

The fields of `--format json`, for programs; ignore those that you do not know. A field is always
there, and null if its value is unknown, unless its meaning says otherwise. Times are ISO 8601 with
an offset.
"""
RESULTS = """\
## Results

`llmb-run results --format json` and `llmb-run parse --format json` print `{"analysis": ...,
"sessions": [...], "results": [...], "summary": ...}`; the `sessions` of `parse` are empty.
[Results](results.md) explains how llmb measures and judges.
Each of `results` has:
"""
JOBS = """\
## Dry run

`--dry-run --format json` prints `{"jobs": [...]}` on standard output, and everything else on
standard error.
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
COMPARISONS = """\
## Comparisons

`llmb-run compare --format json` prints:
"""
ROWS = "Each of `comparisons` has:"
SCALING = "`llmb-run compare --scaling --format json` prints a list. Each row has:"

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
    names = names or [own.name for own in dataclasses.fields(cls)]
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
        (COMPARISONS, "comparisons", untyped(compare.to_data([], ""))),
        (ROWS, "comparison", of_class(compare.Comparison)),
        (SCALING, "scaling", untyped(column.key for column in scaling.COLUMNS)),
    ]


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
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page; with --check, only compare, and return 1 if it is stale."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text, "utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != text:
        print(f"{NAME} is out of date; run: python docs/fields.py")
        return 1
    print(f"{NAME} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
