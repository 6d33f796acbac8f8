# SPDX-License-Identifier: Apache-2.0
"""What a command works with: the plugins, the install directory and its cluster, each loaded on first use."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb import config as configuration
from llmb.config.locate import is_archive
from llmb.errors import InputFaults, UsageError, describe
from llmb.system import console, files

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster
    from llmb.plugins.loaded import Plugins
    from llmb.results.run_result import LogReader
    from llmb.runs.record import RunRecord
    from llmb.runs.state import JobState
    from llmb.runs.store import Unreadable
    from llmb.workload.published import Figure
    from llmb.workload.spec import Workload

_COMMAND = re.compile(r"llmb-run((?: [a-z][a-z-]*)+)(?![^\n;]*--install)")


def say(text: str) -> None:
    """Print a message on stderr; stdout is for data."""
    console.echo(completed(text), err=True)


def completed(text: str) -> str:
    """``text`` with ``--install`` in its commands where it was given to the present one."""
    current = click.get_current_context(silent=True)
    context = current.find_object(Context) if current is not None else None
    if current is None or context is None:
        return text
    return with_install(text, current.find_root().command, context.install_option)


def with_install(text: str, group: click.Command, install: Path | None) -> str:
    """``text`` with ``--install`` in each command of ``group`` that takes it, so that it can be pasted."""
    if install is None or "llmb-run " not in text:
        return text

    def with_option(match: re.Match[str]) -> str:
        command, words = group, match[1].split()
        taken = 0
        while taken < len(words) and isinstance(command, click.Group):
            if (found := command.get_command(click.Context(command), words[taken])) is None:
                break
            command, taken = found, taken + 1
        metavars = [option.metavar or "" for option in command.params if "--install" in option.opts]
        if not taken or not metavars or (is_archive(str(install)) and "ARCHIVE" not in metavars[0]):
            return match[0]
        return " ".join(["llmb-run", *words[:taken], "--install", shlex.quote(str(install)), *words[taken:]])

    return _COMMAND.sub(with_option, text)


class Context:
    """The state of one command. ``install_option`` is set by ``--install``, ``slurm_args`` by ``--slurm-arg``
    and the options of sbatch with names of their own, ``verbose`` by ``-v``.

    ``install_option`` may be an archive where the command ``reads_archives``: then ``config`` is that of the archive.
    ``faulty_figures``: workloads whose published figures could not be read; ``unreadable``: runs that could not;
    ``every``: the runs that were read last, None before; ``states``: those of runs that were asked for, by their ids.
    """

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins
        self.install_option: Path | None = None
        self.slurm_args: dict[str, str | bool] = {}
        self.reads_archives = False
        self.verbose = False
        self.faulty_figures: list[str] = []
        self.unreadable: list[Unreadable] = []
        self.every: list[RunRecord] | None = None
        self.states: dict[str, JobState] = {}
        self._figures: dict[str, tuple[Figure, ...]] = {}
        self._readers: dict[tuple[str, str], LogReader] = {}

    def of_archive(self, path: Path) -> Context:
        """A context whose install directory is an archive."""
        other = Context(self.plugins)
        other.install_option, other.reads_archives = path, True
        return other

    @cached_property
    def archive(self) -> Path | None:
        """The archive that a command which reads uses in the place of an install directory; None for a directory."""
        given = self.install_option or files.expand(os.environ.get("LLMB_INSTALL") or ".")
        return given if self.reads_archives and is_archive(str(given)) else None

    def shown(self, path: Path) -> str:
        """A path for people and programs; of a file in an archive, ``night.tar.zst:workloads/...``."""
        install = self.config.llmb_install if self.archive is not None else None
        if install is None or not path.is_relative_to(install):
            return str(path)
        return f"{self.archive}:{path.relative_to(install)}"

    def advice(self, fix: str) -> str:
        """``fix`` as the reader can follow it: a run of an archive is retried where it ran."""
        return f"where it ran: {fix}" if self.archive is not None and "llmb-run jobs retry" in fix else fix

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
        """Print a warning for each wrong setting of a plugin: it costs the launches of that plugin alone."""
        from llmb.text import yamlfile

        found = self.plugins.faults_of_settings(yamlfile.load(install / configuration.CONFIG_FILE))
        for source, faults in found.items():
            for fault in faults:
                hint = f" ({fault.hint})" if fault.hint else ""
                console.warn_once(f"{fault}{hint}: llmb refuses jobs that plugin {source} launches or changes")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters that workloads declare."""
        return tuple(dict.fromkeys(name for own in self.workloads.values() for name in own.parameters))

    def figures(self, keys: Iterable[str] | None = None) -> list[Figure]:
        """The published figures of the workloads ``keys`` (default: all). Prints a faulty file once."""
        from llmb.workload.published_tables import read_published

        workloads = self.plugins.workloads()
        wanted = [key for key in (workloads if keys is None else sorted(set(keys))) if key in workloads]
        for key in wanted:
            if key not in self._figures:
                try:
                    self._figures[key] = read_published(workloads[key])
                except UsageError as error:
                    self._figures[key] = ()
                    self.faulty_figures.append(key)
                    say(f"warning: the published figures of {key} are not used\n{describe(error)}")
        return [figure for key in wanted for figure in self._figures[key]]

    def log_reader(self, workload: Workload, run: RunRecord) -> LogReader:
        """How the log of ``run`` is read; asks a plugin without an ``llmb_parse`` once. Raises LlmbError."""
        from llmb.results.run_result import reader_of

        key = workload.key, run.job.model_size
        if key not in self._readers:
            reader = reader_of(workload, run.job.model_size, self.plugins.parse(workload, run))
            if self.plugins.reads_logs(workload):
                return reader
            self._readers[key] = reader
        return self._readers[key]

    @cached_property
    def config(self) -> configuration.ClusterConfig:
        """The configuration of the install directory with all layers. Prints a note for each layer above the file.

        ``kind`` is None for a cluster type that is not known here: runs can be shown, and ``need_type`` raises.
        """
        environ: Mapping[str, str] = os.environ
        given = self.install_option
        if self.archive is not None:
            from llmb.archive.tar_file import unpacked

            given = unpacked(self.archive)
            environ = {"XDG_CONFIG_HOME": str(given)}  # not the settings of this user
        install = configuration.find_install(given, environ)
        kinds = self.plugins.cluster_types()  # always, so that a plugin whose types are wrong is reported
        config, notes = configuration.load_config(
            install, environ, self.slurm_args, lambda: self.plugins.gpu_types, lambda: kinds, any_type=True
        )
        if self.archive is not None:
            return replace(config, experiments_root=None)
        for note in notes:
            say(f"note: {note}")
        if config.plugins:
            self._warn_of_settings(install)
        self._warn_of_plugins()
        return configuration.with_slurm_args(config, self.slurm_args)

    @cached_property
    def cluster(self) -> Cluster | None:
        """The cluster; None for a type that is not known here, and for an archive. Raises PluginError."""
        from llmb.clusters.guarded import create

        if self.archive is not None:
            return None
        kind = self.plugins.cluster_types().get(self.config.cluster_type)
        return create(kind, self.config) if kind is not None else None

    def need_type(self) -> None:
        """Raise InputFaults for a cluster type that is not known here, with what failed where its plugin is skipped."""
        if self.config.kind is None:
            from llmb.config.reading import unknown_type
            from llmb.text import yamlfile

            document = yamlfile.load(self.config.llmb_install / configuration.CONFIG_FILE)
            raise InputFaults([unknown_type(document, self.config.cluster_type, self.plugins.cluster_types())])

    def need_cluster(self) -> Cluster:
        """The cluster. Raises UsageError for a type that is not known here, and for an archive."""
        self.need_type()
        if self.cluster is None:
            message, hint = "an archive has no cluster", "run the command in the install directory"
            raise UsageError(message, hint=hint, code="cluster-missing", key="cluster_type")
        return self.cluster

    def runs(self, names: tuple[str, ...] = ()) -> list[RunRecord]:
        """The runs of this install that ``names`` name, each once (default: all). Warns of unreadable runs."""
        from llmb.runs import store

        runs, self.unreadable = store.all_runs(self.config)
        self.every = runs
        for one in self.unreadable:
            console.warn_once(one.reason)
        return list({run.id: run for run in store.find_runs(names, runs)}.values()) if names else runs


pass_context = click.make_pass_decorator(Context)
