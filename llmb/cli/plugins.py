# SPDX-License-Identifier: Apache-2.0
"""`llmb-run plugins`: lists the plugins, checks them, and writes a new one."""

import os
from collections.abc import Iterable
from pathlib import Path

import click

from llmb import config as configuration
from llmb.cli import options, output
from llmb.cli.context import Context, pass_context, say
from llmb.config import ClusterConfig
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, collected, describe
from llmb.frameworks.nemo import needs, recipe_checks
from llmb.planning.select import split_name
from llmb.plugins import checkup, cluster_trial, scaffold
from llmb.plugins.loaded import Plugins
from llmb.plugins.owners import Problem
from llmb.plugins.settings import Sections, key_of
from llmb.plugins.trial import lines_of_trial, result_of_trial, sample_faults, undeclared
from llmb.system import console, files
from llmb.text import yamlfile
from llmb.text.names import squash_workload
from llmb.text.tables import Column, escape


@click.group("plugins", cls=options.Group, invoke_without_command=True)
@click.option("--format", "fmt", type=click.Choice(options.FORMATS), help="Output format of the list.")
@click.pass_context
def group(click_context: click.Context, fmt: str | None) -> None:
    """List, check and create plugins."""
    command = click_context.invoked_subcommand
    if command is None:
        click_context.invoke(list_, fmt=fmt or "table")
    elif fmt is not None:
        message, hint = "--format is for the list", f"llmb-run plugins list --format {fmt}"
        raise UsageError(message, hint=hint, code="format-misplaced", key="format", value=command)


@group.command("list")
@options.format_option
@pass_context
def list_(context: Context, fmt: str) -> None:
    """Show the plugins and the workload of each."""
    plugins = context.plugins
    by_source = {plugins.offers[key].source: key for key in plugins.workloads()}
    plugins.cluster_types()
    refused: dict[str, list[Problem]] = {}
    for problem in plugins.problems:
        refused.setdefault(problem.source, []).append(problem)
    rows = [
        {
            "plugin": source,
            "status": _status(refused.get(source, [])),
            "workload": by_source.get(source, ""),
            "contract": plugins.contract(source),
            "reason": "; ".join(one.summary for one in refused.get(source, [])),
        }
        for source in sorted({*plugins.sources, *refused})
    ]
    names = ("plugin", "status", "workload", "contract", "reason")
    output.print_rows([Column(key=name, heading=name.capitalize()) for name in names], rows, fmt)


def _status(problems: list[Problem]) -> str:
    """Whether a plugin is used, in part or not at all."""
    if not problems:
        return "ok"
    return "in part" if all(problem.part for problem in problems) else "skipped"


@group.command("check")
@click.option("--log", type=click.Path(path_type=Path), metavar="FILE", help="Show what llmb reads from this log.")
@click.option("-w", "--workload", metavar="W", help="Only this workload or plugin; with --log, its W_SIZE too.")
@options.install_option
@pass_context
def check(context: Context, log: Path | None, workload: str | None) -> int:
    """Check all plugins, or that of -w; exit code 1 on a fault.

    A plugin must load, its published figures must be readable, each of its rows must be a valid configuration, its
    hooks must answer, its sample log must measure the headline metric, and its cluster types must render a script. NeMo
    must have its recipes: the installed NeMo, otherwise NeMo 2.3.1. Plugins for a whole cluster are tried on every
    workload. In an install directory, or with --install, plugins get the settings of its configuration. With --log,
    show what the plugin of a workload reads from a log instead; exit code 1 if the headline metric is missing.
    """
    if log is not None:
        return _try_log(context, log, workload)
    plugins = context.plugins
    workloads = plugins.workloads()
    kinds = list(plugins.cluster_types().values())
    problems = plugins.problems
    if workload is not None:
        chosen = _source_named(plugins, workload)
        workloads = {key: own for key, own in workloads.items() if plugins.offers[key].source == chosen}
        kinds = [kind for kind in kinds if kind.source == chosen]
        problems = [problem for problem in problems if problem.source == chosen]
    for problem in problems:
        until = f"plugin {problem.source} is skipped until this is fixed"
        faults = list(problem.faults) or [Fault(place=problem.source, message=problem.reason)]
        say(describe(InputFaults(faults, hint=until if problem.faults else None)))
    context.figures(workloads)
    config, faults = _config(context), list[Fault]()
    sections = _settings(context, config, faults)
    venvs = _nemo_venvs(config, workloads)
    installed = {venv: recipe_checks.installed_names(venv) for venv in set(venvs.values())}
    for key, own in workloads.items():
        faults += checkup.faults_of(own, plugins, installed[venvs[key]], sections)
    faults += [fault for own in workloads.values() for fault in sample_faults(own, plugins)]
    faults += cluster_trial.cluster_faults(kinds)
    if faults:
        say(describe(InputFaults(list(dict.fromkeys(faults)))))
    if problems or context.faulty_figures or faults:
        return 1
    count = len(plugins.sources) if workload is None else 1
    console.echo(f"{count} plugin{'' if count == 1 else 's'} checked, no faults")
    return 0


def _source_named(plugins: Plugins, name: str) -> str:
    """The plugin called ``name``, as ``plugins list`` shows it or by its workload. Raises UsageError."""
    if name in plugins.sources or any(name == problem.source for problem in plugins.problems):
        return name
    return plugins.offers[split_name(name, plugins.workloads())[0]].source


def _try_log(context: Context, log: Path, name: str | None) -> int:
    """Print what the plugin of the workload called ``name`` reads of ``log``; without a name, what each one reads.

    The exit code is 1 where no headline metric is measured.
    """
    if not log.is_file():
        raise UsageError(f"{log} does not exist", hint="check the path", code="path-missing", key="--log", value=log)
    workloads = context.workloads
    if name is not None:
        key, size = split_name(name, workloads)
        wanted = [(key, size or workloads[key].default_size)]
    else:
        wanted = [(key, own.default_size) for key, own in workloads.items()]
    found = [(key, size, result_of_trial(workloads[key], size, log, context.plugins)) for key, size in wanted]
    read = [one for one in found if one[2].metrics.max_iteration is not None]
    for key, size, result in read if name is None else found:
        console.echo(f"{key}_{size}")
        for line in lines_of_trial(result):
            console.echo(f"  {escape(line)}")
        for unknown, meant in undeclared(workloads[key], log).items() if workloads[key].metrics else ():
            say(f"warning: {key} declares no metric '{unknown}', which the log has\nhint: {meant}")
    if not read and name is None:
        say("no plugin finds a step in it; -w W shows why for one workload")
    return 0 if any(result.metrics.has_figures for _, _, result in read) else 1


def _config(context: Context) -> ClusterConfig | None:
    """The configuration whose settings and environments the check uses; None without a valid one.

    Raises LlmbError for one that ``--install`` names.
    """
    try:
        install = configuration.find_install(context.install_option, os.environ)
    except LlmbError:
        if context.install_option is not None:
            raise
        return None
    try:
        types = context.plugins.cluster_types
        return configuration.load_config(
            install, os.environ, types=lambda: context.plugins.gpu_types, cluster_types=types
        )[0]
    except LlmbError as error:
        if context.install_option is not None:
            raise
        say(f"{describe(error)}\nnote: plugins are checked without this configuration")
        return None


def _settings(context: Context, config: ClusterConfig | None, faults: list[Fault]) -> Sections:
    """The settings that plugins are checked with, which are printed; wrong ones go to ``faults``, and are not used."""
    plugins = context.plugins
    able = [source for source in plugins.sources if plugins.calls.implementation(source, "llmb_settings")]
    able = list(dict.fromkeys([*able, *cluster_trial.site_wide(plugins)]))
    if config is None:
        if able:
            how = "--install DIR uses those of a cluster_config.yaml"
            say(f"note: default settings of {', '.join(able)}; {how}")
        return {}
    file = config.llmb_install / configuration.CONFIG_FILE
    document = yamlfile.load(file)
    wrong = plugins.faults_of_settings(document)
    faults += dict.fromkeys(fault for own in wrong.values() for fault in own)
    with collected(faults):
        plugins.require_named(document, config.plugins)
    refused = [key_of(config.plugins, source) for source in wrong]
    used = {key: own for key, own in config.plugins.items() if key not in refused}
    if used:
        say(f"note: settings of {', '.join(used)} from {file}")
    if others := [source for source in able if key_of(config.plugins, source) is None]:
        say(f"note: default settings of {', '.join(others)}: {file} has none")
    return used


def _nemo_venvs(config: ClusterConfig | None, keys: Iterable[str]) -> dict[str, Path | None]:
    """The installed environment of NeMo of each workload; None without one, or without an install directory."""
    if config is None:
        return dict.fromkeys(keys)
    found = {key: config.workloads.of(key) for key in keys}
    return {key: own.venvs.get(needs.VENV, own.venv_path) for key, own in found.items()}


@group.command("new")
@click.argument("name")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice(scaffold.KINDS), default=scaffold.WORKLOAD, help="What the plugin adds to llmb."
)
@pass_context
def new(context: Context, name: str, folder: Path | None, kind: str) -> None:
    """Write a new plugin called NAME.

    The plugin is written to FOLDER (default: ./NAME). It is complete, with tests, and runs on this machine. KIND:

    \b
    workload   a model that NeMo trains, as a table
    program    a benchmark with its own program
    metric     an existing program, and how to read its log
    cluster    a cluster type
    command    a command of llmb-run
    """
    plain = scaffold.plain_name(name)
    folder = folder or Path(plain)
    names = scaffold.Names(plain=plain, kind=kind)
    key = names.key
    _check_free(context, name, key, kind)
    scaffold.check_new(names)
    if folder.exists():
        hint = f"choose another folder: llmb-run plugins new {name} FOLDER"
        raise UsageError(f"{folder} already exists", hint=hint, code="folder-exists", value=folder)
    texts = scaffold.scaffold(plain, kind)
    files.write_folder(folder, texts)
    for path in texts:
        console.echo(f"{folder / path}")
    where = folder if folder.is_absolute() else f"./{folder}"
    say(f"install the plugin:       pip install -e {where}")
    say("check it:                 llmb-run plugins check")
    if kind in scaffold.WITH_WORKLOAD:
        size = " -s tiny" if kind == scaffold.WORKLOAD else ""
        say(f"preview a job:            llmb-run single -w {plain}{size} --scale 1 -d")
        say(f"install what jobs need:   llmb-install add {plain} --yes")
    elif kind == scaffold.CLUSTER:
        say(f"install for it:           llmb-install --set cluster_type={key} --set gpu_type=cpu --install bench")
    elif kind == scaffold.COMMAND:
        say(f"run it:                   llmb-run {plain}")


def _check_free(context: Context, name: str, wanted: str, kind: str) -> None:
    """Raise UsageError if a workload or command of this name exists, where the new plugin would add one."""
    plugins = context.plugins
    if kind == scaffold.COMMAND and wanted in [command.name for command in plugins.commands()]:
        message, hint = f"llmb-run already has a command '{wanted}'", "choose another name"
        raise UsageError(message, hint=hint, code="name-duplicate", value=name)
    if kind == scaffold.CLUSTER and wanted in plugins.cluster_types():
        message, hint = f"llmb already has the cluster type '{wanted}'", "choose another name"
        raise UsageError(message, hint=hint, code="name-duplicate", value=name)
    for key in context.workloads if kind in scaffold.WITH_WORKLOAD else ():
        if squash_workload(key) == squash_workload(wanted):
            message = f"plugin {plugins.offers[key].source} already offers {key}"
            hint = "choose another name: llmb uses neither of two plugins that offer the same workload"
            raise UsageError(message, hint=hint, code="workload-duplicate", value=name)
