# SPDX-License-Identifier: Apache-2.0
"""The certificate of an acceptance: as data, as text, as one line, and as a page of a report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from llmb import api
from llmb_accept.judge import NOT_RUN, PASSED, Assessment, Evidence, PhaseOutcome

if TYPE_CHECKING:
    from llmb_accept.acceptance import Acceptance

SCHEMA_VERSION = 1
_COLUMNS = ("phase", "what", "status", "passed", "result")
_MOST = 3  # reasons of one line


def make(
    acceptance: Acceptance, assessment: Assessment, evidence: Evidence, date: str
) -> dict[str, Any]:
    """Return the certificate as data. ``date``: ISO 8601."""
    plan = acceptance.plan
    return {
        "schema_version": SCHEMA_VERSION,
        "answer": assessment.answer,
        "name": acceptance.name,
        "plan": plan.name,
        "title": plan.title,
        "plan_sha256": hashlib.sha256(acceptance.plan_text.encode()).hexdigest(),
        "statement": plan.statement,
        "cluster": acceptance.cluster,
        "gpu_type": acceptance.gpu_type,
        "gpus": acceptance.gpus,
        "nodes": [*acceptance.nodes],
        "date": date,
        "releases": sorted({run.llmb_version for run in evidence.runs}),
        "by": acceptance.by,
        "baseline": acceptance.baseline,
        "problems": [*assessment.problems],
        "left": assessment.left,
        "phases": [asdict(phase) for phase in assessment.phases],
        "runs": [run.id for run in evidence.runs],
    }


def make_open(
    acceptance: Acceptance, assessment: Assessment, evidence: Evidence, date: str
) -> dict[str, Any]:
    """Return how far an acceptance is, as a certificate with a phase for each of the plan."""
    begun = {phase.name for phase in assessment.phases}
    following = (
        PhaseOutcome(name=phase.name, status=NOT_RUN)
        for phase in acceptance.plan.phases
        if phase.name not in begun
    )
    every = replace(assessment, phases=(*assessment.phases, *following))
    return make(acceptance, every, evidence, date)


def differences(certificate: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return in which keys a certificate differs from one that was computed again.

    Wording may change with the release of llmb, so texts do not count.
    """
    keys = ("answer", "plan_sha256", "gpus", "gpu_type", "releases", "runs")
    pairs = [(key, certificate.get(key), again[key]) for key in keys]
    pairs += [("nodes", sorted(certificate.get("nodes", [])), sorted(again["nodes"]))]
    pairs += [("left", sorted(certificate.get("left", {})), sorted(again["left"]))]
    pairs += [
        ("phases", [*_outcomes(certificate.get("phases", []))], [*_outcomes(again["phases"])])
    ]
    return [key for key, before, after in pairs if before != after]


def _outcomes(phases: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    for phase in phases:
        yield phase["name"], phase["status"]
        for item in phase["items"]:
            yield item["name"], [*item["nodes"]], item["status"], item["run"]


def line(certificate: Mapping[str, Any], sha256: str | None = None) -> str:
    """Return the certificate in one line."""
    parts = [
        f"{certificate['answer']} {certificate['plan']}: {certificate['cluster']}",
        _count(len(certificate["nodes"]), "node"),
        f"{certificate['gpus']} {certificate['gpu_type']}",
        certificate["date"][:10],
        f"llmb {', '.join(certificate['releases']) or '-'}",
    ]
    parts += [f"by {certificate['by']}"] if certificate["by"] else []
    parts += [f"archive sha256 {sha256}"] if sha256 else []
    return ", ".join(parts)


def as_text(certificate: Mapping[str, Any], *, is_open: bool = False) -> str:
    """Return the certificate for a terminal. ``is_open``: it is not complete."""
    head = "\n".join(f"{key:8} {text}" for key, text in _facts(certificate))
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in _rows(certificate)]
    columns = [
        *(api.Column(key=key, whole=True) for key in _COLUMNS[:-1]),
        api.Column(key=_COLUMNS[-1]),
    ]
    answer = "OPEN" if is_open else certificate["answer"]
    parts = [answer, head, api.render_table(columns, rows).rstrip("\n")]
    parts += ["\n".join(_remarks(certificate))]
    return "\n\n".join(filter(None, parts)) + "\n"


def as_section(certificate: Mapping[str, Any]) -> api.ReportSection:
    """Return the certificate as the first section of a report."""
    facts = "\n\n".join(f"{key}: {text}" for key, text in _facts(certificate))
    remarks = "\n\n".join(_remarks(certificate))
    return api.ReportSection(
        title=f"{certificate['answer']}: {certificate['title']}",
        text="\n\n".join(filter(None, (facts, remarks))),
        columns=_COLUMNS,
        rows=tuple(_rows(certificate)),
        first=True,
    )


def _facts(certificate: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    nodes = certificate["nodes"]
    yield "plan", f"{certificate['plan']}: {certificate['title']}"
    yield "cluster", certificate["cluster"]
    yield "nodes", f"{len(nodes)}: {api.fold_nodes(nodes)}"
    yield "GPUs", f"{certificate['gpus']} {certificate['gpu_type']}"
    yield "date", certificate["date"]
    yield "release", f"llmb {', '.join(certificate['releases']) or 'unknown, as nothing ran'}"
    if certificate.get("baseline"):
        yield "baseline", certificate["baseline"]
    if certificate["by"]:
        yield "by", certificate["by"]


def _rows(certificate: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row for each job of a phase, whatever the number of its nodes."""
    for phase in certificate["phases"]:
        if not phase["items"]:  # its runs are not complete
            yield phase["name"], "-", phase["status"], "-", ""
        by_name: dict[str, list[Mapping[str, Any]]] = {}
        for item in phase["items"]:
            by_name.setdefault(item["name"], []).append(item)
        for name, items in by_name.items():
            failed = [item for item in items if item["status"] != PASSED]
            status = failed[0]["status"] if failed else PASSED
            passed = f"{len(items) - len(failed)} of {len(items)}"
            yield phase["name"], name, status, passed, _result(items, failed)


def _result(items: Sequence[Mapping[str, Any]], failed: Sequence[Mapping[str, Any]]) -> str:
    shown = failed[:_MOST] if failed else items[:1] if len(items) == 1 else ()
    texts = [
        item["text"] if len(items) == 1 else f"{api.fold_nodes(item['nodes'])}: {item['text']}"
        for item in shown
    ]
    omitted = len(failed) - len(shown)
    return "; ".join([*texts, *([f"and {omitted} more"] if omitted > 0 else [])])


def _remarks(certificate: Mapping[str, Any]) -> Iterator[str]:
    for problem in certificate["problems"]:
        yield f"problem: {problem}"
    for node, reason in certificate["left"].items():
        yield f"{node} failed: {reason}"
    for phase in certificate["phases"]:
        for note in phase["notes"]:
            yield f"note: {note}"
    if certificate["statement"]:
        yield certificate["statement"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
