# SPDX-License-Identifier: Apache-2.0
"""A report as a value, and the order of verdicts and statuses in it."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Self

from llmb.contract.job import Job
from llmb.contract.report_section import ReportSection
from llmb.contract.rows import Row
from llmb.contract.samples import Samples
from llmb.core.values import dataclass
from llmb.judge import value as judge
from llmb.judge.correctness import MEMORY_TOLERANCE
from llmb.judge.export import Baseline
from llmb.judge.value import FAIL_BELOW, SUSPICIOUS_ABOVE, WARN_BELOW
from llmb.measure.failure_causes import CANCELLED_KIND, Cause, FailureGroup
from llmb.measure.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN, Result
from llmb.plan.published import Figure

if TYPE_CHECKING:  # it imports fractions
    from llmb.judge.scaling import ScalingPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """The reference of a report in words."""

    #: One value of it.
    figure: str = "the published figure"
    #: All its values.
    figures: str = "the published figures"
    #: The word for a result as good as it.
    as_: str = "published"
    #: The heading of a column of its values.
    heading: str = "Published"
    #: Its name with the day of acceptance, if that is known.
    dated: str = ""

    @classmethod
    def of(cls, baseline: Baseline | None) -> Self:
        """Return the words for a baseline, or without one for the published figures."""
        if baseline is None:
            return cls()
        name = baseline.called
        return cls(figure=name, figures=name, as_=name, heading="Baseline", dated=baseline.dated)

    @property
    def is_published(self) -> bool:
        """Return True for the published figures."""
        return not self.dated

    @property
    def meanings(self) -> dict[str, str]:
        """The meanings of verdicts and statuses, the worst first."""
        worse = "worse than published" if self.is_published else f"worse than {self.as_}"
        as_ = "as published" if self.is_published else f"as {self.as_}"
        nothing = (
            "no published figure is comparable"
            if self.is_published
            else f"{self.as_} has nothing comparable"
        )
        # loss and memory have no published figure
        memory = f"the peak memory more than {100 * MEMORY_TOLERANCE:g} %"
        or_bad = "" if self.is_published else f", the loss is wrong, or {memory} higher"
        or_good = "" if self.is_published else f" or {memory} lower"
        return {
            judge.FAIL: f"{worse}: the ratio is below {FAIL_BELOW}{or_bad}",
            FAILED: "the run ended before it measured its window",
            UNKNOWN: "the result is unknown: the run is lost, or its log or record cannot be read",
            judge.INVALID: (
                "the measurement is invalid: profiled, over TCP, a loss that is not a number, or"
                " missing steps"
            ),
            judge.INCONCLUSIVE: (
                f"the 95 % interval of the ratio reaches from below {FAIL_BELOW} to above"
                f" {WARN_BELOW}: more repeats may decide"
            ),
            judge.WARN: f"slightly {worse}: the ratio is below {WARN_BELOW}",
            judge.SUSPICIOUS: (
                f"implausibly good: the ratio is above {SUSPICIOUS_ABOVE}{or_good}, so something"
                " probably differs, unless the reason says that the repeats differ too much"
            ),
            RUNNING: "the run has not ended",
            PENDING: "the run is waiting to start",
            CANCELLED: "the run was cancelled",
            judge.PASS: f"{as_}: the ratio is {WARN_BELOW} to {SUSPICIOUS_ABOVE}",
            judge.NO_REFERENCE: f"measured, but {nothing}",
        }


PUBLISHED = Against()
MEANINGS = PUBLISHED.meanings
ORDER = tuple(MEANINGS)  # the worst first
NEEDS_ATTENTION = frozenset(
    {judge.FAIL, judge.INVALID, judge.INCONCLUSIVE, judge.WARN, judge.SUSPICIOUS}
)


def word_of_group(group: FailureGroup) -> str:
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
    """One run of a report: its judged ``result``, and what else its record has."""

    result: Result
    job: Job
    directory: str
    #: In seconds since the epoch.
    created: float
    llmb_version: str
    scheduler_id: str | None = None
    #: The variables of its ranks, without secrets.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: The name of the program if it prints the step lines of a framework that did not run.
    program: str = ""
    #: The published figure that it is compared with.
    figure: Figure | None = None
    #: The row of its workload's table.
    row: Row | None = None
    #: Of one GPU at the job's dtype.
    peak_tflops: float | None = None
    #: The cause of its failure.
    cause: Cause | None = None
    #: Its steps, None if they are not shown.
    samples: Samples | None = None
    #: By the names that its scheduler has.
    nodes: tuple[str, ...] = ()
    #: Its figures by name, with the lines that compute them. Empty if they are not shown.
    formulas: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes that the scheduler names, else the log's."""
        return self.nodes or (self.result.log.hosts if self.result.log is not None else ())

    @property
    def id(self) -> str:
        return self.result.identity.run or self.directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A set of judged runs, their cluster, and the time of the report."""

    cluster_name: str
    cluster_type: str
    gpu_type: str
    llmb_version: str
    #: With the time zone of all times in the report.
    made: datetime
    runs: tuple[Run, ...] = ()
    #: The causes of failures with their runs.
    failures: tuple[FailureGroup, ...] = ()
    #: The scaling of each configuration.
    points: "tuple[ScalingPoint, ...]" = ()
    #: The published figures of its workloads.
    figures: tuple[Figure, ...] = ()
    #: The requested release.
    release: str | None = None
    #: The digests of images, by reference.
    digests: Mapping[str, str] = field(default_factory=dict)
    #: Workloads whose published figures could not be read.
    faulty: tuple[str, ...] = ()
    #: Results, with status Unknown, of runs whose record cannot be read.
    unreadable: tuple[Result, ...] = ()
    #: The reference of the runs, None for the published figures.
    baseline: Baseline | None = None
    #: The runs are of an archive.
    archived: bool = False
    #: Of plugins, on this page.
    sections: tuple[ReportSection, ...] = ()
    #: Seconds after which a browser loads its page again, 0 for never.
    refresh: int = 0

    @property
    def against(self) -> Against:
        """Its reference in words."""
        return Against.of(self.baseline)

    @property
    def title(self) -> str:
        return f"Benchmarks on {self.cluster_name}"

    @property
    def results(self) -> list[Result]:
        """The results of its runs, then of runs whose records cannot be read."""
        return [*(run.result for run in self.runs), *self.unreadable]
