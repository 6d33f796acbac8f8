# SPDX-License-Identifier: Apache-2.0
"""`llmb-run plugins`: lists the plugins, checks them, and writes a new one."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from llmb.builtin.nemo import nemo_needs, recipe_checks
from llmb.builtin.plugins import builtin_plugins
from llmb.check import cluster_trial, scaffold, workload_trial
from llmb.check.log_trial import lines_of_trial, result_of_trial, sample_faults, undeclared
from llmb.cli import commands, options, output
from llmb.cli.context import CliContext, pass_context, say
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.core import console, files, yamlfile
from llmb.core.grouping import grouped
from llmb.core.names import squash_workload
from llmb.core.tables import Column, escape
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, collected, describe
from llmb.plan import config_layers
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.select import split_name
from llmb.plugins.foreign import find_own_install
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import add_file, load_plugins
from llmb.plugins.owners import Problem
from llmb.plugins.settings import Sections, key_of, normalized
from llmb.plugins.sources import BENCHMARKS, files_to_check


@click.group("plugins", cls=options.CommandGroup, invoke_without_command=True)
@click.option(
    "--format", "fmt", type=click.Choice(options.FORMATS), help="Output format of the list."
)
@click.pass_context
def group(click_context: click.Context, fmt: str | None) -> None:
    """List, check and create plugins."""
    command = click_context.invoked_subcommand
    if command is None:
        click_context.invoke(list_, fmt=fmt or "table")
    elif fmt is not None:
        raise UsageError(
            "--format is for the list",
            hint=f"llmb-run plugins list --format {fmt}",
            code="format-misplaced",
            key="format",
            value=command,
        )


@group.command("list")
@options.format_option
@pass_context
def list_(context: CliContext, fmt: str) -> None:
    """Show the plugins: version, kind, file, and what each one adds."""
    plugins = context.plugins
    by_source = grouped((plugins.offers[key].source, key) for key in plugins.workloads())
    types, commands = plugins.names("llmb_clusters"), plugins.names("llmb_commands")
    plugins.variables()  # finds the wrong ones
    plugins.commands()
    refused = grouped((problem.source, problem) for problem in plugins.problems)
    rows = [
        {
            "plugin": source,
            "version": plugins.version(source),
            "status": _status(refused.get(source, [])),
            "kind": plugins.kind(source),
            "workload": ", ".join(by_source.get(source, [])),
            "cluster_type": ", ".join(types.get(source, [])),
            "command": ", ".join(commands.get(source, [])),
            "contract": plugins.contract(source),
            "file": str(plugins.file(source) or ""),
            "reason": "; ".join(
                [
                    *(refusal.summary for refusal in refused.get(source, [])),
                    *plugins.notes(source),
                ]
            ),
        }
        for source in sorted({*plugins.sources, *refused})
    ]
    wide = ("version", "kind", "cluster_type", "command", "contract", "file")
    columns = [
        Column(key=name, heading=name.replace("_", " ").capitalize(), optional=name in wide)
        for name in rows[0]
    ]
    output.print_rows(columns, rows, fmt)


def _status(problems: list[Problem]) -> str:
    """The status of a plugin with these problems: ok, in part, or skipped."""
    if not problems:
        return "ok"
    return "in part" if all(problem.part for problem in problems) else "skipped"


@group.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show what llmb reads from this log.",
)
@click.option(
    "-w",
    "--workload",
    metavar="W",
    help="Only this workload, plugin, distribution or module; with --log, its W_SIZE too.",
)
@options.install_option
@pass_context
def check(context: CliContext, file: Path | None, log: Path | None, workload: str | None) -> int:
    """Check all plugins, or that of -w. Exit code 1 on a fault.

    FILE is a benchmark in YAML, a module, a package, or a folder of these, which need not be
    installed. Only these are checked.
    A plugin must load, its published figures must be readable, each of its rows must be a valid
    configuration, its hooks must answer for each GPU type, dtype, scale and choice of a parameter,
    its sample log must measure the headline metric, and its cluster types must render a script.
    Hooks for reports, names of nodes, hints and imports are not tried. NeMo must have its recipes:
    the installed NeMo, otherwise NeMo 2.3.1. Plugins for a whole cluster are tried on every
    workload. In an install directory, or with --install, plugins get the settings of its
    configuration. With --log, show what the plugin
    of a workload reads from a log instead, with exit code 1 if the headline metric is missing.
    """
    command = "llmb-run plugins check"
    if file is not None:
        context = context.with_plugins(_plugins_of_file(file))
        command += f" {shlex.quote(str(file))}"
    if log is not None:
        return _try_log(context, log, workload)
    plugins = context.plugins
    workloads, sources = plugins.workloads(), plugins.sources
    kinds = list(plugins.cluster_types().values())
    plugins.variables()  # finds the wrong ones
    plugins.commands()
    plugins.try_failures()
    problems = plugins.problems
    if workload is not None:
        try:
            sources = _sources_named(plugins, workload)
        except UsageError:  # one that is skipped may have it
            _say_problems(problems)
            raise
        workloads = {
            key: workload_spec
            for key, workload_spec in workloads.items()
            if plugins.offers[key].source in sources
        }
        kinds = [kind for kind in kinds if kind.source in sources]
        problems = [problem for problem in problems if problem.source in sources]
    _say_problems(problems)
    faulty_figures = context.faulty_figures(workloads)
    config, faults = _config(context), list[Fault]()
    sections = _settings(context, config, faults)
    venvs = _nemo_venvs(config, workloads)
    installed = {venv: recipe_checks.installed_names(venv) for venv in set(venvs.values())}
    for key, workload_spec in workloads.items():
        faults += workload_trial.faults_of(workload_spec, plugins, installed[venvs[key]], sections)
    faults += [
        fault
        for workload_spec in workloads.values()
        for fault in sample_faults(workload_spec, plugins, command)
    ]
    faults += cluster_trial.cluster_faults(kinds)
    if faults:
        say(describe(InputFaults(list(dict.fromkeys(faults)))))
    if problems or faulty_figures or faults:
        return 1
    count = len(sources)
    for source in sources:
        for note in plugins.notes(source):
            say(f"note: plugin {source} is {note}")
    for key, workload_spec in workloads.items():
        if not plugins.is_own(plugins.offers[key].source):  # as published
            for note in workload_trial.notes_of(workload_spec):
                say(f"note: {note}")
    console.echo(f"{count} plugin{'' if count == 1 else 's'} checked, no faults")
    return 0


def _say_problems(problems: Iterable[Problem]) -> None:
    for problem in problems:
        until = f"plugin {problem.source} is skipped until this is fixed"
        faults = list(problem.faults) or [Fault(place=problem.source, message=problem.reason)]
        say(describe(InputFaults(faults, hint=until if problem.faults else None)))


def _plugins_of_file(file: Path) -> Plugins:
    """Return llmb's frameworks and the plugins in ``file``, which may be a folder.

    Raises UsageError.
    """
    paths = files_to_check(file) if file.is_dir() or file.suffix in (".yaml", ".py") else []
    if not paths or not file.exists():
        problem = "is no benchmark in YAML and no module"
        if file.is_dir():
            problem = "has no benchmark in YAML and no module or package with hooks"
        raise UsageError(
            f"{file} {problem if file.exists() else 'does not exist'}",
            hint="name a file such as stream.yaml or fabric.py, or the folder of a package",
            code="path-missing" if not file.exists() else "file-kind",
            key="FILE",
            value=file,
        )
    plugins = load_plugins([("commands", commands), *builtin_plugins()], entries=())
    # NAME/benchmark.yaml is named as LLMB_PLUGINS names it
    folder = file.absolute().parent if [file] == [path.parent for path in paths] else file
    for path in paths:
        add_file(plugins, path, folder if file.is_dir() else None)
    return plugins


def _sources_named(plugins: Plugins, name: str) -> list[str]:
    """The plugin with a workload called ``name``, or those that are called so.

    A plugin has the names of its distribution, entry point and module. Raises UsageError.
    """
    sources = list(
        dict.fromkeys([*plugins.sources, *(problem.source for problem in plugins.problems)])
    )
    if name in sources:
        return [name]
    try:
        return [plugins.offers[split_name(name, plugins.workloads())[0]].source]
    except UsageError:
        named = [source for source in sources if normalized(name) in _names_of(plugins, source)]
        if not named:
            raise
        return named


def _names_of(plugins: Plugins, source: str) -> set[str]:
    return {normalized(name) for name in (*source.split(":"), plugins.calls.owner(source)) if name}


def _try_log(context: CliContext, log: Path, name: str | None) -> int:
    """Print what the plugin of the workload ``name`` (None: each plugin) reads in ``log``.

    The exit code is 1 if no headline metric is measured.
    """
    if not log.is_file():
        raise UsageError(
            f"{log} does not exist",
            hint="check the path",
            code="path-missing",
            key="--log",
            value=log,
        )
    workloads = context.workloads
    if name is not None:
        targets = _targets_named(context.plugins, name, workloads)
    else:
        targets = [(key, workload.default_size) for key, workload in workloads.items()]
    trials = [
        (key, size, result_of_trial(workloads[key], size, log, context.plugins))
        for key, size in targets
    ]
    read = [trial for trial in trials if trial[2].metrics.max_iteration is not None]
    for key, size, result in read if name is None else trials:
        console.echo(f"{key}_{size}")
        for line in lines_of_trial(result):
            console.echo(f"  {escape(line)}")
        for metric, advice in (
            undeclared(workloads[key], log).items() if workloads[key].metrics else ()
        ):
            say(f"warning: {key} declares no metric '{metric}', which the log has\nhint: {advice}")
    if not read and name is None:
        say("no plugin finds a step in it; -w W shows why for one workload")
    return 0 if any(result.metrics.has_figures for _, _, result in read) else 1


def _targets_named(
    plugins: Plugins, name: str, workloads: Mapping[str, Workload]
) -> list[tuple[str, str]]:
    """Return workload and size of ``name``, or of each workload of the plugin with that name."""
    try:
        key, size = split_name(name, workloads)
    except UsageError:
        sources = _sources_named(plugins, name)
        keys = [key for key in workloads if plugins.offers[key].source in sources]
        if not keys:
            raise
        return [(key, workloads[key].default_size) for key in keys]
    return [(key, size or workloads[key].default_size)]


def _config(context: CliContext) -> ClusterConfig | None:
    """The configuration whose settings and environments the check uses, or None without one.

    Raises LlmbError for an invalid one that ``--install`` names.
    """
    try:
        install = find_own_install(lambda: context.plugins, context.install_option, os.environ)
    except LlmbError:
        if context.install_option is not None:
            raise
        return None
    try:
        types = context.plugins.cluster_types
        return config_layers.load_config(
            install, os.environ, types=lambda: context.plugins.gpu_types, cluster_types=types
        )[0]
    except LlmbError as error:
        if context.install_option is not None:
            raise
        say(f"{describe(error)}\nnote: plugins are checked without this configuration")
        return None


def _settings(context: CliContext, config: ClusterConfig | None, faults: list[Fault]) -> Sections:
    """The settings that plugins are checked with. Wrong ones go to ``faults`` and are not used.

    Prints which settings are used.
    """
    plugins = context.plugins
    able = [
        source
        for source, origin in plugins.calls.sources.items()
        if not origin.is_own and plugins.calls.implementation(source, "llmb_settings")
    ]
    able = list(dict.fromkeys([*able, *cluster_trial.site_wide(plugins)]))
    if config is None:
        if able:
            advice = "--install DIR uses those of a cluster_config.yaml"
            say(f"note: default settings of {', '.join(able)}; {advice}")
        return {}
    file = config.llmb_install / CONFIG_FILE
    document = yamlfile.load(file)
    faults_by_plugin = plugins.faults_of_settings(document)
    faults += dict.fromkeys(
        fault for plugin_faults in faults_by_plugin.values() for fault in plugin_faults
    )
    with collected(faults):
        plugins.require_named(document, config.plugins)
    refused = [key_of(config.plugins, source) for source in faults_by_plugin]
    used = {
        key: plugin_faults for key, plugin_faults in config.plugins.items() if key not in refused
    }
    if used:
        say(f"note: settings of {', '.join(used)} from {file}")
    if unset := [source for source in able if key_of(config.plugins, source) is None]:
        say(f"note: default settings of {', '.join(unset)}: {file} has none")
    return used


def _nemo_venvs(config: ClusterConfig | None, keys: Iterable[str]) -> dict[str, Path | None]:
    """The installed environment of NeMo of each workload, or None without one."""
    if config is None:
        return dict.fromkeys(keys)
    settings = {key: config.workloads.of(key) for key in keys}
    return {
        key: installed.venvs.get(nemo_needs.VENV, installed.venv_path)
        for key, installed in settings.items()
    }


@group.command("new")
@click.argument("name")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(scaffold.KINDS),
    default=scaffold.WORKLOAD,
    help="What the plugin adds to llmb.",
)
@pass_context
def new(context: CliContext, name: str, folder: Path | None, kind: str) -> None:
    """Write a new plugin called NAME.

    The plugin is written to FOLDER (default: ./NAME). It is complete, with tests, and runs on this
    machine. KIND:

    \b
    workload   a model that NeMo trains, as a table
    bridge     a model that Megatron-Bridge trains, in YAML alone
    yaml       a benchmark with a program, in YAML alone
    program    a benchmark with its own program
    metric     an existing program, and how to read its log
    cluster    a cluster type
    command    a command of llmb-run
    """
    plain = scaffold.plain_name(name)
    folder = folder or Path(plain)
    names = scaffold.Names(plain=plain, kind=kind)
    _check_free(context, name, names.key, kind)
    if kind not in scaffold.FILES:
        scaffold.check_new(names)
    if folder.exists():
        raise UsageError(
            f"{folder} already exists",
            hint=f"choose another folder: llmb-run plugins new {name} FOLDER",
            code="folder-exists",
            value=folder,
        )
    texts = scaffold.scaffold(plain, kind)
    files.write_folder(folder, texts)
    for path in texts:
        console.echo(f"{folder / path}")
    for purpose, command in _next_commands(context.plugins, names, folder):
        say(f"{purpose + ':':<26}{command}")


#: The install directory that printed commands make if this command has none.
_NEW_INSTALL = Path("bench")


def _next_commands(
    plugins: Plugins, names: scaffold.Names, folder: Path
) -> Iterator[tuple[str, str]]:
    """Yield what an author does next with a new plugin: purpose and command, in this order.

    The commands name the install directory of this command. If it has none, they make one.
    """
    plain, kind = names.plain, names.kind
    path = shlex.quote(str(folder) if folder.is_absolute() else f"./{folder}")
    try:
        install, option = find_own_install(lambda: plugins, None, os.environ), ""
    except LlmbError:
        install, option = _NEW_INSTALL, f" --install {_NEW_INSTALL}"
    if kind in scaffold.FILES:
        benchmarks = shlex.quote(str(install / BENCHMARKS))
        yield "check it", f"llmb-run plugins check {path}"
        yield "add it to an install", f"mkdir -p {benchmarks} && mv {path} {benchmarks}/"
    else:
        yield "install the plugin", f"pip install -e {path}"
        yield "check it", f"llmb-run plugins check -w {plain}"
    if kind in scaffold.WITH_WORKLOAD:
        size = " -s tiny" if kind == scaffold.WORKLOAD else ""
        gpus = 8 if kind == scaffold.BRIDGE else 1
        answers = "--set cluster_type=local --set gpu_type=cpu "
        if kind == scaffold.BRIDGE:  # which needs GPUs, so llmb-install asks for the cluster
            answers = ""
        make = f"llmb-install {answers}--set workloads={plain}{option}{' --yes' if answers else ''}"
        steps = [
            ("preview a job", f"llmb-run submit -w {plain}{size} --scale {gpus}{option} -d"),
            ("install what jobs need", make if option else f"llmb-install add {plain} --yes"),
        ]
        yield from reversed(steps) if option else steps
    elif kind == scaffold.CLUSTER:
        answers = f"--set cluster_type={names.key} --set gpu_type=cpu"
        yield "install for it", f"llmb-install {answers} --install {names.key}-{_NEW_INSTALL}"
    elif kind == scaffold.COMMAND:
        yield "run it", f"llmb-run {plain}{' --help' if option else ''}"


def _check_free(context: CliContext, name: str, new_key: str, kind: str) -> None:
    """Raise UsageError if a workload, cluster type or command of this name exists."""
    plugins = context.plugins
    if kind == scaffold.COMMAND and new_key in [command.name for command in plugins.commands()]:
        raise UsageError(
            f"llmb-run already has a command '{new_key}'",
            hint="choose another name",
            code="name-duplicate",
            value=name,
        )
    if kind == scaffold.CLUSTER and new_key in plugins.cluster_types():
        raise UsageError(
            f"llmb already has the cluster type '{new_key}'",
            hint="choose another name",
            code="name-duplicate",
            value=name,
        )
    for key in context.workloads if kind in scaffold.WITH_WORKLOAD else ():
        if squash_workload(key) == squash_workload(new_key):
            raise UsageError(
                f"plugin {plugins.offers[key].source} already offers {key}",
                hint=(
                    "choose another name: llmb uses neither of two plugins"
                    " that offer the same workload"
                ),
                code="workload-duplicate",
                value=name,
            )
