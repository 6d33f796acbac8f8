# SPDX-License-Identifier: Apache-2.0
"""A report as a value, and the order of verdicts and statuses in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from llmb.failures import CANCELLED_KIND, Cause, Group
from llmb.logs.samples import Samples
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN, Result
from llmb.runs.job import Job
from llmb.verdict.rules import (
    FAIL,
    FAIL_BELOW,
    INCONCLUSIVE,
    INVALID,
    NO_REFERENCE,
    PASS,
    SUSPICIOUS,
    SUSPICIOUS_ABOVE,
    WARN,
    WARN_BELOW,
)
from llmb.verdict.scaling import Point
from llmb.workload.published import Figure
from llmb.workload.spec import Row

MEANINGS = {
    FAIL: f"slower than published: the ratio is below {FAIL_BELOW}",
    FAILED: "the run ended before it had measured",
    UNKNOWN: "nobody knows what it came to: lost, or its log or record cannot be read",
    INVALID: "measured, but it does not count: profiled, over TCP, a loss that is no number, or steps missing",
    INCONCLUSIVE: f"the repeats lie on both sides of {FAIL_BELOW}: more of them would settle it",
    WARN: f"a little slower than published: below {WARN_BELOW}",
    SUSPICIOUS: f"faster than can be expected, above {SUSPICIOUS_ABOVE}: something is not the same",
    RUNNING: "has not ended",
    PENDING: "waits to start",
    CANCELLED: "somebody ended it",
    PASS: f"as published or faster: {WARN_BELOW} to {SUSPICIOUS_ABOVE}",
    NO_REFERENCE: "measured; nothing published is comparable with it",
}
ORDER = tuple(MEANINGS)  # the worst first
ASKING = frozenset({FAIL, INVALID, INCONCLUSIVE, WARN, SUSPICIOUS})  # verdicts that ask for a look at the run


def word_of_group(group: Group) -> str:
    """The one word for runs that ended for one reason."""
    return CANCELLED if group.cause.kind == CANCELLED_KIND else FAILED


def word_of(result: Result) -> str:
    """The one word for a run: its verdict, else its status."""
    return result.verdict or result.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a report: its judged ``result``, and what its record says beside it.

    ``created`` in seconds since the epoch; ``environment``: the variables of its ranks, secrets not among them;
    ``figure``: what it compares with; ``row``: that of its workload's table;
    ``peak_tflops`` of one GPU at the job's dtype; ``cause``: why it failed;
    ``samples``: what its log says step by step, None where that is not shown.
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

    @property
    def id(self) -> str:
        """The run's id."""
        return self.result.run or self.directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A set of judged runs, and where and when they were looked at.

    ``made`` with its time zone, which all times of the report are in; ``failures``: the causes, each with its runs;
    ``points``: the scaling of each model; ``figures``: the published figures of its workloads; ``release``: the one
    that was asked for; ``digests``: of images, by their references; ``faulty``: the workloads whose published figures
    could not be read; ``unreadable``: the results, status Unknown, of runs whose record cannot be read.
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

    @property
    def title(self) -> str:
        """What it is about."""
        return f"Benchmarks on {self.cluster_name}"

    @property
    def results(self) -> list[Result]:
        """The results of its runs, those at the end whose records cannot be read."""
        return [*(run.result for run in self.runs), *self.unreadable]
