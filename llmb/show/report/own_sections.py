# SPDX-License-Identifier: Apache-2.0
"""The sections of a report on sustained trainings, and on energy and cost. Pure."""

from collections.abc import Iterator, Sequence

from llmb.contract.metrics import ENERGY, Measured, shown
from llmb.contract.report_section import ReportSection
from llmb.judge import sustained
from llmb.judge.explain import ENERGY_NOTE
from llmb.measure.result import Result

_COLUMNS = ("run", "verdict", "reason", "further")


def sections_of(results: Sequence[Result]) -> tuple[ReportSection, ...]:
    """Return the sections for which at least one result has values."""
    return (*_sustained(results), *_energy(results))


def _sustained(results: Sequence[Result]) -> Iterator[ReportSection]:
    rows = []
    for result in results:
        if lines := sustained.in_words(result):
            verdict = result.verdict.sustained
            word, reason = (None, None) if verdict is None else (verdict.verdict, verdict.reason)
            rows.append((result.identity.name, word, reason, "; ".join(lines[1:])))
    if rows:
        text = "Drift, share of the time in steps, and heat of trainings of 100 steps or more."
        yield ReportSection(title="Sustained runs", text=text, columns=_COLUMNS, rows=tuple(rows))


def _energy(results: Sequence[Result]) -> Iterator[ReportSection]:
    energies = [
        spec for spec in ENERGY if any(spec.name in result.metrics.measured for result in results)
    ]
    rows = [
        (
            result.identity.name,
            *(_cell(result.metrics.measured.get(spec.name)) for spec in energies),
        )
        for result in results
        if any(spec.name in result.metrics.measured for spec in energies)
    ]
    if rows:
        yield ReportSection(
            title="Energy and cost",
            text=f"{ENERGY_NOTE[:1].upper()}{ENERGY_NOTE[1:]}.",
            columns=("run", *(f"{spec.name} ({spec.unit})" for spec in energies)),
            rows=tuple(rows),
        )


def _cell(measured: Measured | None) -> str | None:
    return None if measured is None else shown(measured.mean)
