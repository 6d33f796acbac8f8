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
    """The one workload of this plugin.

    Called once by each command that needs workloads. Must be cheap: no network, no import of a training framework.
    """


@hookspec(firstresult=True)
def llmb_setup(workload: Workload, site: Site) -> Needs | None:
    """What ``workload`` needs installed at ``site``: images, venvs, repositories, assets.

    Called while an install is planned. Pure: the same arguments give equal Needs; nothing is fetched or written here.
    None leaves the answer to llmb's own default.
    """


@hookspec(firstresult=True)
def llmb_launch(workload: Workload, job: Job, site: Site) -> Launch | None:
    """How ``job`` runs: program, arguments, environment, files to stage. Not who starts the ranks: the cluster does.

    Called for each job of a submission and of a dry run. Pure. None leaves the answer to llmb's own default.
    """


@hookspec(firstresult=True)
def llmb_parse(workload: Workload, run: RunRecord) -> ParseSpec | Samples | None:
    """How the log of ``run`` is read: the needle of a step's line and the names of its values.

    Or what it says, where the plugin reads the log itself: ``run.log``, which may not be there yet.

    Called for each run whose results are asked for. Pure, but for that. None leaves the answer to llmb's own default.
    """


@hookspec
def llmb_clusters() -> Sequence[ClusterType]:  # type: ignore[empty-body]
    """Further cluster types. Called when a command needs its cluster; llmb's own come through this hook too."""


@hookspec
def llmb_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Further ``llmb-run`` commands. Called at every start, ``--help`` too, so it must import little."""
