# SPDX-License-Identifier: Apache-2.0
"""Finds and loads plugins, and calls their hooks; a plugin that fails is reported and does not affect the others."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from llmb import api, hookspecs
from llmb.errors import Fault, KeyFaultError, LlmbError, UsageError
from llmb.system.process import OverdueError, time_limit
from llmb.text import yamlfile
from llmb.text.checked import check_types
from llmb.text.names import squash_workload, suggest
from llmb.workload.gpus import GPUS_FILE, all_types, known_types

if TYPE_CHECKING:
    import click

GROUP = "llmb"
HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("llmb_"))
_ARGUMENTS = {name: tuple(inspect.signature(getattr(hookspecs, name)).parameters) for name in HOOKS}
_REPORT = "report it to the plugin's maintainers"
HOOK_SECONDS = 20.0  # a hook must be cheap, but a login node's file system may be slow


class PluginError(LlmbError):
    """A hook of a plugin failed."""


@contextmanager
def _limited(source: str, hook: str) -> Iterator[None]:
    """Interrupt a hook after HOOK_SECONDS. Raises PluginError, which names the plugin."""
    try:
        with time_limit(HOOK_SECONDS):
            yield
    except OverdueError:
        message = f"plugin {source} was interrupted: it took more than {HOOK_SECONDS:g} s in {hook}"
        raise PluginError(message, hint=_REPORT, code="plugin-timeout", key=hook, value=source) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A plugin that is skipped: ``source`` is ``distribution:entry``, ``reason`` the cause, ``code`` its kind.

    ``faults``: the single faults with file, line and fix, if a file of the plugin is invalid.
    """

    source: str
    reason: str
    code: str = "plugin-failed"
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A workload and the plugin that offers it."""

    source: str
    workload: api.Workload


@dataclass(eq=False, kw_only=True)
class Plugins:
    """The loaded plugins; workloads are read on first use."""

    manager: pluggy.PluginManager
    default: str
    problems: list[Problem] = field(default_factory=list)
    known_flops: dict[tuple[str, api.ModelShape], api.Flops | None] = field(default_factory=dict)
    callers: dict[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """``distribution:entry`` of each loaded plugin except llmb's own."""
        return [name for name, _ in self.manager.list_name_plugin() if ":" in name]

    def commands(self) -> list[click.Command]:
        """Every command of llmb and its plugins; of two with the same name, the later is refused."""
        return self._named("llmb_commands")

    def cluster_types(self) -> dict[str, api.ClusterType]:
        """Every cluster type by its name; a plugin's one knows its plugin."""
        from llmb.plugins.cluster_checks import with_source

        return {kind.name: kind for kind in self._named("llmb_clusters", with_source)}

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """The workloads by key. Two plugins with the same key, in any spelling, are both refused."""
        offers = [offer for source in self.sources if (offer := self._offer(source)) is not None]
        by_name: dict[str, list[Offer]] = {}
        for offer in offers:
            by_name.setdefault(squash_workload(offer.workload.key), []).append(offer)
        for rivals in by_name.values():
            for offer in rivals if len(rivals) > 1 else []:
                others = ", ".join(rival.source for rival in rivals if rival is not offer)
                reason = f"{others} also offers the workload '{offer.workload.key}'"
                self._refuse(offer.source, reason, code="workload-duplicate")
        alone = [rivals[0] for rivals in by_name.values() if len(rivals) == 1]
        return {offer.workload.key: offer for offer in self._without_conflicts(alone)}

    def _without_conflicts(self, offers: list[Offer]) -> list[Offer]:
        """Without plugins whose GPU types differ from llmb's; of two that differ from each other, both are refused."""
        refused = set[str]()
        for offer in offers:
            for name, kind in offer.workload.gpu_types.items():
                others = [(other.source, other.workload.gpu_types.get(name), other.workload.file) for other in offers]
                for source, known, file in [*others, ("llmb", known_types().get(name), GPUS_FILE)]:
                    if known is not None and known != kind:
                        here, there = _place(offer.workload.file, name), _place(file, name)
                        both = f"{here or offer.source} and {there or source}"
                        fix = "give both the same numbers, or one of them another name"
                        reason = f"{both} define the GPU type '{name}' differently ({fix})"
                        self._refuse(offer.source, reason, code="gpu-type-conflict")
                        refused.add(offer.source)
        return [offer for offer in offers if offer.source not in refused]

    @cached_property
    def gpu_types(self) -> dict[str, api.GpuType]:
        """Every known GPU type: llmb's, and those that plugins bring."""
        return all_types(offer.workload.gpu_types for offer in self.offers.values())

    def workloads(self) -> dict[str, api.Workload]:
        """The workloads by key, in alphabetical order."""
        return {key: self.offers[key].workload for key in sorted(self.offers)}

    def setup(self, workload: api.Workload, site: api.Site) -> api.Needs | None:
        """What ``workload`` needs at ``site``, from its plugin or else from llmb's default; None without an answer."""
        answer: api.Needs | None = self._ask("llmb_setup", (api.Needs,), {"workload": workload, "site": site})
        return answer

    def launch(self, workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
        """How ``job`` runs, from its plugin or else from llmb's default; None without an answer."""
        answer: api.Launch | None = self._ask(
            "llmb_launch", (api.Launch,), {"workload": workload, "job": job, "site": site}
        )
        if answer is not None and answer.gpu_memory_gb is None:
            answer = replace(answer, gpu_memory_gb=_memory_of(workload, job, site))
        return completed(answer, job, site) if answer is not None else None

    def flops(self, workload: api.Workload, shape: api.ModelShape) -> api.Flops | None:
        """The operations of one sample of ``shape`` by the plugin's own formula; None for llmb's."""
        key = (workload.key, shape)
        if key not in self.known_flops:  # thousands of runs have few shapes, and the hook is pure
            self.known_flops[key] = self._ask("llmb_flops", (api.Flops,), {"workload": workload, "shape": shape})
        return self.known_flops[key]

    def parse(self, workload: api.Workload, run: api.RunRecord) -> api.ParseSpec | None:
        """How to read the log of ``run``, from its plugin or else from llmb's default; None without an answer."""
        from llmb.logs.spec_checks import check_declared

        answer: api.ParseSpec | api.Samples | None = self._ask(
            "llmb_parse", (api.ParseSpec, api.Samples), {"workload": workload, "run": run}
        )
        if isinstance(answer, api.ParseSpec):
            source = self.offers[workload.key].source
            try:
                check_declared(answer.keys, [metric.name for metric in workload.metrics])
            except KeyFaultError as error:
                raise _rejected(source, "llmb_parse", error) from error
            wanted = "" if answer.is_default else source
            answer = answer if answer.source == wanted else replace(answer, source=wanted)
        if isinstance(answer, api.Samples):
            self._check_samples(workload, answer)
            return api.ParseSpec(samples=answer)
        return answer

    def _check_samples(self, workload: api.Workload, samples: api.Samples) -> None:
        """Raise PluginError for values of a wrong type, or of a metric that the workload does not declare."""
        metrics = [metric.name for metric in workload.metrics]
        try:
            check_types(samples)
            for step in samples.steps:
                check_types(step)
                if unknown := next((name for name in step.values if name not in metrics), None):
                    message, hint = f"Step.values has '{unknown}', no metric of the workload", suggest(unknown, metrics)
                    raise KeyFaultError(message, "values", unknown, hint=hint, code="metric-unknown", value=unknown)
        except KeyFaultError as error:
            raise _rejected(self.offers[workload.key].source, "llmb_parse", error) from error

    def reads_logs(self, workload: api.Workload) -> bool:
        """Whether the plugin of ``workload`` has an ``llmb_parse`` of its own, which may answer for each run."""
        return hasattr(self.manager.get_plugin(self.offers[workload.key].source), "llmb_parse")

    def _ask(self, hook: str, kinds: tuple[type, ...], arguments: dict[str, Any]) -> Any:
        """Call ``hook`` of the plugin that offers the workload, then llmb's default if the plugin has no answer.

        Raises PluginError if the hook fails or returns none of the ``kinds``; an LlmbError of the hook is passed on.
        """
        source = self.offers[arguments["workload"].key].source
        caller = self._caller(hook, source)
        try:
            with _limited(source, hook):
                answer = caller(**arguments)
            if answer is not None and not isinstance(answer, kinds):
                raise TypeError(f"returned {answer!r}, not a {' or a '.join(kind.__name__ for kind in kinds)}")
        except LlmbError:
            raise
        except KeyFaultError as error:
            raise _rejected(source, hook, error) from error
        except Exception as error:
            message = f"plugin {source} failed in {hook}: {type(error).__name__}: {error}"
            raise PluginError(message, hint=_REPORT, code="plugin-failed", key=hook, value=source) from error
        return answer

    def _caller(self, hook: str, source: str) -> Callable[..., Any]:
        if (hook, source) not in self.callers:
            asked = (self.manager.get_plugin(source), self.manager.get_plugin(self.default))
            others = [plugin for plugin in self.manager.get_plugins() if plugin not in asked]
            self.callers[hook, source] = self.manager.subset_hook_caller(hook, others)
        return self.callers[hook, source]

    def _offer(self, source: str) -> Offer | None:
        hook = getattr(self.manager.get_plugin(source), "llmb_workload", None)
        if hook is None:
            return None
        kind = api.Workload  # imported before the time limit begins
        try:
            with _limited(source, "llmb_workload"):
                workload = hook()
            if not isinstance(workload, kind):
                raise TypeError(f"llmb_workload returned {workload!r}, not a Workload")
            return Offer(source=source, workload=workload)
        except (Exception, SystemExit) as error:
            self._refuse(source, _reason(error), faults=tuple(getattr(error, "faults", ())))
            return None

    def _named(self, hook: str, check: Callable[[Any, str], Any] = lambda item, source: item) -> list[Any]:
        """What all plugins return for ``hook``, llmb's own first; of two items with the same name, the first.

        ``check`` gives an item for an item and its plugin; a plugin is refused where it raises.
        """
        found: dict[str, Any] = {}
        for source, plugin in self.manager.list_name_plugin():
            implementation = getattr(plugin, hook, None)
            try:
                with _limited(source, hook):
                    given = list(implementation()) if implementation is not None else []
                for item in given:
                    if not isinstance(getattr(item, "name", None), str):
                        raise TypeError(f"{item!r} has no name")
                given = [check(item, source) for item in given]
            except (Exception, SystemExit) as error:
                self._refuse(source, f"{hook}: {_reason(error)}")
                continue
            for item in given:
                if item.name in found:
                    self._refuse(source, f"{hook}: the name '{item.name}' is in use", code="name-duplicate")
                else:
                    found[item.name] = item
        return list(found.values())

    def _refuse(self, source: str, reason: str, *, code: str = "plugin-failed", faults: tuple[Fault, ...] = ()) -> None:
        problem = Problem(source=source, reason=reason, code=code, faults=faults)
        if problem not in self.problems:
            self.problems.append(problem)


def _rejected(source: str, hook: str, error: KeyFaultError) -> PluginError:
    """The error for a value that a hook of a plugin made and that cannot be right."""
    fault = error.as_fault("")
    where = f"{hook}: {fault.key}" if fault.key else hook
    message = f"plugin {source}: {where}: {fault.message}"
    return PluginError(message, hint=fault.hint or _REPORT, code=error.code, key=fault.key or hook, value=source)


def _memory_of(workload: api.Workload, job: api.Job, site: api.Site) -> float | None:
    """The memory in GB that one GPU must have by the workload's row for ``job``."""
    from llmb.planning.configure import find_row

    size, strong = workload.sizes.get(job.model_size), bool(job.switches.strong_scaling)
    row = find_row(size, site.gpu_type, job.dtype, job.scale, strong=strong) if size is not None else None
    return row.memory_gb if row is not None else None


def completed(launch: api.Launch, job: api.Job, site: api.Site) -> api.Launch:
    """``launch`` with the job's workload, GPU type and mounts. Raises UsageError for switches without effect."""
    switches = job.switches
    if switches.mounts and launch.image is None:
        key, reason = "mounts", "is for containers, and this program runs without one"
        hint = "remove it: the program sees the folders of its node"
        raise UsageError(f"{job.experiment_name}: '{key}' {reason}", hint=hint, code="switch-without-effect", key=key)
    if switches.container_writable is not None and not site.runs.writable_images:
        key, reason = "container_writable", f"is for Slurm with pyxis, not for {site.cluster_type}"
        message = f"{job.experiment_name}: '{key}' {reason}"
        raise UsageError(message, hint="remove it", code="switch-without-effect", key=key, value=site.cluster_type)
    fixes = dict(launch.fixes)
    if switches.image is not None and launch.image is not None:
        chosen = f"{shlex.quote(launch.image)} --install {shlex.quote(str(site.install))}"
        fixes.setdefault(launch.image, f"llmb-install image {chosen}")
    own = [mount for mount in switches.mounts or () if mount not in launch.mounts]
    return replace(
        launch,
        workload=job.workload,
        gpu_type=job.gpu_type,
        mounts=(*own, *launch.mounts),
        vboost=bool(job.vboost),
        container_writable=switches.container_writable,
        fixes=fixes,
    )


def load_plugins(builtin: Iterable[tuple[str, Any]], *, entries: Iterable[EntryPoint] | None = None) -> Plugins:
    """Load ``builtin``, whose last plugin is the default, and the plugins of the entry-point group ``llmb``."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    own = list(builtin)
    for name, plugin in own:
        manager.register(plugin, name)
    plugins = Plugins(manager=manager, default=own[-1][0])
    found = entry_points(group=GROUP) if entries is None else entries
    for entry in sorted(found, key=_source):
        _register(plugins, entry)
    return plugins


def _source(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist is not None else 'unknown'}:{entry.name}"


def _place(file: Path | None, gpu_type: str) -> str:
    """``file:line`` of a GPU type, in a workload's file or in llmb's own table."""
    if file is None:
        return ""
    document = yamlfile.load(file)
    return document.place((gpu_type,) if file == GPUS_FILE else ("gpu_types", gpu_type))


def _register(plugins: Plugins, entry: EntryPoint) -> None:
    source = _source(entry)
    try:
        plugin = entry.load()
        problem = _hook_problem(plugin)
        if problem is None:
            plugins.manager.register(plugin, source)
            return
    except (Exception, SystemExit) as error:  # reported by `llmb-run plugins`
        if plugins.manager.has_plugin(source):
            plugins.manager.unregister(name=source)
        problem = "plugin-failed", _reason(error)
    plugins.problems.append(Problem(source=source, code=problem[0], reason=problem[1]))


def _hook_problem(plugin: Any) -> tuple[str, str] | None:
    """The code and the reason if a plugin's hooks or their arguments have wrong names; None if they are right."""
    marked = []
    for name, member in vars(plugin).items() if inspect.ismodule(plugin) else inspect.getmembers(plugin):
        is_marked = hasattr(member, f"{hookspecs.PROJECT}_impl")
        if not inspect.isroutine(member) or not (is_marked or name.startswith("llmb_")):
            continue
        if name not in HOOKS:
            return "hook-unknown", f"{name} is not a hook; {suggest(name, HOOKS)}"
        if not is_marked:
            return "hook-unmarked", f"{name} has no @hookimpl"
        wanted = inspect.signature(member).parameters.values()
        for word in (one.name for one in wanted if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD):
            if word not in _ARGUMENTS[name]:
                return "argument-unknown", f"{name} has no argument '{word}'; {suggest(word, _ARGUMENTS[name])}"
        marked.append(name)
    return None if marked else ("hook-missing", f"it implements no hook; the hooks are {', '.join(HOOKS)}")


def _reason(error: BaseException) -> str:
    """What failed and where in the plugin; for an LlmbError, each fault with its fix."""
    if isinstance(error, LlmbError):
        faults = getattr(error, "faults", None) or [Fault(message=error.message, hint=error.hint)]
        return "; ".join(f"{fault} ({fault.hint})" if fault.hint else str(fault) for fault in faults)
    import traceback

    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    text = str(error).strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and frames[-1].filename != __file__ else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"
