# SPDX-License-Identifier: Apache-2.0
"""The plugins, the install directory and the cluster of a command, each loaded on first use."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.cli.commands import TAKE_INSTALL, Deferred
from llmb.core import console, files
from llmb.errors import INTERRUPTED, InputFaults, LlmbError, UsageError, describe
from llmb.plan import locate
from llmb.plan.locate import is_archive

if TYPE_CHECKING:
    from llmb.contract.cluster import Cluster
    from llmb.contract.launch_variable import Variables
    from llmb.contract.record import RunRecord
    from llmb.contract.schema import ClusterConfig
    from llmb.contract.spec import Workload
    from llmb.measure.reader import LogReader
    from llmb.plan.published import Figure
    from llmb.plugins.loaded import Plugins
    from llmb.run.store import Unreadable

_COMMAND = re.compile(r"llmb-run((?: [a-z][a-z-]*)+)(?![^\n;]*--install)")


def say(text: str, *, links: Sequence[Path] = ()) -> None:
    """Print a message on stderr, since stdout is for data. The paths ``links`` in it are links."""
    console.echo(completed(text), err=True, prose=True, links=links)


def completed(text: str) -> str:
    """Add the ``--install`` of the present command to the commands in ``text``."""
    current = click.get_current_context(silent=True)
    context = current.find_object(CliContext) if current is not None else None
    if current is None or context is None:
        return text
    return with_install(text, current.find_root().command, context.install_option)


def with_install(text: str, group: click.Command, install: Path | None) -> str:
    """Add ``--install`` to each command of ``group`` in ``text`` that takes it, for pasting."""
    if install is None or "llmb-run " not in text:
        return text

    is_in_archive = is_archive(str(install))

    def inserted(words: Sequence[str], depth: int) -> str:
        option = ["--install", shlex.quote(str(install))]
        return " ".join(["llmb-run", *words[:depth], *option, *words[depth:]])

    def with_option(match: re.Match[str]) -> str:
        command, words = group, match[1].split()
        if not is_in_archive and (depth := _depth_that_takes_install(group, words)):
            return inserted(words, depth)
        depth = 0
        while depth < len(words) and isinstance(command, click.Group):
            if (subcommand := command.get_command(click.Context(command), words[depth])) is None:
                break
            command, depth = subcommand, depth + 1
        metavars = [option.metavar or "" for option in command.params if "--install" in option.opts]
        if not depth or not metavars or (is_in_archive and "ARCHIVE" not in metavars[0]):
            return match[0]
        return inserted(words, depth)

    return _COMMAND.sub(with_option, text)


def _depth_that_takes_install(group: click.Command, words: Sequence[str]) -> int:
    """Return the number of words of a command that takes ``--install`` and is not imported yet.

    0 for others, of which only the command itself says that.
    """
    commands = group.commands if isinstance(group, click.Group) else {}
    if not words or not isinstance(commands.get(words[0]), Deferred):
        return 0
    return next((depth for depth in (1, 2) if tuple(words[:depth]) in TAKE_INSTALL), 0)


class CliContext:
    """The common options of a command, and what it loads of plugins and install directory."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._searched: set[Path | None] = set()  # installs whose benchmarks are among the plugins
        #: The folder of ``--install``, or an archive if the command ``reads_archives``.
        self.install_option: Path | None = None
        #: Options of sbatch: those of ``--slurm-arg`` and those with names of their own.
        self.slurm_args: dict[str, str | bool] = {}
        self.reads_archives = False
        self.words: tuple[str, ...] = ()  # of the command line
        self.verbose = False
        self.is_called = False  # by a command of a plugin, which says itself what comes next

        self._figures: dict[str, tuple[Figure, ...] | None] = {}  # None: faulty
        self._readers: dict[tuple[str, str], LogReader] = {}

    @property
    def plugins(self) -> Plugins:
        """The plugins, with the benchmarks in YAML that the install directory has."""
        if (option := self.install_option) not in self._searched:
            from llmb.plugins.loader import add_benchmarks

            self._searched.add(option)
            with contextlib.suppress(LlmbError):  # without an install directory there are none
                add_benchmarks(self._plugins, locate.find_install(option, os.environ))
        return self._plugins

    def of_archive(self, path: Path) -> CliContext:
        """A context whose install directory is an archive."""
        context = CliContext(self._plugins)
        context.install_option, context.reads_archives = path, True
        return context

    def with_plugins(self, plugins: Plugins) -> CliContext:
        """A context of the same install directory with ``plugins`` alone."""
        context = CliContext(plugins)
        context.install_option, context._searched = self.install_option, {self.install_option}
        return context

    @cached_property
    def archive(self) -> Path | None:
        """The archive in the place of an install directory, or None for a directory."""
        path = self.install_option or files.expand(os.environ.get("LLMB_INSTALL") or ".")
        return path if self.reads_archives and is_archive(str(path)) else None

    def shown(self, path: Path) -> str:
        """Return a path for people and programs, in an archive ``night.tar.zst:workloads/...``."""
        install = self.config.llmb_install if self.archive is not None else None
        if install is None or not path.is_relative_to(install):
            return str(path)
        return f"{self.archive}:{path.relative_to(install)}"

    def advice(self, fix: str) -> str:
        """Adapt ``fix`` to an archive, whose runs are retried where they ran."""
        return (
            f"where it ran: {fix}"
            if self.archive is not None and "llmb-run jobs retry" in fix
            else fix
        )

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """The workloads by key. Prints a warning for each plugin that could not be used."""
        workloads = self.plugins.workloads()
        self._warn_of_plugins()
        return workloads

    def _warn_of_plugins(self) -> None:
        """Print a warning for each plugin that cannot be used, or a part of it."""
        for problem in self.plugins.problems:
            console.warn_once(str(problem))

    def _warn_of_settings(self, install: Path) -> None:
        """Print a warning for each wrong setting of a plugin, whose launches are refused."""
        from llmb.core import yamlfile

        faults_by_plugin = self.plugins.faults_of_settings(
            yamlfile.load(install / locate.CONFIG_FILE)
        )
        for source, faults in faults_by_plugin.items():
            for fault in faults:
                hint = f" ({fault.hint})" if fault.hint else ""
                console.warn_once(
                    f"{fault}{hint}: llmb refuses jobs that plugin {source} launches or changes"
                )

    @cached_property
    def variables(self) -> Variables:
        """The variables of other launchers, by name. Prints a warning for each plugin skipped."""
        variables = self.plugins.variables()
        self._warn_of_plugins()
        return variables

    @property
    def frameworks(self) -> list[str]:
        """The names of the frameworks that train the workloads."""
        from llmb.plan.framework import frameworks_in

        return frameworks_in(self.workloads.values())

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters that workloads declare."""
        return tuple(
            dict.fromkeys(
                name for workload in self.workloads.values() for name in workload.parameters
            )
        )

    def figures(self, keys: Iterable[str] | None = None) -> list[Figure]:
        """The published figures of the workloads ``keys`` (default: all).

        Prints the faults of a file once.
        """
        workloads = self.plugins.workloads()
        requested = workloads if keys is None else sorted(set(keys) & workloads.keys())
        return [figure for key in requested for figure in self._figures_of(key) or ()]

    def faulty_figures(self, keys: Iterable[str]) -> list[str]:
        """The workloads among ``keys`` whose published figures cannot be read."""
        known_keys = sorted(set(keys) & self.plugins.workloads().keys())
        return [key for key in known_keys if self._figures_of(key) is None]

    def _figures_of(self, key: str) -> tuple[Figure, ...] | None:
        from llmb.plan.published_tables import read_published

        if key not in self._figures:
            try:
                self._figures[key] = read_published(self.plugins.workloads()[key])
            except UsageError as error:
                self._figures[key] = None
                say(f"warning: the published figures of {key} are not used\n{describe(error)}")
        return self._figures[key]

    def log_reader(self, workload: Workload, run: RunRecord) -> LogReader:
        """The reader of the log of ``run``. Raises LlmbError.

        A plugin whose ``llmb_parse`` takes neither log nor run is asked once for each size.
        """
        from llmb.measure.reader import reader_of

        key = workload.key, run.job.model_size
        if key not in self._readers:
            spec = self.plugins.parse(workload, run)
            reader = reader_of(workload, run.job.model_size, spec, self.plugins.failures)
            if self.plugins.answers_by_run(workload):
                return reader
            self._readers[key] = reader
        return self._readers[key]

    @cached_property
    def config(self) -> ClusterConfig:
        """The configuration of the install directory with all layers.

        Prints a note for each layer above the file. ``kind`` is None for an unknown cluster type:
        runs can be shown, and ``need_type`` raises.
        """
        from llmb.plan import config_layers
        from llmb.plugins.foreign import find_own_install

        environ: Mapping[str, str] = os.environ
        start = self.install_option
        if self.archive is not None:
            from llmb.show.archive.tar_file import unpacked

            start = unpacked(self.archive)
            environ = {"XDG_CONFIG_HOME": str(start)}  # not the settings of this user
        install = find_own_install(lambda: self._plugins, start, environ)
        # always, so that a plugin whose types are wrong is reported
        kinds = self.plugins.cluster_types()
        config, notes = config_layers.load_config(
            install,
            environ,
            self.slurm_args,
            lambda: self.plugins.gpu_types,
            cluster_types=lambda: kinds,
            any_type=True,
        )
        if self.archive is not None:
            return replace(config, experiments_root=None)
        for note in () if notes and _is_unpacked(install) else notes:
            say(f"note: {note}")
        if config.plugins:
            self._warn_of_settings(install)
        self._warn_of_plugins()
        return config_layers.with_slurm_args(config, self.slurm_args)

    @cached_property
    def cluster(self) -> Cluster | None:
        """The cluster, or None for an unknown type, and for an archive. Raises PluginError."""
        from llmb.plugins.guarded_cluster import create

        if self.archive is not None:
            return None
        kind = self.plugins.cluster_types().get(self.config.cluster_type)
        return create(kind, self.config) if kind is not None else None

    def need_type(self) -> None:
        """Raise InputFaults for an unknown cluster type, with the fault of its skipped plugin."""
        if self.config.kind is None:
            from llmb.core import yamlfile
            from llmb.plan.read_config import unknown_type

            document = yamlfile.load(self.config.llmb_install / locate.CONFIG_FILE)
            raise InputFaults(
                [unknown_type(document, self.config.cluster_type, self.plugins.cluster_types())]
            )

    def need_cluster(self) -> Cluster:
        """The cluster. Raises UsageError for an unknown type, and for an archive."""
        self.need_type()
        if self.cluster is None:
            raise UsageError(
                "an archive has no cluster",
                hint="run the command in the install directory",
                code="cluster-missing",
                key="cluster_type",
            )
        return self.cluster

    def read_runs(self) -> tuple[list[RunRecord], list[Unreadable]]:
        """Read every run of this install directory and print a warning for each damaged record."""
        from llmb.run import store

        runs, damaged = store.all_runs(self.config)
        for folder in damaged:
            console.warn_once(folder.reason)
        return runs, damaged

    def runs(self, names: tuple[str, ...] = ()) -> list[RunRecord]:
        """The runs of this install directory that ``names`` name, each once (default: all)."""
        return select_runs(self.read_runs()[0], names)

    def sealed_archive(self, path: Path) -> CliContext:
        """The context of an archive. Raises LlmbError if a byte of it was changed."""
        from llmb.show.archive.tar_file import check_seal

        if not check_seal(path):
            raise LlmbError(
                f"{path} was changed, or is no archive of this release: it has no seal",
                hint="ask for it again",
                code="archive-unsealed",
                value=str(path),
            )
        return self.of_archive(path)

    def call(self, words: Sequence[str], *, shown: bool = False) -> tuple[int, str]:
        """Run ``llmb-run`` with ``words`` here, and return its exit code and its standard output.

        If ``shown``, the output is printed in its place among the messages, and not returned.
        Raises LlmbError and click's exceptions, and KeyboardInterrupt also where the command
        ends by itself after Ctrl-C.
        """
        # A context of its own: the configuration depends on the options of the command.
        context = self.with_plugins(self._plugins)
        context.words, context.verbose = tuple(words), self.verbose
        context.is_called = True
        group = click.get_current_context().find_root().command
        out = io.StringIO()
        with contextlib.nullcontext() if shown else contextlib.redirect_stdout(out):
            try:
                code = group.main(
                    [*words], prog_name="llmb-run", standalone_mode=False, obj=context
                )
            except click.Abort:  # which click makes of KeyboardInterrupt
                raise KeyboardInterrupt from None
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0, out.getvalue()


def _is_unpacked(install: Path) -> bool:
    """Return True for an archive's folder, whose configuration names the cluster that wrote it."""
    from llmb.show.archive.contents import MANIFEST

    return (install / MANIFEST).is_file()


def select_runs(runs: list[RunRecord], names: tuple[str, ...]) -> list[RunRecord]:
    """Return the ``runs`` with these ``names``, each once, or all of them without names."""
    from llmb.run import store

    return list({run.id: run for run in store.find_runs(names, runs)}.values()) if names else runs


pass_context = click.make_pass_decorator(CliContext)
