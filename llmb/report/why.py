# SPDX-License-Identifier: Apache-2.0
"""Why a figure may not be the published one: what differs, what the runs say, and what only one side tells. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmb.report.entries import Entry
from llmb.report.environment import facts_of
from llmb.report.value import Run
from llmb.stats.interval import spread
from llmb.stats.measure import measure
from llmb.verdict import conditions
from llmb.verdict.pooling import published, throughput_ratio
from llmb.workload.published import Figure

_WORTH_SAYING = 0.01  # a fraction of the step time

Fact = tuple[str, str]  # a name and its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why an entry's figure may not be the published ``figure``: what ``differs``, and what its runs say (``seen``), as
    sentences; ``own``: what is known of it, not of the figure, and is not the same for all entries."""

    entry: Entry
    figure: Figure
    differs: tuple[str, ...]
    seen: tuple[str, ...]
    own: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The reasons of several entries; ``common``: what is known of all of them and not of the published figures;
    ``not_told``: what their logs do not say, and how they would."""

    whys: tuple[Why, ...] = ()
    common: tuple[Fact, ...] = ()
    not_told: tuple[str, ...] = ()


def reasons(entries: Sequence[Entry], digests: Mapping[str, str]) -> Reasons:
    """The reasons of entries that compare with a published figure; the others are left out."""
    compared = [(entry, figure) for entry in entries if (figure := entry.runs[0].figure) is not None]
    facts = [facts_of(entry.runs[0], digests) for entry, _ in compared]
    common = [fact for fact in (facts[0] if facts else []) if all(fact in other for other in facts)]
    return Reasons(
        whys=tuple(
            Why(
                entry=entry,
                figure=figure,
                differs=tuple(differences(entry.runs[0], figure)),
                seen=tuple(seen_in(entry)),
                own=tuple(fact for fact in own if fact not in common),
            )
            for (entry, figure), own in zip(compared, facts, strict=True)
        ),
        common=tuple(common),
        not_told=tuple(
            dict.fromkeys(
                text for entry, _ in compared for text in conditions.not_told(entry.result.log, entry.job.scale)
            )
        ),
    )


def differences(run: Run, figure: Figure) -> Iterator[str]:
    """What is not the same here and at the figure, though they are compared."""
    return conditions.differences(run.result, run.job, figure, peak_tflops=run.peak_tflops, row=run.row)


def seen_in(entry: Entry) -> list[str]:
    """What the runs themselves say about their step times, a sentence each."""
    return [*remarkable(entry), *_published_window(entry)]


def remarkable(entry: Entry) -> list[str]:
    """Those of the sentences that may be the cause: slow steps, drift, repeats that lie far apart."""
    said = [f"Steps of {run.id}: {'; '.join(told)}." for run in entry.runs if (told := [*conditions.steps(run.result)])]
    times = _times(entry.runs)
    if len(times) > 1 and max(times) > min(times) * (1 + _WORTH_SAYING):
        said.append(f"The slowest repeat takes {100 * (max(times) / min(times) - 1):.1f} % longer than the fastest.")
    return said


def _times(runs: Iterable[Run]) -> list[float]:
    return [run.result.time_mean_seconds for run in runs if run.result.time_mean_seconds is not None]


def _published_window(entry: Entry) -> Iterator[str]:
    """The ratio as the published figure was measured, where that was over other iterations."""
    figure, steps = entry.runs[0].figure, entry.result.steps
    if figure is None or steps is None or entry.result.same_window is not False:
        return
    found = [
        measure(run.samples, figure.window.of(steps, run.samples.first))
        for run in entry.runs
        if run.samples is not None
    ]
    times = [measured.time_mean for measured in found if measured is not None and measured.time_mean is not None]
    if len(times) == len(entry.runs):
        ratio, _ = throughput_ratio(spread(times), published(figure.step_time_s))
        window = conditions.window_in_words(figure.window)
        yield f"Over the window of the published figure ({window}) the ratio is {ratio:.3f}."
