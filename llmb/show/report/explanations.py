# SPDX-License-Identifier: Apache-2.0
"""Explains why values may differ from references. Shared differences are listed once. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llmb.contract.metrics import TRAINING_BY_NAME
from llmb.contract.window import measure
from llmb.core.values import dataclass
from llmb.judge import correctness, differences
from llmb.judge.reference import pool, relative
from llmb.judge.steps import step_notes
from llmb.measure.result import ReferenceValue
from llmb.show.report.conditions import facts_of
from llmb.show.report.entries import ReportEntry
from llmb.show.report.value import Run

_WORTH_SAYING = 0.01  # a fraction of the step time

Fact = tuple[str, str]  # a name and its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of an entry against its ``reference``, a published figure or a baseline."""

    entry: ReportEntry
    reference: ReferenceValue
    #: Causes and known differences.
    differs: tuple[str, ...]
    #: What its runs show, as sentences.
    notes: tuple[str, ...]
    #: What is known of this entry and not of a published figure, without the facts that all entries
    #: have in common.
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A ``text`` that holds for several ``entries``."""

    text: str
    entries: tuple[ReportEntry, ...]
    #: It holds for all entries of the report.
    every: bool
    #: Of a fact, else empty.
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """The explanations of several entries."""

    entries: tuple[Explanation, ...] = ()
    #: What is known of all of them and not of published figures.
    common: tuple[Fact, ...] = ()
    #: Texts that hold for several entries, which these then omit.
    shared: tuple[Shared, ...] = ()
    #: What their logs omit, and how to log it.
    missing: tuple[str, ...] = ()


def explanations(entries: Sequence[ReportEntry], digests: Mapping[str, str]) -> Explanations:
    """Explain the entries that are compared with something."""
    compared = [
        (entry, verdict_reference)
        for entry in entries
        if (verdict_reference := entry.result.verdict.reference) is not None
    ]
    facts = [
        facts_of(entry.runs[0], digests) if entry.runs[0].figure is not None else []
        for entry, _ in compared
    ]
    common = [
        fact
        for fact in (facts[0] if facts else [])
        if all(fact in entry_facts for entry_facts in facts)
    ]
    missing = (
        differences.missing_in_log(entry.result.log, entry.job.scale) for entry, _ in compared
    )
    explained = [
        Explanation(
            entry=entry,
            reference=reference,
            differs=(*(cause.text for cause in entry.causes), *_differences(entry.runs[0])),
            notes=(
                *map(_sentence, entry.result.verdict.faults),
                *remarkable(entry),
                *_over_published_window(entry),
                *(_sentence(text) for text in correctness.in_words(entry.result.verdict)),
            ),
            facts=tuple(fact for fact in own_facts if fact not in common),
        )
        for (entry, reference), own_facts in zip(compared, facts, strict=True)
    ]
    shared = tuple(_shared(explained))
    return Explanations(
        entries=tuple(_without(shared, explanation) for explanation in explained),
        common=tuple(common),
        shared=shared,
        missing=tuple(dict.fromkeys(text for texts in missing for text in texts)),
    )


def _shared(explained: Sequence[Explanation]) -> Iterator[Shared]:
    """Yield differences and facts that hold for several explanations, the most frequent first."""
    holds: dict[Fact, list[ReportEntry]] = {}
    for explanation in explained:
        for fact in (*(("", text) for text in explanation.differs), *explanation.facts):
            holds.setdefault(fact, []).append(explanation.entry)
    for (name, text), entries in sorted(
        holds.items(), key=lambda item: (item[0][0] != "", -len(item[1]))
    ):
        if len(entries) > 1:
            yield Shared(
                text=text, entries=tuple(entries), every=len(entries) == len(explained), name=name
            )


def _without(shared: Iterable[Shared], explanation: Explanation) -> Explanation:
    """The explanation without what is shared."""
    texts = {(shared_text.name, shared_text.text) for shared_text in shared}
    return replace(
        explanation,
        differs=tuple(text for text in explanation.differs if ("", text) not in texts),
        facts=tuple(fact for fact in explanation.facts if fact not in texts),
    )


def remarkable(entry: ReportEntry) -> list[str]:
    """Return sentences that may explain a value: far steps, drift, repeats that differ."""
    notes = [(run.id, [*step_notes(run.result)]) for run in entry.runs]
    sentences = [f"Steps of {run_id}: {'; '.join(texts)}." for run_id, texts in notes if texts]
    means = [
        run.result.metrics.value.mean for run in entry.runs if run.result.metrics.value is not None
    ]
    if len(means) > 1 and max(means) > min(means) * (1 + _WORTH_SAYING) > 0:
        sentences.append(
            f"The highest of the repeats is {100 * (max(means) / min(means) - 1):.1f} % above the"
            " lowest."
        )
    return sentences


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _differences(run: Run) -> Iterable[str]:
    """From the published run, or from the runs of a baseline."""
    peak, row = run.peak_tflops, run.row
    if run.figure is None:
        return run.result.verdict.differences
    return differences.differences_from_published(
        run.result, run.job, run.figure, peak_tflops=peak, row=row
    )


def _over_published_window(entry: ReportEntry) -> Iterator[str]:
    """Yield the ratio over the window of the published figure, if that is another one."""
    figure, steps = entry.runs[0].figure, entry.result.metrics.steps
    if figure is None or steps is None or entry.result.verdict.same_window is not False:
        return
    declared = [] if figure.metric.name in TRAINING_BY_NAME else [figure.metric]
    measurements = [
        measure(run.samples, figure.window.of(steps, run.samples.first), declared)
        for run in entry.runs
        if run.samples is not None
    ]
    metric = figure.metric
    values = [measured[metric.name].mean for measured in measurements if metric.name in measured]
    if len(values) == len(entry.runs):
        ratio = relative(pool(values, metric.name).mean, figure.value, metric.better)
        window = differences.window_in_words(figure.window)
        yield f"Over the window of the published figure ({window}) the ratio is {ratio:.3f}."
