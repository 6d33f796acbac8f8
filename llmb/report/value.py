# SPDX-License-Identifier: Apache-2.0
"""A report as a value, and the order of verdicts and statuses in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from llmb.failures import CANCELLED_KIND, Cause, Group
from llmb.logs.samples import Samples
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN, Result
from llmb.runs.job import Job
from llmb.verdict import judge
from llmb.verdict.export import Baseline
from llmb.verdict.judge import FAIL_BELOW, SUSPICIOUS_ABOVE, WARN_BELOW
from llmb.verdict.scaling import Point
from llmb.workload.published import Figure
from llmb.workload.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What a report compares with, in words: one ``figure`` of it, all ``figures``, and ``as_`` which a result is good.

    ``heading``: of a column of its values; ``dated``: with the day when it was accepted, where that is known.
    """

    figure: str = "the published figure"
    figures: str = "the published figures"
    as_: str = "published"
    heading: str = "Published"
    dated: str = ""

    @classmethod
    def of(cls, baseline: Baseline | None) -> Self:
        """That of a report; None: the published figures."""
        if baseline is None:
            return cls()
        name = baseline.called
        return cls(figure=name, figures=name, as_=name, heading="Baseline", dated=baseline.dated)

    @property
    def is_published(self) -> bool:
        """Whether it is what is published."""
        return not self.dated

    @property
    def meanings(self) -> dict[str, str]:
        """What verdicts and statuses mean, the worst first."""
        worse = "worse than published" if self.is_published else f"worse than {self.as_}"
        as_ = "as published" if self.is_published else f"as {self.as_}"
        nothing = "no published figure is comparable" if self.is_published else f"{self.as_} has nothing comparable"
        return {
            judge.FAIL: f"{worse}: the ratio is below {FAIL_BELOW}",
            FAILED: "the run ended before it measured its window",
            UNKNOWN: "the result is unknown: the run is lost, or its log or record cannot be read",
            judge.INVALID: "the measurement is invalid: profiled, over TCP, a loss that is not a number, or missing "
            "steps",
            judge.INCONCLUSIVE: f"the 95 % interval of the ratio contains {FAIL_BELOW}: more repeats would decide",
            judge.WARN: f"slightly {worse}: the ratio is below {WARN_BELOW}",
            judge.SUSPICIOUS: f"implausibly good: the ratio is above {SUSPICIOUS_ABOVE}, so something probably "
            "differs, unless the reason says that the repeats differ too much",
            RUNNING: "the run has not ended",
            PENDING: "the run is waiting to start",
            CANCELLED: "the run was cancelled",
            judge.PASS: f"{as_}: the ratio is {WARN_BELOW} to {SUSPICIOUS_ABOVE}",
            judge.NO_REFERENCE: f"measured, but {nothing}",
        }


PUBLISHED = Against()
MEANINGS = PUBLISHED.meanings
ORDER = tuple(MEANINGS)  # the worst first
NEEDS_ATTENTION = frozenset({judge.FAIL, judge.INVALID, judge.INCONCLUSIVE, judge.WARN, judge.SUSPICIOUS})


def word_of_group(group: Group) -> str:
    """The status of runs that ended for one reason."""
    return CANCELLED if group.cause.kind == CANCELLED_KIND else FAILED


def count(number: int, word: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def word_of(result: Result) -> str:
    """The verdict on a run, else its status."""
    return result.verdict.word or result.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a report: its judged ``result``, and what else its record has.

    ``created`` in seconds since the epoch; ``environment``: the variables of its ranks, without secrets;
    ``figure``: what it is compared with; ``row``: that of its workload's table;
    ``peak_tflops`` of one GPU at the job's dtype; ``cause``: why it failed;
    ``samples``: its steps, None where they are not shown; ``nodes``: those that its scheduler names.
    """

    result: Result
    job: Job
    directory: str
    created: float
    llmb_version: str
    scheduler_id: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    figure: Figure | None = None
    row: Row | None = None
    peak_tflops: float | None = None
    cause: Cause | None = None
    samples: Samples | None = None
    nodes: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes that the scheduler names, else those that the log names."""
        return self.nodes or (self.result.log.hosts if self.result.log is not None else ())

    @property
    def id(self) -> str:
        return self.result.identity.run or self.directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A set of judged runs, their cluster, and the time of the report.

    ``made``: with the time zone of all times in the report; ``failures``: the causes, each with its runs;
    ``points``: the scaling of each configuration; ``figures``: the published figures of its workloads; ``release``:
    the one that was asked for; ``digests``: of images, by their references; ``faulty``: the workloads whose published
    figures could not be read; ``unreadable``: the results, status Unknown, of runs whose record cannot be read;
    ``baseline``: what the runs are compared with, None for the published figures; ``archived``: they
    are of an archive.
    """

    cluster_name: str
    cluster_type: str
    gpu_type: str
    llmb_version: str
    made: datetime
    runs: tuple[Run, ...] = ()
    failures: tuple[Group, ...] = ()
    points: tuple[Point, ...] = ()
    figures: tuple[Figure, ...] = ()
    release: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    faulty: tuple[str, ...] = ()
    unreadable: tuple[Result, ...] = ()
    baseline: Baseline | None = None
    archived: bool = False

    @property
    def against(self) -> Against:
        """What it compares with, in words."""
        return Against.of(self.baseline)

    @property
    def title(self) -> str:
        return f"Benchmarks on {self.cluster_name}"

    @property
    def results(self) -> list[Result]:
        """The results of its runs, then of those whose records cannot be read."""
        return [*(run.result for run in self.runs), *self.unreadable]
