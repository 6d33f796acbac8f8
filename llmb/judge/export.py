# SPDX-License-Identifier: Apache-2.0
"""Results as files: exported JSON, baselines, and JUnit XML for continuous integration."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from llmb.contract.metrics import STEP_TIME, Measured
from llmb.contract.record import Session
from llmb.contract.settings import COMPARED, NOTHING, Settings
from llmb.contract.window import Window
from llmb.core import files, times, typed, yamlfile
from llmb.core.names import suggest
from llmb.core.tables import escape
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.judge.compare import NO_FIGURE
from llmb.judge.value import BAD, INCONCLUSIVE, INVALID, NO_REFERENCE
from llmb.measure.columns import from_json, report
from llmb.measure.facts import LogFacts
from llmb.measure.losses import LossCurve
from llmb.measure.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, Result
from llmb.measure.statistics import Statistics

_FOLDER = Path(".llmb") / "baselines"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exported:
    """The fields of an exported result that a comparison needs. Keys of newer llmb are ignored."""

    experiment: str
    status: Literal["Success", "Failed", "Cancelled", "Running", "Pending", "Unknown"]
    path: str = ""
    reason: str | None = None
    window: tuple[int, ...] | None = None
    steps: int | None = None
    metrics: dict[str, Measured] = field(default_factory=dict)
    headline: str = STEP_TIME
    run: str | None = None
    state: str | None = None
    configuration: Settings | None = None
    invalid: tuple[str, ...] = ()
    log: LogFacts | None = None
    session: str | None = None
    losses: LossCurve | None = None
    #: Without it a comparison would not know which steps are outliers.
    statistics: Statistics | None = None

    def __post_init__(self) -> None:
        if self.window is not None and len(self.window) != 2:
            raise typed.KeyFaultError("must be the first and the last iteration", "window")
        if self.configuration == NOTHING:
            raise typed.KeyFaultError("names no setting of the run", "configuration")

    def result(self) -> Result:
        values = {key.name: getattr(self, key.name) for key in fields(_Exported)}
        window = None if self.window is None else Window(*self.window)
        return from_json({**values, "window": window})


def read_export(path: Path) -> list[Result]:
    """Read the results in a JSON file.

    Raises UsageError or InputFaults if it has none, LlmbError if it is damaged.
    """
    return _results_in(files.read_json(path), path)


def _results_in(data: Any, path: Path) -> list[Result]:
    """Return the results in the ``data`` of a file. Raises as ``read_export``."""
    rows = data.get("results") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        hint = "write one: llmb-run results --format json > results.json"
        raise UsageError(
            f"{path} has no results", hint=hint, code="results-missing", value=str(path)
        )
    document = yamlfile.Document(
        name=str(path), data={"results": [_known_keys(row) for row in rows]}
    )
    return [
        typed.read(_Exported, document, ("results", number)).result() for number in range(len(rows))
    ]


_NOT_KEPT = {"checkpoints", "uneven", "fabric", "stragglers"}
_KNOWN_KEYS = {
    "configuration": set(COMPARED),
    "log": {key.name for key in fields(LogFacts)} - _NOT_KEPT,
    "statistics": {key.name for key in fields(Statistics)},
}


def _known_keys(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without keys that this version does not know."""
    values = {key.name: row[key.name] for key in fields(_Exported) if key.name in row}
    for key, names in _KNOWN_KEYS.items():
        if isinstance(part := values.get(key), dict):
            values[key] = {name: part[name] for name in names if name in part}
    if isinstance(metrics := values.get("metrics"), dict):
        names = {key.name for key in fields(Measured)}
        values["metrics"] = {
            metric: {name: measured[name] for name in names if name in measured}
            if isinstance(measured, dict)
            else measured
            for metric, measured in metrics.items()
        }
    return values


def why_rejected(result: Result) -> str | None:
    """Return why a judged result cannot be part of a baseline, or None if it can."""
    if result.status != SUCCESS or result.metrics.value is None:
        words = {**NO_FIGURE, RUNNING: "has not ended", PENDING: "is waiting"}
        reason = (result.reason or "").removeprefix("waiting: ")
        return ": ".join(filter(None, (words.get(result.status, "measured nothing"), reason)))
    if result.verdict.word == INVALID:
        return f"INVALID: {result.verdict.reason}"
    loads = result.identity.configuration is not None and result.identity.configuration.loads
    return result.verdict.reason if loads else None


def accept_baseline(
    install: Path,
    name: str,
    results: Sequence[Result],
    now: float,
    *,
    replace: bool,
    sessions: Sequence[Session] = (),
) -> Path:
    """Write ``results`` of ``sessions`` as the baseline ``name``, accepted at ``now`` (since 1970).

    Raises UsageError if it exists and ``replace`` is false.
    """
    path = _path(install, name)
    text = files.to_json({"baseline": name, "accepted": int(now), **report(results, sessions)})
    if replace:
        files.write_text(path, text)
    elif not files.create_text(path, text):
        message, hint = f"baseline '{name}' exists already", "--replace overwrites it"
        raise UsageError(message, hint=hint, code="baseline-exists", key="NAME", value=name)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The runs to compare with: accepted ``results``, or the results of an archive."""

    called: str  #: the name in texts, as ``baseline april``
    accepted: str | None  #: when it was accepted or written (ISO 8601 with its offset), if known
    results: tuple[Result, ...]

    @property
    def dated(self) -> str:
        """The name with the day: ``baseline april (2026-04-30)``."""
        return self.called if self.accepted is None else f"{self.called} ({self.accepted[:10]})"


def read_baseline(install: Path, name: str) -> Baseline:
    """Read the baseline ``name``. Raises UsageError with the nearest name if there is none."""
    path = _path(install, name)
    if not path.is_file():
        names = baselines(install)
        hint = suggest(name, names) if names else "accept one: llmb-run baseline accept NAME"
        message = f"baseline '{name}' does not exist"
        raise UsageError(message, hint=hint, code="baseline-unknown", key="NAME", value=name)
    data = files.read_json(path)
    results = tuple(_results_in(data, path))
    return Baseline(called=f"baseline {name}", accepted=_accepted(data), results=results)


def baselines(install: Path) -> list[str]:
    return sorted(path.stem for path in (install / _FOLDER).glob("*.json"))


def newest_baseline(install: Path) -> str | None:
    """Return the name of the baseline that was accepted last, or None without any."""
    paths = (install / _FOLDER).glob("*.json")
    return max(((path.stat().st_mtime, path.stem) for path in paths), default=(0.0, None))[1]


def baseline_facts(install: Path, name: str) -> dict[str, Any]:
    """Return a baseline's date (ISO 8601 with its offset), its number of runs, and its file."""
    baseline = read_baseline(install, name)
    return {
        "name": name,
        "accepted": baseline.accepted,
        "runs": len(baseline.results),
        "file": str(_path(install, name)),
    }


def _accepted(data: Any) -> str | None:
    """Return when the baseline in ``data`` was accepted."""
    seconds = data.get("accepted")
    return times.iso(seconds) if isinstance(seconds, (int, float)) else None


def _path(install: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise UsageError(
            f"'{name}' is not a valid baseline name",
            hint="use letters, digits, -, _ and .",
            code="name-invalid",
            key="NAME",
            value=name,
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
    """Return the outcome of a verdict: skipped if it is undecided or nothing was compared."""
    if verdict in BAD:
        return "failure"
    return "skipped" if verdict in (INCONCLUSIVE, NO_REFERENCE) else "passed"


def junit_case(result: Result) -> JunitCase:
    """Return the test case of a run.

    It is a failure if the run failed, was cancelled or has a bad verdict, an error if its result is
    unknown, and skipped if it has no verdict yet.
    """
    identity, verdict = result.identity, result.verdict
    group = identity.configuration.workload if identity.configuration else "log"
    name = f"{identity.experiment} [{identity.run}]" if identity.run else identity.experiment
    if result.status != SUCCESS:
        outcome: Literal["failure", "error", "skipped"] = (
            "skipped"
            if result.is_open
            else "failure"
            if result.status in (FAILED, CANCELLED)
            else "error"
        )
        message = result.reason or result.status
        return JunitCase(group=group, name=name, outcome=outcome, message=message)
    message = f"{verdict.word}: {verdict.reason}" if verdict.word else ""
    return JunitCase(group=group, name=name, outcome=outcome_of(verdict.word), message=message)


def to_junit(cases: Iterable[JunitCase]) -> str:
    """Return the cases as one test suite. Control characters, which XML forbids, are escaped."""
    cases = list(cases)
    count = {
        outcome: sum(case.outcome == outcome for case in cases)
        for outcome in ("failure", "error", "skipped")
    }
    suite = ElementTree.Element(
        "testsuite",
        name="llmb",
        tests=str(len(cases)),
        failures=str(count["failure"]),
        errors=str(count["error"]),
        skipped=str(count["skipped"]),
    )
    for case in cases:
        element = ElementTree.SubElement(
            suite, "testcase", classname=escape(case.group), name=escape(case.name)
        )
        if case.outcome != "passed":
            ElementTree.SubElement(element, case.outcome, message=escape(case.message))
        elif case.message:
            ElementTree.SubElement(element, "system-out").text = escape(case.message)
    ElementTree.indent(suite)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(suite, encoding="unicode")
        + "\n"
    )
