# SPDX-License-Identifier: Apache-2.0
"""The lines of a report: the runs of one configuration that have one word in common, the worst first. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from llmb.report.value import Run
from llmb.report.words import ORDER, word_of
from llmb.results.distinctions import TITLE, notes, settings_of
from llmb.results.result import Result
from llmb.runs.job import Job
from llmb.stats.interval import Spread
from llmb.verdict.compare import measures
from llmb.verdict.judge import pool_key
from llmb.verdict.pooling import pooled, published
from llmb.verdict.rules import judge_times


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Runs of one configuration with the same ``word``: repeats that are judged together, or that failed alike.

    ``note``: the settings in which it differs from the other entries of the same title.
    """

    word: str
    runs: tuple[Run, ...]
    note: str = ""

    @property
    def job(self) -> Job:
        """The job, but for what its repeats differ in."""
        return self.runs[0].job

    @property
    def result(self) -> Result:
        """The result of its first run, which has the verdict of all."""
        return self.runs[0].result

    @property
    def label(self) -> str:
        """The workload, size and dtype, as ``nemotron4 15b bf16``."""
        return f"{self.job.workload.removeprefix('pretrain_')} {self.job.model_size} {self.job.dtype}"

    @property
    def reason(self) -> str:
        """The sentence behind its word: of the ratio, else of the cause, else as its result has it."""
        reference, causes = self.result.reference, _causes(self.runs)
        if reference is not None and self.ratio is not None:
            times = [run.result.time_mean_seconds for run in self.runs]
            return judge_times([time for time in times if time is not None], published(reference.step_time_s)).reason
        return self.result.verdict_reason or causes or self.result.reason or ""

    @property
    def step_time(self) -> Spread | None:
        """Step time in seconds over its runs."""
        return pooled(run.result for run in self.runs)

    @property
    def rate(self) -> float | None:
        """Tokens per second of one GPU at the mean step time."""
        return self._at_mean(self.result.tokens_per_second_per_gpu)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization at the mean step time, a fraction."""
        return self._at_mean(self.result.mfu)

    def _at_mean(self, of_first: float | None) -> float | None:
        time, own = self.step_time, self.result.time_mean_seconds
        return None if of_first is None or time is None or own is None else of_first * own / time.mean

    @property
    def ratio(self) -> float | None:
        """Measured by published throughput, its runs together."""
        return self.result.pooled_ratio


def entries_of(runs: Iterable[Run]) -> list[Entry]:
    """The entries of ``runs``: by word, the slowest of a word first, then by name and scale."""
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        word = word_of(run.result)
        groups.setdefault((word, measures(run.result), pool_key(run.result)), []).append(run)
    made = [Entry(word=word_of(group[0].result), runs=tuple(group)) for group in groups.values()]
    return sorted(_with_notes(made), key=_severity)


def worst_first(entries: Iterable[Entry], most: int) -> list[Run]:
    """The first runs of entries in their order, ``most`` at most."""
    return [run for entry in entries for run in entry.runs][:most]


def _severity(entry: Entry) -> tuple[object, ...]:
    ratio = entry.ratio
    return (
        ORDER.index(entry.word) if entry.word in ORDER else len(ORDER),
        ratio or 0.0,
        entry.label,
        entry.job.gpu_type,
        entry.job.scale,
        entry.note,
        entry.runs[0].created,
        entry.runs[0].id,
    )


def _causes(runs: Sequence[Run]) -> str:
    """The classes of what they failed of, the most frequent first: ``NCCL hang (2), time limit``."""
    kinds = Counter(run.cause.kind for run in runs if run.cause is not None)
    return ", ".join(
        f"{kind} ({number})" if number > 1 and len(kinds) > 1 else kind for kind, number in kinds.most_common()
    )


def _with_notes(made: Sequence[Entry]) -> list[Entry]:
    told = notes([(_title(entry), settings_of(entry.result)) for entry in made])
    return [replace(entry, note=note) for entry, note in zip(made, told, strict=True)]


def _title(entry: Entry) -> Hashable:
    return tuple(getattr(entry.job, name) for name in TITLE)
