# SPDX-License-Identifier: Apache-2.0
"""The loaded plugins: what they offer, and the answers of their hooks, each call guarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pluggy

from llmb import api
from llmb.core import console
from llmb.core.grouping import grouped
from llmb.core.names import squash_workload
from llmb.errors import Fault, InputFaults, KeyFaultError, LlmbError, PluginError, UsageError
from llmb.plugins.adapters import Contract
from llmb.plugins.calls import Calls
from llmb.plugins.contract import FIRST_CONTRACT, STATEMENT, is_site_wide, major_for
from llmb.plugins.guard import as_plugin_error, guarded, is_from, rejected, wrong_answer
from llmb.plugins.owners import Claim, Offer, Problem, reason_of, settle, without_conflicts
from llmb.plugins.sources import YamlBenchmarks

if TYPE_CHECKING:
    import click

    from llmb.contract.cluster_type import OfferedTypes
    from llmb.contract.launch_variable import Variables
    from llmb.contract.schema import ClusterConfig
    from llmb.core.yamlfile import Document
    from llmb.plugins.settings import Sections

_KINDS = {
    "llmb_commands": "command",
    "llmb_clusters": "cluster type",
    "llmb_frameworks": "framework",
    "llmb_variables": "variable",
}
# What a plugin with a hook adds to llmb, as `plugins list` shows it.
_ADDS = {
    "llmb_workload": "workload",
    "llmb_clusters": "cluster type",
    "llmb_frameworks": "framework",
    "llmb_commands": "command",
    "llmb_failures": "causes of failures",
    "llmb_report": "report",
    "llmb_nodes": "names of nodes",
    "llmb_log_settings": "settings of logs",
    "llmb_import": "imports",
    "llmb_variables": "variables of launchers",
    "llmb_job_list": "job lists",
    "llmb_hint": "hints",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """A hook whose answer is a list of values of one kind, a name of llmb.api."""

    hook: str
    kind: str
    #: Of the plugin, as people call it.
    part: str


_FAILURES = _Listing(hook="llmb_failures", kind="Failure", part="causes of failures")
_SECTIONS = _Listing(hook="llmb_report", kind="ReportSection", part="report sections")
T = TypeVar("T")
ResultRow = Mapping[str, Any]  # an object of ``llmb-run results --format json``


@dataclass(eq=False, kw_only=True)
class Plugins:
    """The loaded plugins. Workloads are read on first use."""

    calls: Calls
    default: str
    #: That they are loaded for.
    own_contract: Contract = field(default_factory=Contract)
    problems: list[Problem] = field(default_factory=list)
    known_flops: dict[tuple[str, api.ModelShape], api.Flops | None] = field(default_factory=dict)
    callers: dict[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)
    _claims: dict[str, list[Claim[Any]]] = field(default_factory=dict)

    @property
    def manager(self) -> pluggy.PluginManager:
        return self.calls.manager

    @property
    def sources(self) -> list[str]:
        """``distribution:entry`` of each loaded plugin except llmb's own."""
        return [name for name, _ in self.manager.list_name_plugin() if ":" in name]

    def commands(self) -> list[click.Command]:
        return [claim.item for claim in self._held("llmb_commands")]

    def cluster_types(self) -> OfferedTypes:
        """Return every cluster type by its name. A plugin's one knows its plugin."""
        from llmb.contract.cluster_type import OfferedTypes
        from llmb.plugins.calls import skipped_types

        types = {claim.name: claim.item for claim in self._held("llmb_clusters")}
        return OfferedTypes(types, lambda name: skipped_types(name, self.problems, self.calls))

    def variables(self) -> Variables:
        """Return every variable of other launchers by its name."""
        return {claim.name: claim.item for claim in self._held("llmb_variables")}

    def skipped_commands(self, name: str) -> tuple[list[str], list[str]]:
        """Return why nobody has the command ``name``, and the plugins that may offer it."""
        from llmb.plugins.calls import skipped_commands

        return skipped_commands(name, self.problems, self.calls)

    def contract(self, source: str) -> str:
        """Return the contract that a plugin states, else the first one. Empty if not loaded."""
        plugin = self.manager.get_plugin(source)
        return str(getattr(plugin, STATEMENT, FIRST_CONTRACT)) if plugin is not None else ""

    def notes(self, source: str) -> list[str]:
        """Return what the maintainers of a plugin should know although it works."""
        stated, contract = self.contract(source), self.own_contract
        if not stated or (major := major_for(stated, contract)) >= contract.major:
            return []
        return [
            f"made for contract {stated}, which llmb adapts to {contract.version}, for at least a"
            f" year from {contract.adapters[major].since}: docs/plugin-contract.md has what to"
            " change"
        ]

    def names(self, hook: str) -> dict[str, list[str]]:
        """Return the names of cluster types or commands (``hook``) that each plugin has."""
        return grouped((claim.source, claim.name) for claim in self._held(hook))

    def kind(self, source: str) -> str:
        """Return what a plugin adds to llmb, in words. Empty if it is not loaded."""
        plugin = self.manager.get_plugin(source)
        if isinstance(plugin, YamlBenchmarks):
            return "benchmark in YAML"
        words = [word for hook, word in _ADDS.items() if hasattr(plugin, hook)]
        return ", ".join([*words, *(["every job"] if is_site_wide(plugin) else [])])

    def file(self, source: str) -> Path | None:
        """Return the file of a plugin's module, None if it is not found."""
        origin = self.calls.sources.get(source)
        try:
            with guarded(source, "import", owner=self.calls.owner(source)):
                return origin.find_file() if origin is not None else None
        except LlmbError:  # its package fails, which is a problem of its own
            return None

    def version(self, source: str) -> str:
        """Return the version of a plugin's distribution. Empty if unknown and for a file."""
        origin = self.calls.sources.get(source)
        return "" if origin is None else origin.version

    def source_of(self, error: BaseException) -> str | None:
        """The plugin whose code was running when ``error`` was raised, if any."""
        return next(
            (source for source in self.sources if is_from(error, self.calls.owner(source))), None
        )

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """The workloads by key: of a key in any spelling, llmb's own plugin keeps it, or nobody."""
        claims = [claim for source in self.sources for claim in self._offers_of(source)]
        held, lost = settle(claims, "workload", "workload-duplicate", self.is_own)
        accepted, conflicts = without_conflicts(held, self.is_own)
        self._refuse(*lost, *conflicts)
        completed_offers = (self._with_frameworks(claim) for claim in accepted)
        return {claim.name: claim for claim in completed_offers if claim is not None}

    @cached_property
    def frameworks(self) -> dict[str, api.Framework]:
        """The frameworks of llmb and of all plugins, by name."""
        return {claim.name: claim.item for claim in self._held("llmb_frameworks")}

    @property
    def windows(self) -> dict[str, tuple[float, float]]:
        """The ``window`` of each framework that has its own, by its name."""
        windows = ((name, framework.window) for name, framework in self.frameworks.items())
        return {name: window for name, window in windows if window is not None}

    def _with_frameworks(self, offer: Offer) -> Offer | None:
        """Return the offer with every framework, or None if its own cannot be used."""
        try:
            return replace(offer, item=offer.item.known_to(self.frameworks))
        except LlmbError as error:
            self._refuse(problem_of_error(offer.source, error))
            return None

    def forget_workloads(self) -> None:
        """Find the workloads again at their next use: a plugin was added."""
        for name in ("offers", "gpu_types", "frameworks"):
            self.__dict__.pop(name, None)
        self._claims.pop("llmb_frameworks", None)

    def has_hook(self, hook: str) -> bool:
        """Return True if a plugin that is not llmb's own has ``hook``."""
        return any(self.calls.implementation(source, hook) is not None for source in self.sources)

    def report_sections(
        self,
        results: Sequence[ResultRow],
        runs: Sequence[api.RunRecord] = (),
        kept_results: Sequence[ResultRow] = (),
    ) -> list[api.ReportSection]:
        """Return the sections of all plugins on ``results``, rows of ``results --format json``."""
        arguments = {"results": results, "runs": runs, "kept_results": kept_results}
        return [
            section
            for source in self.sources
            for section in self._listed(source, _SECTIONS, **arguments)
        ]

    def nodes(
        self,
        name: str,
        runs: Sequence[api.RunRecord],
        kept_results: Sequence[ResultRow] = (),
    ) -> list[str]:
        """Return the nodes that ``@name`` means. Raises UsageError, PluginError."""
        arguments = {"name": name, "runs": runs, "kept_results": kept_results}
        for source in self.sources:
            nodes = self._answer(source, "llmb_nodes", **arguments)
            if nodes is not None:
                if not isinstance(nodes, (list, tuple)) or not all(
                    isinstance(node, str) and node for node in nodes
                ):
                    expected = "a list of names of nodes"
                    raise self.calls.answer_error(source, "llmb_nodes", nodes, expected)
                return list(nodes)
        raise UsageError(
            f"@{name} names no nodes: no installed plugin knows it",
            hint="write the nodes themselves, as in n[1-4],n7, or install the plugin",
            code="nodes-unknown",
            value=f"@{name}",
        )

    def hint_for(
        self, program: str, word: str, words: Sequence[str], options: Sequence[str]
    ) -> str | None:
        """Return a plugin's hint for a word that ``program`` does not know, or None."""
        return self._first(
            "llmb_hint", str, program=program, word=word, words=tuple(words), options=tuple(options)
        )

    def log_settings(self, log: Path) -> api.LogSettings | None:
        """Return the settings of the run of ``log`` by a file beside it, or None."""
        return self._first("llmb_log_settings", api.LogSettings, log=log)

    def foreign_install(self, folder: Path) -> api.ForeignInstall | None:
        """Return what a plugin finds in an install directory of another tool, or None.

        Raises UsageError, PluginError.
        """
        return self._first_or_error("llmb_import", api.ForeignInstall, folder=folder)

    def job_list(self, name: str, text: str) -> api.JobList | None:
        """Return the jobs in ``text`` if a plugin knows its format, or None.

        Raises UsageError, PluginError.
        """
        return self._first_or_error("llmb_job_list", api.JobList, name=name, text=text)

    def _first_or_error(self, hook: str, kind: type[T], **arguments: Any) -> T | None:
        """Return the first answer that is not None. llmb's own plugins are asked last."""
        for source in sorted(self.sources, key=self.is_own):
            answer = self._answer(source, hook, **arguments)
            if answer is not None:
                self.calls.require(source, hook, answer, (kind,))
                return cast("T", answer)
        return None

    def _first(self, hook: str, kind: type[T], **arguments: Any) -> T | None:
        """Return the first answer that is not None. A plugin that fails is reported and skipped."""
        for source in self.sources:
            try:
                answer = self._answer(source, hook, **arguments)
                if answer is not None:
                    self.calls.require(source, hook, answer, (kind,))
                    return cast("T", answer)
            except LlmbError as error:
                problem = replace(problem_of_error(source, error), part=hook)
                self._refuse(problem)
                console.warn_once(str(problem))
        return None

    def _answer(self, source: str, hook: str, **arguments: Any) -> Any:
        """Return the answer of a plugin's hook, which may take fewer arguments, or None."""
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            if implementation.plugin_name == source:
                values = (arguments[name] for name in implementation.argnames)
                return self.calls.call(source, hook, partial(implementation.function, *values))
        return None

    @cached_property
    def failures(self) -> tuple[api.Failure, ...]:
        """The causes of failures that plugins know, in the order of their names."""
        return tuple(
            failure for source in self.sources for failure in self._listed(source, _FAILURES)
        )

    def try_failures(self) -> None:
        """Ask every plugin for its causes of failures: what fails is then among ``problems``."""
        for source in self.sources:
            answer = self._list_or_problem(source, _FAILURES)
            if isinstance(answer, Problem):
                console.is_first(str(answer))  # the caller prints it as a fault

    def _listed(self, source: str, listing: _Listing, **arguments: Any) -> Sequence[Any]:
        """Return the list that a plugin's hook returns, empty if it has none or a wrong one."""
        answer = self._list_or_problem(source, listing, **arguments)
        if isinstance(answer, Problem):
            console.warn_once(str(answer))
            return ()
        return answer

    def _list_or_problem(
        self, source: str, listing: _Listing, **arguments: Any
    ) -> Sequence[Any] | Problem:
        if self.calls.implementation(source, listing.hook) is None:
            return ()
        try:
            answer: Any = self._answer(source, listing.hook, **arguments)
            kind = getattr(api, listing.kind)
            if not isinstance(answer, (list, tuple)) or not all(
                isinstance(item, kind) for item in answer
            ):
                expected = f"a list of {listing.kind}"
                raise self.calls.answer_error(source, listing.hook, answer, expected)
        except LlmbError as error:
            problem = replace(problem_of_error(source, error), part=listing.part)
            self._refuse(problem)
            return problem
        return cast("Sequence[Any]", answer)

    @cached_property
    def gpu_types(self) -> dict[str, api.GpuType]:
        """Every known GPU type: llmb's own and the plugins'."""
        from llmb.contract.gpus import all_types

        return all_types(offer.item.gpu_types for offer in self.offers.values())

    def workloads(self) -> dict[str, api.Workload]:
        """The workloads by key, in alphabetical order."""
        return {key: self.offers[key].item for key in sorted(self.offers)}

    def setup(self, workload: api.Workload, site: api.Site) -> api.Needs | None:
        """Return what ``workload`` needs at ``site``, from its plugin or else llmb's default."""
        answer: api.Needs | None = self._ask(
            "llmb_setup", (api.Needs,), {"workload": workload, "site": site}
        )
        return answer

    def launch(self, workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
        """Return how ``job`` runs, from its plugin or else from llmb's default, or None.

        ``changed_by`` names what plugins that cluster_config.yaml names have changed.
        """
        from llmb.plugins.answers import completed, memory_of
        from llmb.plugins.launch_checks import check_launch

        arguments = {"workload": workload, "job": job, "site": site}
        try:
            command: api.Command | None = self._ask(
                "llmb_launch", (api.Launch, api.Command), arguments
            )
        except UsageError as error:
            raise self._launch_error(workload, error) from error
        if command is None:
            if job.training is None and self._own_launch(workload) is not None:
                raise self._no_launch(workload)
            return None
        answer = command if isinstance(command, api.Launch) else api.Launch.of(command, job, site)
        self._accept(
            self.offers[workload.key].source,
            "llmb_launch",
            partial(check_launch, answer, job.experiment_name),
        )
        if answer.gpu_memory_gb is None:
            answer = replace(answer, gpu_memory_gb=memory_of(workload, job, site))
        answer = completed(answer, workload, job, site)
        for source in self._site_wide(site.plugins) if site.plugins else ():
            answer = self.calls.wrapped(source, answer, arguments)
            self._accept(source, "llmb_launch", partial(check_launch, answer, job.experiment_name))
        return answer

    def _own_launch(self, workload: api.Workload) -> Callable[..., Any] | None:
        """Return the hook ``llmb_launch`` of the workload's plugin, None without one."""
        return self.calls.implementation(self.offers[workload.key].source, "llmb_launch")

    def _launch_error(self, workload: api.Workload, error: UsageError) -> LlmbError:
        """Return what a user, or the plugin's author, reads for an ``error`` of ``launch``.

        llmb's own programs refuse a job that trains no model: the plugin's hook gave no answer, or
        asked for what such a job has not.
        """
        from llmb.contract.job import NOT_TRAINING

        if error.code != NOT_TRAINING or self._own_launch(workload) is None:
            return error
        source = self.offers[workload.key].source
        owner = self.calls.owner(source)
        if is_from(error, owner):
            return as_plugin_error(error, source, "llmb_launch", owner)
        return self._no_launch(workload)

    def _no_launch(self, workload: api.Workload) -> PluginError:
        """Return the error for a hook that does not launch a job that no program of llmb runs."""
        source, hook = self.offers[workload.key].source, self._own_launch(workload)
        return wrong_answer(source, "llmb_launch", None, "a Launch or a Command", hook)

    def launches_each_repeat(self, workload: api.Workload, sections: Sections) -> bool:
        """Return True if a plugin's code makes or changes the launch of each repeat of a job.

        llmb's own launches do not depend on the number of the repeat. ``sections`` are those of
        plugins in the configuration.
        """
        return self._own_launch(workload) is not None or any(self._site_wide(sections))

    def flops(self, workload: api.Workload, shape: api.ModelShape) -> api.Flops | None:
        """Return the operations of one sample by the plugin's own formula, None for llmb's."""
        key = (workload.key, shape)
        if key not in self.known_flops:  # thousands of runs have few shapes, and the hook is pure
            self.known_flops[key] = self._ask(
                "llmb_flops", (api.Flops,), {"workload": workload, "shape": shape}
            )
        return self.known_flops[key]

    def has_flops(self, workload: api.Workload) -> bool:
        """Return True if the plugin of ``workload``, or llmb's default, has an ``llmb_flops``."""
        sources = (self.offers[workload.key].source, self.default)
        return any(
            self.calls.implementation(source, "llmb_flops") is not None for source in sources
        )

    def parse(self, workload: api.Workload, run: api.RunRecord) -> api.ParseSpec | None:
        """Return how to read the log of ``run``, as ``parse_log``."""
        return self.parse_log(workload, run.job.model_size, run.log, run)

    def parse_log(
        self, workload: api.Workload, size: str, log: Path, run: api.RunRecord | None
    ) -> api.ParseSpec | None:
        """Return how to read ``log``, of ``run`` or of none, by the plugin or else llmb's default.

        None if neither can read it.
        """
        from llmb.plugins.answers import check_parse

        answer: api.ParseSpec | api.Samples | None = self._ask(
            "llmb_parse",
            (api.ParseSpec, api.Samples),
            {"workload": workload, "size": size, "log": log, "run": run},
        )
        if answer is None:
            return None
        source = self.offers[workload.key].source
        self._accept(source, "llmb_parse", partial(check_parse, workload, answer))
        if isinstance(answer, api.Samples):
            return api.ParseSpec(samples=answer)
        plugin = "" if answer.is_default else source
        return answer if answer.source == plugin else replace(answer, source=plugin)

    def _accept(self, source: str, hook: str, check: Callable[[], None]) -> None:
        """Raise PluginError if ``check`` rejects what the ``hook`` of ``source`` returned."""
        try:
            check()
        except KeyFaultError as error:
            raise rejected(source, hook, error, self.calls.owner(source)) from error

    def answers_by_run(self, workload: api.Workload) -> bool:
        """Return True if the ``llmb_parse`` of its plugin may answer differently for each run.

        A hook that takes neither the log nor the run answers for all runs of a size.
        """
        return not {"log", "run"}.isdisjoint(self._arguments_of_parse(workload))

    def reads_runs(self, workload: api.Workload) -> bool:
        """Return True if its ``llmb_parse`` takes a run and no log, as of contract 1.0."""
        names = self._arguments_of_parse(workload)
        return "run" in names and "log" not in names

    def _arguments_of_parse(self, workload: api.Workload) -> tuple[str, ...]:
        """Return the arguments that the ``llmb_parse`` of its plugin takes, if it has one."""
        source = self.offers[workload.key].source
        return next(
            (
                implementation.argnames
                for implementation in self.manager.hook.llmb_parse.get_hookimpls()
                if implementation.plugin_name == source
            ),
            (),
        )

    def faults_of_settings(self, document: Document) -> dict[str, list[Fault]]:
        """Return every fault of the section ``plugins`` by plugin, with file and line."""
        from llmb.plugins import settings

        def kind(source: str) -> type | None:
            try:
                return self.calls.settings_kind(source)
            except LlmbError as error:
                self._refuse(problem_of_error(source, error))
                raise

        return settings.faults_of(document, self.sources, kind)

    def check_settings(self, document: Document) -> list[Fault]:
        """As ``faults_of_settings``, each fault once."""
        by_plugin = self.faults_of_settings(document)
        return list(dict.fromkeys(fault for faults in by_plugin.values() for fault in faults))

    def require_settings(self, config: ClusterConfig) -> dict[str, list[Fault]]:
        """The faults of settings by plugin, whose launches they refuse.

        Raises InputFaults for sections that may be of a plugin for all launches: of one that is
        skipped or not installed here, or wrong ones of a site-wide wrapper.
        """
        from llmb.core import yamlfile
        from llmb.plan.locate import CONFIG_FILE

        document = yamlfile.load(config.llmb_install / CONFIG_FILE)
        self.require_named(document, config.plugins)
        by_plugin = self.faults_of_settings(document)
        if of_all := [
            fault
            for source in self._site_wide(config.plugins)
            for fault in by_plugin.get(source, ())
        ]:
            raise InputFaults(of_all)
        return by_plugin

    def require_named(self, document: Document, sections: Sections) -> None:
        """Raise InputFaults for sections of plugins that are skipped or not installed here."""
        from llmb.plugins import settings

        self.offers  # noqa: B018 - finds the plugins that are skipped
        reasons = {problem.source: problem.reason for problem in self.problems if not problem.part}
        settings.require_named(document, sections, [*self.sources, *reasons], reasons)

    def _ask(self, hook: str, kinds: tuple[type, ...], arguments: dict[str, Any]) -> Any:
        """Call ``hook`` of the workload's plugin, then llmb's default if that has no answer.

        Raises PluginError if the hook fails or returns none of the ``kinds``. An LlmbError of the
        hook passes through.
        """
        source = self.offers[arguments["workload"].key].source
        caller, values = self._caller(hook, source), self.calls.with_settings(source, arguments)
        answer = self.calls.call(source, hook, lambda: caller(**values))
        if answer is not None:
            self.calls.require(source, hook, answer, kinds)
        return answer

    def _site_wide(self, sections: Sections) -> Iterator[str]:
        """Yield the plugins that change all launches, in the order of the configuration."""
        from llmb.plugins.settings import key_of

        able = [source for source in self.sources if is_site_wide(self.manager.get_plugin(source))]
        for key in sections:
            yield from (source for source in able if key_of([key], source) is not None)

    def _caller(self, hook: str, source: str) -> Callable[..., Any]:
        if (hook, source) not in self.callers:
            callees = (self.manager.get_plugin(source), self.manager.get_plugin(self.default))
            excluded = [plugin for plugin in self.manager.get_plugins() if plugin not in callees]
            self.callers[hook, source] = self.manager.subset_hook_caller(hook, excluded)
        return self.callers[hook, source]

    def _offers_of(self, source: str) -> list[Offer]:
        plugin = self.manager.get_plugin(source)
        if isinstance(plugin, YamlBenchmarks):
            offers = (self._of_file(source, file, plugin) for file in plugin.files)
            return [offer for offer in offers if offer is not None]
        hook = self.calls.implementation(source, "llmb_workload")
        if hook is None:
            return []
        kind = api.Workload  # imported before the time limit begins
        try:
            answer = self.calls.call(source, "llmb_workload", hook)
            workloads = answer if isinstance(answer, (list, tuple)) else [answer]
            for workload in workloads:
                self.calls.require(source, "llmb_workload", workload, (kind,))
        except LlmbError as error:
            self._refuse(problem_of_error(source, error))
            return []
        return [_offer(source, workload) for workload in workloads]

    def _of_file(self, source: str, file: Path, plugin: YamlBenchmarks) -> Offer | None:
        """Return the offer of a benchmark's YAML. A fault in it costs only this benchmark."""
        try:
            return _offer(source, api.read_workload(file))
        except LlmbError as error:
            problem = problem_of_error(source, error)
            part = "" if plugin.files == (file,) else f"benchmark {file.name}"
            self._refuse(replace(problem, part=part))
            return None

    def _held(self, hook: str) -> list[Claim[Any]]:
        """Return what all plugins return for ``hook``, by name: llmb's own items first."""
        if hook not in self._claims:
            claims = [
                claim
                for source, _ in self.manager.list_name_plugin()
                for claim in self._claimed(source, hook)
            ]
            self._claims[hook], lost = settle(claims, _KINDS[hook], "name-duplicate", self.is_own)
            self._refuse(*lost)
        return self._claims[hook]

    def _claimed(self, source: str, hook: str) -> list[Claim[Any]]:
        implementation = self.calls.implementation(source, hook)
        if implementation is None:
            return []
        try:
            answer = self.calls.call(source, hook, implementation)
            if not isinstance(answer, (list, tuple)):
                raise self.calls.answer_error(source, hook, answer, f"a list of {_KINDS[hook]}s")
        except LlmbError as error:
            self._refuse(replace(problem_of_error(source, error), part=f"{_KINDS[hook]}s"))
            return []
        return [claim for item in answer if (claim := self._claim(source, hook, item)) is not None]

    def _claim(self, source: str, hook: str, item: Any) -> Claim[Any] | None:
        """Return the claim of one item of a hook's answer.

        None if it cannot be used, which costs that item alone.
        """
        kind, part = _KINDS[hook], f"a {_KINDS[hook]}"
        try:
            if not isinstance(getattr(item, "name", None), str):
                raise self.calls.answer_error(source, hook, item, f"a {kind}")
            part = f"{kind} '{item.name}'"
            if hook == "llmb_clusters":
                from llmb.plugins.cluster_checks import with_source

                with guarded(source, hook, owner=self.calls.owner(source)):
                    item = with_source(item, source)
            elif hook == "llmb_frameworks":
                self.calls.require(source, hook, item, (api.Framework,))
                item = item if self.is_own(source) else self._guarded(source, item)
            elif hook == "llmb_variables":
                self.calls.require(source, hook, item, (api.LaunchVariable,))
            else:
                import click

                self.calls.require(source, hook, item, (click.Command,))
        except LlmbError as error:
            self._refuse(replace(problem_of_error(source, error), part=part))
            return None
        return Claim(source=source, name=item.name, form=item.name, item=item)

    def _guarded(self, source: str, framework: api.Framework) -> api.Framework:
        """Return ``framework`` with functions whose failures name the plugin ``source``."""
        nothing = type(None)
        kinds_of: dict[str, tuple[type, ...]] = {
            "launch": (api.Launch, api.Command, nothing),
            "needs": (api.Needs, nothing),
            "image_release": (str, nothing),
            "rows": (Mapping,),
            "sized": (api.Size,),
            "meaning": (str,),
        }
        functions: dict[str, Any] = {
            name: self._guarded_function(source, function, kinds)
            for name, kinds in kinds_of.items()
            if (function := getattr(framework, name)) is not None
        }
        return replace(framework, **functions)

    def _guarded_function(
        self, source: str, function: Callable[..., Any], kinds: tuple[type, ...]
    ) -> Callable[..., Any]:
        """Return ``function`` as a guarded one that gets the plugin's settings in a site."""

        def call(*arguments: Any) -> Any:
            values = [
                self.calls.with_settings(source, {"site": value})["site"]
                if isinstance(value, api.Site)
                else value
                for value in arguments
            ]
            answer = self.calls.call(source, "llmb_frameworks", partial(function, *values))
            self.calls.require(source, "llmb_frameworks", answer, kinds)
            return answer

        return call

    def is_own(self, source: str) -> bool:
        """Return True if a plugin is llmb's."""
        return source not in self.calls.sources or self.calls.sources[source].is_own

    def _refuse(self, *problems: Problem) -> None:
        self.problems += [
            problem for problem in dict.fromkeys(problems) if problem not in self.problems
        ]


def _offer(source: str, workload: api.Workload) -> Offer:
    form = squash_workload(workload.key)
    return Claim(source=source, name=workload.key, form=form, item=workload)


def problem_of_error(source: str, error: LlmbError) -> Problem:
    """The problem of a plugin whose import or hook raised ``error``."""
    return Problem(
        source=source,
        reason=reason_of(error),
        code=error.code if isinstance(error, PluginError) else "plugin-failed",
        faults=tuple(getattr(error, "faults", ())),
    )
