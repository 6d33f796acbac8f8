# SPDX-License-Identifier: Apache-2.0
"""The lines of a report: the runs of one configuration that have one word in common, the worst first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

from llmb.compare import measures
from llmb.interval import Spread, spread
from llmb.job import Job
from llmb.report.value import Run
from llmb.report.words import ORDER, word_of
from llmb.results.configuration import Configuration
from llmb.results.result import Result
from llmb.verdict.judge import pool_key
from llmb.verdict.rules import judge_ratios

_TITLE = ("workload", "model_size", "dtype", "gpu_type", "scale")  # what every line says of itself
_SAID = {
    "gbs": "batch {}", "seq_length": "sequence {}", "num_layers": "{} layers", "profile": "profiled",
    "saves": "saves a checkpoint", "loads": "loads a checkpoint", "nccl_trace": "NCCL trace", "image": "{}",
}  # fmt: skip


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
        ratios = [run.result.ratio for run in self.runs if run.result.ratio is not None]
        cause = self.runs[0].cause
        said = judge_ratios(ratios).reason if ratios else self.result.verdict_reason or (cause and cause.kind)
        return said or self.result.reason or ""

    @property
    def step_time(self) -> Spread | None:
        """Step time in seconds over its runs."""
        return _spread([run.result.time_mean_seconds for run in self.runs])

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
    def ratio(self) -> Spread | None:
        """Measured by published throughput over its runs."""
        return _spread([run.result.ratio for run in self.runs])


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
        ORDER.index(entry.word) if entry.word in ORDER else len(ORDER), ratio.mean if ratio else 0.0,
        entry.label, entry.job.gpu_type, entry.job.scale, entry.note, entry.runs[0].created, entry.runs[0].id,
    )  # fmt: skip


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return spread(known) if known else None


def _with_notes(made: Sequence[Entry]) -> list[Entry]:
    settings = [(entry, _title(entry), _settings(entry)) for entry in made]
    alike = Counter(title for _, title, _ in settings)
    shared = Counter((title, setting) for _, title, own in settings for setting in own.items())
    return [
        replace(entry, note=", ".join(text for name, text in own.items()
                                      if text and shared[title, (name, text)] < alike[title]))
        for entry, title, own in settings
    ]  # fmt: skip


def _title(entry: Entry) -> Hashable:
    return tuple(getattr(entry.job, name) for name in _TITLE)


def _settings(entry: Entry) -> dict[str, str]:
    """Every setting that its title leaves out, in words; empty where there is nothing to say."""
    own = entry.result.configuration
    steps = entry.result.steps
    said = {"steps": f"{steps} steps" if steps else "", "window": f"window {entry.result.window}"}
    if own is None:
        return said
    for field in fields(Configuration):
        if field.name not in (*_TITLE, "env"):
            said[field.name] = _in_words(field.name, getattr(own, field.name))
    return said | {name: f"{name}={value}" for name, value in sorted(own.env.items())}


def _in_words(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return _SAID.get(name, f"{name} {{}}").format(value)
