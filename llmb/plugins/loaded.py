# SPDX-License-Identifier: Apache-2.0
"""The loaded plugins: what they offer, and the answers of their hooks, each call guarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pluggy

from llmb import api
from llmb.errors import Fault, InputFaults, KeyFaultError, LlmbError, PluginError
from llmb.plugins.calls import Calls
from llmb.plugins.contract import FIRST_CONTRACT, STATEMENT, is_site_wide
from llmb.plugins.owners import Claim, Offer, Problem, reason_of, settled, without_conflicts
from llmb.system.guard import guarded, is_from, rejected
from llmb.text.names import squash_workload

if TYPE_CHECKING:
    import click

    from llmb.config import ClusterConfig
    from llmb.config.cluster_type import OfferedTypes
    from llmb.plugins.settings import Sections
    from llmb.text.yamlfile import Document

_KINDS = {"llmb_commands": "command", "llmb_clusters": "cluster type"}


@dataclass(eq=False, kw_only=True)
class Plugins:
    """The loaded plugins; workloads are read on first use."""

    calls: Calls
    default: str
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
        """Every cluster type by its name; a plugin's one knows its plugin."""
        from llmb.config.cluster_type import OfferedTypes
        from llmb.plugins.calls import skipped_types

        types = {claim.name: claim.item for claim in self._held("llmb_clusters")}
        return OfferedTypes(types, lambda name: skipped_types(name, self.problems, self.calls))

    def skipped_commands(self, name: str) -> tuple[list[str], list[str]]:
        """Why nobody has the command ``name``, which plugins offer; and the skipped plugins that may offer it."""
        from llmb.plugins.calls import skipped_commands

        return skipped_commands(name, self.problems, self.calls)

    def contract(self, source: str) -> str:
        """The contract that a plugin states, else the first one; empty for a plugin that is not loaded."""
        plugin = self.manager.get_plugin(source)
        return str(getattr(plugin, STATEMENT, FIRST_CONTRACT)) if plugin is not None else ""

    def source_of(self, error: BaseException) -> str | None:
        """The plugin whose code was running when ``error`` was raised, if any."""
        return next((source for source in self.sources if is_from(error, self.calls.owner(source))), None)

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """The workloads by key; of a key in any spelling, llmb's own plugin keeps it, or else nobody gets it."""
        offers = [offer for source in self.sources if (offer := self._offer(source)) is not None]
        claims = [
            Claim(source=one.source, name=one.workload.key, form=squash_workload(one.workload.key), item=one)
            for one in offers
        ]
        held, lost = settled(claims, "workload", "workload-duplicate", self._is_own)
        kept, conflicts = without_conflicts([claim.item for claim in held], self._is_own)
        self._refuse(*lost, *conflicts)
        return {offer.workload.key: offer for offer in kept}

    @cached_property
    def gpu_types(self) -> dict[str, api.GpuType]:
        """Every known GPU type: llmb's, and those that plugins bring."""
        from llmb.workload.gpus import all_types

        return all_types(offer.workload.gpu_types for offer in self.offers.values())

    def workloads(self) -> dict[str, api.Workload]:
        """The workloads by key, in alphabetical order."""
        return {key: self.offers[key].workload for key in sorted(self.offers)}

    def setup(self, workload: api.Workload, site: api.Site) -> api.Needs | None:
        """What ``workload`` needs at ``site``, from its plugin or else from llmb's default; None without an answer."""
        answer: api.Needs | None = self._ask("llmb_setup", (api.Needs,), {"workload": workload, "site": site})
        return answer

    def launch(self, workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
        """How ``job`` runs, from its plugin or else from llmb's default; None without an answer.

        ``changed_by`` names what plugins that cluster_config.yaml names have changed.
        """
        from llmb.plugins.calls import check_launch
        from llmb.plugins.complete import completed, memory_of

        arguments = {"workload": workload, "job": job, "site": site}
        answer: api.Launch | None = self._ask("llmb_launch", (api.Launch,), arguments)
        if answer is None:
            return None
        self._accept(
            self.offers[workload.key].source, "llmb_launch", partial(check_launch, answer, job.experiment_name)
        )
        if answer.gpu_memory_gb is None:
            answer = replace(answer, gpu_memory_gb=memory_of(workload, job, site))
        answer = completed(answer, workload, job, site)
        for source in self._site_wide(site.plugins) if site.plugins else ():
            answer = self.calls.wrapped(source, answer, arguments)
            self._accept(source, "llmb_launch", partial(check_launch, answer, job.experiment_name))
        return answer

    def flops(self, workload: api.Workload, shape: api.ModelShape) -> api.Flops | None:
        """The operations of one sample of ``shape`` by the plugin's own formula; None for llmb's."""
        key = (workload.key, shape)
        if key not in self.known_flops:  # thousands of runs have few shapes, and the hook is pure
            self.known_flops[key] = self._ask("llmb_flops", (api.Flops,), {"workload": workload, "shape": shape})
        return self.known_flops[key]

    def parse(self, workload: api.Workload, run: api.RunRecord) -> api.ParseSpec | None:
        """How to read the log of ``run``, from its plugin or else from llmb's default; None without an answer."""
        from llmb.plugins.complete import check_parse

        answer: api.ParseSpec | api.Samples | None = self._ask(
            "llmb_parse", (api.ParseSpec, api.Samples), {"workload": workload, "run": run}
        )
        if answer is None:
            return None
        source = self.offers[workload.key].source
        self._accept(source, "llmb_parse", partial(check_parse, workload, answer))
        if isinstance(answer, api.Samples):
            return api.ParseSpec(samples=answer)
        wanted = "" if answer.is_default else source
        return answer if answer.source == wanted else replace(answer, source=wanted)

    def _accept(self, source: str, hook: str, check: Callable[[], None]) -> None:
        """Raise PluginError where ``check`` rejects what the ``hook`` of ``source`` returned."""
        try:
            check()
        except KeyFaultError as error:
            raise rejected(source, hook, error, self.calls.owner(source)) from error

    def reads_logs(self, workload: api.Workload) -> bool:
        """Whether the plugin of ``workload`` has an ``llmb_parse`` of its own, which may answer for each run."""
        return self.calls.implementation(self.offers[workload.key].source, "llmb_parse") is not None

    def faults_of_settings(self, document: Document) -> dict[str, list[Fault]]:
        """By plugin, every fault of its section ``plugins`` of a configuration or of answers, with file and line."""
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
        found = self.faults_of_settings(document)
        return list(dict.fromkeys(fault for faults in found.values() for fault in faults))

    def require_settings(self, config: ClusterConfig) -> dict[str, list[Fault]]:
        """The faults of settings by plugin, whose launches they refuse.

        Raises InputFaults for sections that may be of a plugin for all launches: of one that is skipped or not
        installed here, or wrong ones of a site-wide wrapper.
        """
        from llmb.config.locate import CONFIG_FILE
        from llmb.text import yamlfile

        document = yamlfile.load(config.llmb_install / CONFIG_FILE)
        self.require_named(document, config.plugins)
        wrong = self.faults_of_settings(document)
        if of_all := [fault for source in self._site_wide(config.plugins) for fault in wrong.get(source, ())]:
            raise InputFaults(of_all)
        return wrong

    def require_named(self, document: Document, sections: Sections) -> None:
        """Raise InputFaults for each section of a plugin that is not installed here, or that is skipped."""
        from llmb.plugins import settings

        self.offers  # noqa: B018 - finds the plugins that are skipped
        reasons = {problem.source: problem.reason for problem in self.problems if not problem.part}
        settings.require_named(document, sections, [*self.sources, *reasons], reasons)

    def _ask(self, hook: str, kinds: tuple[type, ...], arguments: dict[str, Any]) -> Any:
        """Call ``hook`` of the plugin that offers the workload, then llmb's default if the plugin has no answer.

        Raises PluginError if the hook fails or returns none of the ``kinds``; an LlmbError of the hook is passed on.
        """
        source = self.offers[arguments["workload"].key].source
        caller, given = self._caller(hook, source), self.calls.with_settings(source, arguments)
        answer = self.calls.call(source, hook, lambda: caller(**given))
        if answer is not None:
            self.calls.require(source, hook, answer, kinds)
        return answer

    def _site_wide(self, sections: Sections) -> Iterator[str]:
        """The plugins that change the launches of all workloads, in the order of the configuration."""
        from llmb.plugins.settings import key_of

        able = [source for source in self.sources if is_site_wide(self.manager.get_plugin(source))]
        for key in sections:
            yield from (source for source in able if key_of([key], source) is not None)

    def _caller(self, hook: str, source: str) -> Callable[..., Any]:
        if (hook, source) not in self.callers:
            asked = (self.manager.get_plugin(source), self.manager.get_plugin(self.default))
            others = [plugin for plugin in self.manager.get_plugins() if plugin not in asked]
            self.callers[hook, source] = self.manager.subset_hook_caller(hook, others)
        return self.callers[hook, source]

    def _offer(self, source: str) -> Offer | None:
        hook = self.calls.implementation(source, "llmb_workload")
        if hook is None:
            return None
        kind = api.Workload  # imported before the time limit begins
        try:
            workload = self.calls.call(source, "llmb_workload", hook)
            self.calls.require(source, "llmb_workload", workload, (kind,))
            return Offer(source=source, workload=workload)
        except LlmbError as error:
            self._refuse(problem_of_error(source, error))
            return None

    def _held(self, hook: str) -> list[Claim[Any]]:
        """What all plugins return for ``hook``, by name: llmb's own items first."""
        if hook not in self._claims:
            claims = [claim for source, _ in self.manager.list_name_plugin() for claim in self._claimed(source, hook)]
            self._claims[hook], lost = settled(claims, _KINDS[hook], "name-duplicate", self._is_own)
            self._refuse(*lost)
        return self._claims[hook]

    def _claimed(self, source: str, hook: str) -> list[Claim[Any]]:
        implementation = self.calls.implementation(source, hook)
        if implementation is None:
            return []
        try:
            answer = self.calls.call(source, hook, implementation)
            if not isinstance(answer, (list, tuple)):
                raise self.calls.wrong(source, hook, answer, f"a list of {_KINDS[hook]}s")
        except LlmbError as error:
            self._refuse(replace(problem_of_error(source, error), part=f"{_KINDS[hook]}s"))
            return []
        return [claim for item in answer if (claim := self._claim(source, hook, item)) is not None]

    def _claim(self, source: str, hook: str, item: Any) -> Claim[Any] | None:
        """The claim of one item of what a hook returns; None where it cannot be used, which costs that item alone."""
        kind, part = _KINDS[hook], f"a {_KINDS[hook]}"
        try:
            if not isinstance(getattr(item, "name", None), str):
                raise self.calls.wrong(source, hook, item, f"a {kind}")
            part = f"{kind} '{item.name}'"
            if hook == "llmb_clusters":
                from llmb.plugins.cluster_checks import with_source

                with guarded(source, hook, owner=self.calls.owner(source)):
                    item = with_source(item, source)
            else:
                import click

                self.calls.require(source, hook, item, (click.Command,))
        except LlmbError as error:
            self._refuse(replace(problem_of_error(source, error), part=part))
            return None
        return Claim(source=source, name=item.name, form=item.name, item=item)

    def _is_own(self, source: str) -> bool:
        return source not in self.calls.found or self.calls.found[source].is_own

    def _refuse(self, *problems: Problem) -> None:
        self.problems += [problem for problem in dict.fromkeys(problems) if problem not in self.problems]


def problem_of_error(source: str, error: LlmbError) -> Problem:
    """The problem of a plugin whose import or hook raised ``error``."""
    return Problem(
        source=source,
        reason=reason_of(error),
        code=error.code if isinstance(error, PluginError) else "plugin-failed",
        faults=tuple(getattr(error, "faults", ())),
    )
