# SPDX-License-Identifier: Apache-2.0
"""The contract between llmb and its plugins: every hook, when it is called, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from llmb import api

PROJECT = "llmb"
# MAJOR.MINOR of this contract. MINOR grows when a hook, an argument of a hook, a name of llmb.api or a field with a
# default is added: older plugins work unchanged. MAJOR grows when something is removed or changes its meaning.
CONTRACT = "1.0"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def llmb_workload() -> api.Workload:  # type: ignore[empty-body]
    """Return the workload of this plugin; a plugin has at most one.

    Called once by each command that needs workloads. Must be cheap: no network, no import of a training framework.
    """


@hookspec(firstresult=True)
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs | None:
    """Return what ``workload`` needs installed at ``site``: images, venvs, repositories, assets.

    Called while an install is planned. Pure: the same arguments give equal Needs, and nothing is fetched or written.
    Return None for llmb's default.
    """


@hookspec(firstresult=True)
def llmb_launch(workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
    """Return how ``job`` runs: program, arguments, environment, files to stage. The cluster starts the ranks.

    Called for each job of a submission and of a dry run. Pure. Return None for llmb's default.
    """


@hookspec(firstresult=True)
def llmb_parse(workload: api.Workload, run: api.RunRecord) -> api.ParseSpec | api.Samples | None:
    """Return how to read the log of ``run``: a ParseSpec with the needle of step lines and the names of their values.

    A plugin that reads the log itself returns Samples; the file, ``run.log``, may not exist yet. Called for each run
    whose results are shown. Pure, except that it may read the log. Return None for llmb's default.
    """


@hookspec(firstresult=True)
def llmb_flops(workload: api.Workload, shape: api.ModelShape) -> api.Flops | None:
    """Return the operations that one sample of ``shape`` costs, forward and backward, and the name of the formula.

    ``shape`` is the model of one run, with its own layers. TFLOPS and MFU follow from the sum of ``terms``; ``explain``
    shows each. MFUs are compared only if their ``convention`` is the same. Called for each run whose results are shown.
    Pure. Return None for llmb's formulas.
    """


@hookspec
def llmb_clusters() -> Sequence[api.ClusterType]:  # type: ignore[empty-body]
    """Return further cluster types. Called when a command needs its cluster; llmb's own types use this hook too."""


@hookspec
def llmb_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Return further ``llmb-run`` commands. Called at every start, also for ``--help``, so it must import little."""


@hookspec
def llmb_settings() -> type:  # type: ignore[empty-body]
    """Return the frozen dataclass of this plugin's section below ``plugins`` in cluster_config.yaml.

    Its fields are the keys; ``site.own(Settings)`` has the values in llmb_setup and llmb_launch. Called when a
    configuration is read, or a hook gets a site.
    """
