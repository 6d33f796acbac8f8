# SPDX-License-Identifier: Apache-2.0
"""The contract between llmb and its plugins: every hook, when it is called, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from llmb.clusters.base import ClusterType
    from llmb.logs.formats import ParseSpec
    from llmb.logs.samples import Samples
    from llmb.runs.job import Job
    from llmb.runs.launch import Launch, Site
    from llmb.runs.record import RunRecord
    from llmb.workload.needs import Needs
    from llmb.workload.spec import Workload

PROJECT = "llmb"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def llmb_workload() -> Workload:  # type: ignore[empty-body]
    """Return the workload of this plugin; a plugin has at most one.

    Called once by each command that needs workloads. Must be cheap: no network, no import of a training framework.
    """


@hookspec(firstresult=True)
def llmb_setup(workload: Workload, site: Site) -> Needs | None:
    """Return what ``workload`` needs installed at ``site``: images, venvs, repositories, assets.

    Called while an install is planned. Pure: the same arguments give equal Needs, and nothing is fetched or written.
    Return None for llmb's default.
    """


@hookspec(firstresult=True)
def llmb_launch(workload: Workload, job: Job, site: Site) -> Launch | None:
    """Return how ``job`` runs: program, arguments, environment, files to stage. The cluster starts the ranks.

    Called for each job of a submission and of a dry run. Pure. Return None for llmb's default.
    """


@hookspec(firstresult=True)
def llmb_parse(workload: Workload, run: RunRecord) -> ParseSpec | Samples | None:
    """Return how to read the log of ``run``: a ParseSpec with the needle of step lines and the names of their values.

    A plugin that reads the log itself returns Samples; the file, ``run.log``, may not exist yet. Called for each run
    whose results are shown. Pure, except that it may read the log. Return None for llmb's default.
    """


@hookspec
def llmb_clusters() -> Sequence[ClusterType]:  # type: ignore[empty-body]
    """Return further cluster types. Called when a command needs its cluster; llmb's own types use this hook too."""


@hookspec
def llmb_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Return further ``llmb-run`` commands. Called at every start, also for ``--help``, so it must import little."""
