# SPDX-License-Identifier: Apache-2.0
"""A report as a value: all that it is made of, gathered before anything of it is drawn or written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from llmb.failures import Cause, Group
from llmb.logs.samples import Samples
from llmb.results.result import Result
from llmb.runs.job import Job
from llmb.verdict.scaling import Point
from llmb.workload.published import Figure
from llmb.workload.rows import Row


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
