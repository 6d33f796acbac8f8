# SPDX-License-Identifier: Apache-2.0
"""The contract between llmb and its plugins: every hook, when it is called, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import click

    from llmb import api

PROJECT = "llmb"
# MAJOR.MINOR of this contract. MINOR grows when a hook, an argument of a hook, a name of llmb.api
# or a field with a default is added: older plugins work unchanged. MAJOR grows when something is
# removed or changes its meaning: llmb/plugins/adapters.py then has how older plugins still work.
CONTRACT = "1.1"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def llmb_workload() -> api.Workload | Sequence[api.Workload]:  # type: ignore[empty-body]
    """Return the workload of this plugin, or a list of several.

    Called once by each command that needs workloads. Must be cheap: no network, no import of a
    training framework.
    """


@hookspec(firstresult=True)
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs | None:
    """Return what ``workload`` needs installed at ``site``: images, venvs, repositories, assets.

    Called while an install is planned. Pure: the same arguments give equal Needs, and nothing is
    fetched or written. Return None for llmb's default.
    """


@hookspec(firstresult=True)
def llmb_launch(
    workload: api.Workload, job: api.Job, site: api.Site
) -> api.Launch | api.Command | None:
    """Return how ``job`` runs: program, arguments, environment, files to stage. The cluster starts
    the ranks.

    Called for each job of a submission and of a dry run. Pure. A Command gets name, ranks, time
    limit, image and the job's variables from the job. Return None for llmb's default, which is
    ``launch`` of workload.yaml.
    """


@hookspec(firstresult=True)
def llmb_parse(
    workload: api.Workload, size: str, log: Path, run: api.RunRecord | None
) -> api.ParseSpec | api.Samples | None:
    """Return how to read ``log`` of a run of ``size``: a ParseSpec with the needle of step lines
    and the names of their values.

    A plugin that reads the log itself returns Samples. The file may not exist yet, and the other
    files of the run are in its folder. ``run`` is None for a log without a record. A hook that
    takes ``run`` and no ``log``, as of contract 1.0, gets a pretended run for such a log. Called
    for each run whose results are shown, and once for each size if it takes neither ``log`` nor
    ``run``. Pure, except that it may read the log. Return None for llmb's default, which is
    ``parse`` of workload.yaml.
    """


@hookspec(firstresult=True)
def llmb_flops(workload: api.Workload, shape: api.ModelShape) -> api.Flops | None:
    """Return the operations that one sample of ``shape`` costs, forward and backward, and the name
    of the formula.

    ``shape`` is the model of one run, with its own layers. TFLOPS and MFU follow from the sum of
    ``terms``. ``explain`` shows each. MFUs are compared only if their ``convention`` is the same.
    Called for each run whose results are shown. Pure. Return None for llmb's formulas.
    """


@hookspec
def llmb_clusters() -> Sequence[api.ClusterType]:  # type: ignore[empty-body]
    """Return further cluster types. Called when a command needs its cluster. The types of llmb use
    this hook too.
    """


@hookspec
def llmb_frameworks() -> Sequence[api.Framework]:  # type: ignore[empty-body]
    """Return further frameworks, which train the models of workloads.

    A workload selects one by ``framework`` of its workload.yaml. Its launch and needs are used
    unless the workload's plugin has hooks of its own. Called once by each command that needs
    workloads. Must be cheap. The frameworks of llmb use this hook too.
    """


@hookspec
def llmb_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Return further ``llmb-run`` commands. Called at every start, also for ``--help``, so it must
    import little.
    """


@hookspec
def llmb_settings() -> type:  # type: ignore[empty-body]
    """Return the frozen dataclass of this plugin's section below ``plugins`` in
    cluster_config.yaml.

    Its fields are the keys. ``site.own(Settings)`` has the values in llmb_setup and llmb_launch.
    Called when a configuration is read, or a hook gets a site.
    """


@hookspec
def llmb_failures() -> Sequence[api.Failure]:  # type: ignore[empty-body]
    """Return causes of failures by the lines of logs that show them, each with its fix.

    llmb looks for them after those that it knows, in the logs of all runs, so text must be of this
    plugin's programs or machines alone. Causes for one workload can be ``failures`` of its
    workload.yaml instead. What they found is kept with a result. Called once by each command that
    reads logs.
    """


@hookspec
def llmb_report(  # type: ignore[empty-body]
    results: Sequence[Mapping[str, Any]],
    runs: Sequence[api.RunRecord],
    kept_results: Sequence[Mapping[str, Any]],
) -> Sequence[api.ReportSection]:
    """Return sections of the report on ``results``, which are the objects of
    ``llmb-run results --format json`` (docs/json.md).

    ``runs`` are all runs of the install directory. ``kept_results`` are results of the newest 1,000
    of them without verdicts, as far as a command has read their logs before. A section is a
    heading, text and a table, as data. With ``page`` it is on a page of its own, which ``llmb-run
    report --page NAME`` writes. Called once for each report. Pure, except that it may read the
    files of the runs.
    """


@hookspec
def llmb_nodes(
    name: str, runs: Sequence[api.RunRecord], kept_results: Sequence[Mapping[str, Any]]
) -> Sequence[str] | None:
    """Return the nodes that ``@name`` means in ``--exclude`` and ``--nodelist`` of a
    submission, and in the keys of job lists.

    ``runs`` and ``kept_results`` are those of ``llmb_report``. Called for each such name of a
    submission or dry run. An empty list means none. Return None for a name that is not this
    plugin's.
    """


@hookspec
def llmb_hint(program: str, word: str, words: Sequence[str], options: Sequence[str]) -> str | None:
    """Return the hint for ``word``, a command, an option, a value of ``--format`` or the name of a
    workload that ``program`` does not know.

    ``words`` is the whole command line behind the program, and ``options`` are those that the
    command has, if one of them is unknown. The hint is the same in llmb's words, such as ``write:
    llmb-run results``. Called only when a command line is refused. Return None
    for a word that says nothing to this plugin.
    """


@hookspec
def llmb_log_settings(log: Path) -> api.LogSettings | None:
    """Return the settings of the run that wrote ``log``, from a file beside it.

    Called for each log of ``llmb-run parse`` and of ``llmb-install import`` that belongs to no run
    of llmb. The options of the
    command line override them, and they override the log's lines and its name. Pure, except that
    it may read files. Return None without such a file.
    """


@hookspec
def llmb_import(folder: Path) -> api.ForeignInstall | None:
    """Return what an install directory of another tool has: its settings, images and runs.

    Called by ``llmb-install import`` for its folder, and by each command for a folder in the place
    of an install directory whose cluster_config.yaml is not llmb's, so that it can name the tool
    and the command that imports it. Pure, except that it may read files. Return None for a folder
    that is not the tool's.
    """


@hookspec
def llmb_variables() -> Sequence[api.LaunchVariable]:  # type: ignore[empty-body]
    """Return the variables that configure another launcher, each with its setting here.

    A submission of one workload reads them from the shell, and job lists and ``--env`` may have
    them. Those that have no setting are named with what to do instead. Called once by each command
    that submits. Pure.
    """


@hookspec
def llmb_job_list(name: str, text: str) -> api.JobList | None:
    """Return the jobs in ``text``, a job list whose format is this plugin's.

    Called for each job list whose ``name`` does not end in ``.yaml`` or ``.yml``. A fault has its
    place, ``name:LINE``. Names are checked when jobs are planned. The plugins that come with llmb
    are asked last. Pure. Return None for another format.
    """
