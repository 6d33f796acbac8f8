# SPDX-License-Identifier: Apache-2.0
"""Results as files: exported JSON, baselines, and JUnit XML for continuous integration."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from llmb.errors import UsageError
from llmb.results.columns import from_json, report
from llmb.results.description import Configuration
from llmb.results.facts import LogFacts
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Result
from llmb.stats.measure import Window
from llmb.stats.metrics import STEP_TIME, Measured
from llmb.system import files
from llmb.text import times, typed, yamlfile
from llmb.text.names import suggest
from llmb.text.tables import escape
from llmb.verdict.compare import NO_FIGURE
from llmb.verdict.judge import BAD, INCONCLUSIVE, INVALID, NO_REFERENCE

_OLD = {"CANCELLED": CANCELLED, "LOST": UNKNOWN}  # states whose status was Failed in earlier releases
_FOLDER = Path(".llmb") / "baselines"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exported:
    """What a comparison needs of an exported result; other keys, of a newer llmb, are ignored."""

    experiment: str
    status: Literal["Success", "Failed", "Cancelled", "Running", "Pending", "Unknown"]
    path: str = ""
    reason: str | None = None
    window: tuple[int, ...] | None = None
    steps: int | None = None
    time_mean_seconds: float | None = None
    time_std_dev_seconds: float | None = None
    tokens_per_second: float | None = None
    metrics: dict[str, Measured] = field(default_factory=dict)
    headline: str = STEP_TIME
    run: str | None = None
    state: str | None = None
    configuration: Configuration | None = None
    invalid: tuple[str, ...] = ()
    log: LogFacts | None = None

    def __post_init__(self) -> None:
        if self.window is not None and len(self.window) != 2:
            raise typed.KeyFaultError("must be the first and the last iteration", "window")

    def result(self) -> Result:
        values = {own.name: getattr(self, own.name) for own in fields(_Exported)}
        status = _OLD.get(self.state or "", FAILED) if self.status == FAILED else self.status
        window = None if self.window is None else Window(*self.window)
        return from_json({**values, "status": status, "window": window})


def read_export(path: Path) -> list[Result]:
    """The results in a JSON file. Raises UsageError or InputFaults when it has none, LlmbError when it is damaged."""
    data = files.read_json(path)
    rows = data.get("results") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        hint = "write one: llmb-run results --format json > results.json"
        raise UsageError(f"{path} has no results", hint=hint, code="results-missing", value=str(path))
    document = yamlfile.Document(name=str(path), data={"results": [_known(row) for row in rows]})
    return [typed.read(_Exported, document, ("results", number)).result() for number in range(len(rows))]


_PARTS = {
    "configuration": {own.name for own in fields(Configuration)},
    "log": {own.name for own in fields(LogFacts)} - {"checkpoints", "peak_memory_bytes", "uneven"},
}


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """The row without keys that this version does not know."""
    kept = {own.name: row[own.name] for own in fields(_Exported) if own.name in row}
    for key, names in _PARTS.items():
        if isinstance(part := kept.get(key), dict):
            kept[key] = {name: part[name] for name in names if name in part}
    if isinstance(metrics := kept.get("metrics"), dict):
        names = {own.name for own in fields(Measured)}
        kept["metrics"] = {
            metric: {name: one[name] for name in names if name in one} if isinstance(one, dict) else one
            for metric, one in metrics.items()
        }
    return kept


def why_rejected(result: Result) -> str | None:
    """Why a judged result cannot be part of a baseline; None where it can."""
    if result.status != SUCCESS or result.metrics.value is None:
        words = {**NO_FIGURE, RUNNING: "has not ended", PENDING: "is waiting"}
        return ": ".join(text for text in (words.get(result.status, "measured nothing"), result.reason) if text)
    if result.verdict.word == INVALID:
        return f"INVALID: {result.verdict.reason}"
    loads = result.identity.configuration is not None and result.identity.configuration.loads
    return result.verdict.reason if loads else None


def accept_baseline(install: Path, name: str, results: Sequence[Result], now: float, *, replace: bool) -> Path:
    """Write ``results`` as the baseline ``name``, accepted at ``now``. Raises UsageError where it exists already."""
    path = _path(install, name)
    text = files.to_json({"schema_version": 1, "baseline": name, "accepted": int(now), **report(results)})
    if replace:
        files.write_text(path, text)
    elif not files.create_text(path, text):
        message, hint = f"baseline '{name}' exists already", "--replace overwrites it"
        raise UsageError(message, hint=hint, code="baseline-exists", key="NAME", value=name)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What runs are compared with: accepted ``results``, or those of an archive.

    ``called``: in texts, as ``baseline april``; ``accepted``: when it was accepted or written, ISO 8601 with an offset;
    None where that is not known.
    """

    called: str
    accepted: str | None
    results: tuple[Result, ...]

    @property
    def dated(self) -> str:
        """Its name with the day: ``baseline april (2026-04-30)``."""
        return self.called if self.accepted is None else f"{self.called} ({self.accepted[:10]})"


def read_baseline(install: Path, name: str) -> Baseline:
    """The baseline ``name``. Raises UsageError with the nearest name when there is none."""
    path = _path(install, name)
    if not path.is_file():
        known = baselines(install)
        hint = suggest(name, known) if known else "accept one: llmb-run baseline accept NAME"
        message = f"baseline '{name}' does not exist"
        raise UsageError(message, hint=hint, code="baseline-unknown", key="NAME", value=name)
    data = files.read_json(path) or {}
    return Baseline(called=f"baseline {name}", accepted=_accepted(data), results=tuple(read_export(path)))


def baselines(install: Path) -> list[str]:
    return sorted(path.stem for path in (install / _FOLDER).glob("*.json"))


def baseline_facts(install: Path, name: str) -> dict[str, Any]:
    """When a baseline was accepted (ISO 8601 with its offset), and how many runs it has."""
    path = _path(install, name)
    data = files.read_json(path) or {}
    return {"name": name, "accepted": _accepted(data), "runs": len(read_export(path)), "file": str(path)}


def _accepted(data: Any) -> str | None:
    """When the baseline in ``data`` was accepted."""
    seconds = data.get("accepted") if isinstance(data, dict) else None
    return times.iso(seconds) if isinstance(seconds, (int, float)) else None


def _path(install: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        hint = "use letters, digits, -, _ and ."
        raise UsageError(
            f"'{name}' is not a valid baseline name", hint=hint, code="name-invalid", key="NAME", value=name
        )
    return install / _FOLDER / f"{name}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitCase:
    """One test case, and why it did not pass."""

    group: str
    name: str
    outcome: Literal["passed", "failure", "error", "skipped"] = "passed"
    message: str = ""


def outcome_of(verdict: str | None) -> Literal["passed", "failure", "skipped"]:
    """The outcome of a verdict: failure when it is bad, skipped when it is undecided or nothing was compared."""
    if verdict in BAD:
        return "failure"
    return "skipped" if verdict in (INCONCLUSIVE, NO_REFERENCE) else "passed"


def junit_case(result: Result) -> JunitCase:
    """The case of a run: a failure where it failed, was cancelled or its verdict is bad, an error where its result is
    unknown, skipped where there is no verdict yet."""
    identity, verdict = result.identity, result.verdict
    group = identity.configuration.workload if identity.configuration else "log"
    name = f"{identity.experiment} [{identity.run}]" if identity.run else identity.experiment
    if result.is_open:
        return JunitCase(group=group, name=name, outcome="skipped", message=result.reason or "it has not ended")
    if result.status != SUCCESS:
        outcome: Literal["failure", "error"] = "failure" if result.status in (FAILED, CANCELLED) else "error"
        return JunitCase(group=group, name=name, outcome=outcome, message=result.reason or result.status)
    message = f"{verdict.word}: {verdict.reason}" if verdict.word else ""
    return JunitCase(group=group, name=name, outcome=outcome_of(verdict.word), message=message)


def to_junit(found: Iterable[JunitCase]) -> str:
    """The cases as one test suite. Control characters, which XML does not allow, are written as escapes."""
    found = list(found)
    count = {outcome: sum(case.outcome == outcome for case in found) for outcome in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name="llmb",
        tests=str(len(found)),
        failures=str(count["failure"]),
        errors=str(count["error"]),
        skipped=str(count["skipped"]),
    )
    for case in found:
        element = ElementTree.SubElement(suite, "testcase", classname=escape(case.group), name=escape(case.name))
        if case.outcome != "passed":
            ElementTree.SubElement(element, case.outcome, message=escape(case.message))
        elif case.message:
            ElementTree.SubElement(element, "system-out").text = escape(case.message)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
