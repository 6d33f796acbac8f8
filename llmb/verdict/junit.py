# SPDX-License-Identifier: Apache-2.0
"""JUnit XML: what continuous integration reads, a test case for each run or comparison."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from llmb.results.result import CANCELLED, FAILED, SUCCESS, Result
from llmb.text.tables import escape
from llmb.verdict.rules import BAD, INCONCLUSIVE, NO_REFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case; ``outcome`` says what became of it and ``message`` why, where it did not pass."""

    group: str
    name: str
    outcome: Literal["passed", "failure", "error", "skipped"] = "passed"
    message: str = ""


def cases(results: Iterable[Result]) -> list[Case]:
    """A case for each run: a failure where it failed, was cancelled or its verdict is bad, an error where nobody knows
    what it came to, skipped where there is no verdict yet."""
    return [_case(result) for result in results]


def outcome_of(verdict: str | None) -> Literal["passed", "failure", "skipped"]:
    """What a verdict comes to: a failure when bad, skipped when it is open or nothing was compared."""
    if verdict in BAD:
        return "failure"
    return "skipped" if verdict in (INCONCLUSIVE, NO_REFERENCE) else "passed"


def _case(result: Result) -> Case:
    group = result.configuration.workload if result.configuration else "log"
    name = f"{result.experiment} [{result.run}]" if result.run else result.experiment
    if result.is_open:
        return Case(group=group, name=name, outcome="skipped", message=result.reason or "it has not ended")
    if result.status != SUCCESS:
        outcome: Literal["failure", "error"] = "failure" if result.status in (FAILED, CANCELLED) else "error"
        return Case(group=group, name=name, outcome=outcome, message=result.reason or result.status)
    message = f"{result.verdict}: {result.verdict_reason}" if result.verdict else ""
    return Case(group=group, name=name, outcome=outcome_of(result.verdict), message=message)


def to_xml(found: Iterable[Case]) -> str:
    """The cases as one test suite. Characters that XML does not have, and escapes of a terminal, are written out."""
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
