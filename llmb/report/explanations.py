# SPDX-License-Identifier: Apache-2.0
"""Why values of a report may differ from their references; shared differences are listed once. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llmb.report.conditions import facts_of
from llmb.report.entries import Entry
from llmb.report.value import Run
from llmb.results.result import Reference
from llmb.stats.measure import measure
from llmb.stats.metrics import TRAINING_BY_NAME
from llmb.verdict import differences, explain
from llmb.verdict.reference import pool, published, ratio_of

_WORTH_SAYING = 0.01  # a fraction of the step time

Fact = tuple[str, str]  # a name and its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an entry may differ from its ``reference``: a published figure, or a baseline.

    ``differs``: causes and known differences; ``seen``: what its runs show, as sentences; ``own``: what is known of
    this entry and not of a published figure, without what all entries have in common.
    """

    entry: Entry
    reference: Reference
    differs: tuple[str, ...]
    seen: tuple[str, ...]
    own: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A ``text`` that holds for several ``entries``, of ``every`` one or not; ``name``: of a fact, else empty."""

    text: str
    entries: tuple[Entry, ...]
    every: bool
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """The explanations of several entries.

    ``common``: what is known of all of them and not of published figures; ``shared``: texts that hold for several
    entries, which these then omit; ``missing``: what their logs omit, and how to log it.
    """

    entries: tuple[Explanation, ...] = ()
    common: tuple[Fact, ...] = ()
    shared: tuple[Shared, ...] = ()
    missing: tuple[str, ...] = ()


def explanations(entries: Sequence[Entry], digests: Mapping[str, str]) -> Explanations:
    """The explanations of those entries that are compared with something."""
    compared = [(entry, known) for entry in entries if (known := entry.result.verdict.reference) is not None]
    facts = [facts_of(entry.runs[0], digests) if entry.runs[0].figure is not None else [] for entry, _ in compared]
    common = [fact for fact in (facts[0] if facts else []) if all(fact in other for other in facts)]
    missing = (differences.missing_in_log(entry.result.log, entry.job.scale) for entry, _ in compared)
    found = [
        Explanation(
            entry=entry,
            reference=reference,
            differs=(*(cause.text for cause in entry.causes), *_differences(entry.runs[0])),
            seen=(*remarkable(entry), *_over_published_window(entry)),
            own=tuple(fact for fact in own if fact not in common),
        )
        for (entry, reference), own in zip(compared, facts, strict=True)
    ]
    shared = tuple(_shared(found))
    return Explanations(
        entries=tuple(_without(shared, one) for one in found),
        common=tuple(common),
        shared=shared,
        missing=tuple(dict.fromkeys(text for texts in missing for text in texts)),
    )


def _shared(found: Sequence[Explanation]) -> Iterator[Shared]:
    """The differences and facts of several of the explanations, those of most first."""
    holds: dict[Fact, list[Entry]] = {}
    for one in found:
        for fact in (*(("", text) for text in one.differs), *one.own):
            holds.setdefault(fact, []).append(one.entry)
    for (name, text), entries in sorted(holds.items(), key=lambda item: (item[0][0] != "", -len(item[1]))):
        if len(entries) > 1:
            yield Shared(text=text, entries=tuple(entries), every=len(entries) == len(found), name=name)


def _without(shared: Iterable[Shared], one: Explanation) -> Explanation:
    """The explanation without what is shared."""
    texts = {(own.name, own.text) for own in shared}
    return replace(
        one,
        differs=tuple(text for text in one.differs if ("", text) not in texts),
        own=tuple(fact for fact in one.own if fact not in texts),
    )


def remarkable(entry: Entry) -> list[str]:
    """Sentences on what may explain a value: steps far from the median, drift, repeats that differ."""
    notes = [(run.id, [*explain.step_notes(run.result)]) for run in entry.runs]
    found = [f"Steps of {id_}: {'; '.join(own)}." for id_, own in notes if own]
    known = [run.result.metrics.value.mean for run in entry.runs if run.result.metrics.value is not None]
    if len(known) > 1 and max(known) > min(known) * (1 + _WORTH_SAYING) > 0:
        found.append(f"The highest of the repeats is {100 * (max(known) / min(known) - 1):.1f} % above the lowest.")
    return found


def _differences(run: Run) -> Iterable[str]:
    """From the published run, or from the runs of a baseline."""
    peak, row = run.peak_tflops, run.row
    if run.figure is None:
        return run.result.verdict.differences
    return differences.differences_from_published(run.result, run.job, run.figure, peak_tflops=peak, row=row)


def _over_published_window(entry: Entry) -> Iterator[str]:
    """The ratio over the window of the published figure, where that is another one."""
    figure, steps = entry.runs[0].figure, entry.result.metrics.steps
    if figure is None or steps is None or entry.result.verdict.same_window is not False:
        return
    declared = [] if figure.metric.name in TRAINING_BY_NAME else [figure.metric]
    found = [
        measure(run.samples, figure.window.of(steps, run.samples.first), declared)
        for run in entry.runs
        if run.samples is not None
    ]
    metric = figure.metric
    values = [measured[metric.name].mean for measured in found if metric.name in measured]
    if len(values) == len(entry.runs):
        ratio, _ = ratio_of(pool(values, metric.name), published(figure.value), metric.better)
        window = differences.window_in_words(figure.window)
        yield f"Over the window of the published figure ({window}) the ratio is {ratio:.3f}."
