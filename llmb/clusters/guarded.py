# SPDX-License-Identifier: Apache-2.0
"""Guards a plugin's cluster: a method that fails or returns a wrong value is an error with plugin and method."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from llmb.clusters import checks
from llmb.clusters.base import Cluster, Pace, UnclearError
from llmb.errors import Fault, KeyFaultError, PluginError
from llmb.runs.state import KNOWN, UNKNOWN, JobState, check_time
from llmb.system.guard import REPORT, guarded
from llmb.text.checked import check_types
from llmb.text.names import nearest

if TYPE_CHECKING:
    from llmb.config import ClusterConfig
    from llmb.config.cluster_type import ClusterType
    from llmb.runs.launch import Launch, Stamp
    from llmb.runs.record import RunRecord

T = TypeVar("T")

METHODS = ("preflight", "render", "submit", "find", "poll", "cancel")
_CHEAP = ("create", "pace", "render")  # methods that ask nothing of the scheduler
_STATES = "llmb-run docs cluster-types lists the states"
_SHOWN = 120  # characters of an answer in a message


class ClusterPluginError(PluginError):
    """A method of a plugin's cluster failed, or its answer cannot be used; ``key`` is the method."""


class NoAnswerError(UnclearError, ClusterPluginError):
    """``submit`` failed otherwise than by a refusal: whether the scheduler has the run is unknown."""


def create(kind: ClusterType, config: ClusterConfig) -> Cluster:
    """The cluster of ``config``; a plugin's one is guarded. Raises ClusterPluginError."""
    return guard(kind, lambda: kind.make(config)) if kind.source else kind.make(config)


def guard(kind: ClusterType, make: Callable[[], Cluster]) -> GuardedCluster:
    """The cluster that ``make`` gives, guarded. Raises ClusterPluginError."""
    module = kind.create if isinstance(kind.create, str) else str(getattr(kind.create, "__module__", ""))
    who = _Plugin(source=kind.source, name=kind.name, owner=re.split(r"[.:]", module)[0])
    cluster: Any = who.call("create", make)
    if missing := [name for name in METHODS if not callable(getattr(cluster, name, None))]:
        who.fail(missing[0], f"is missing: {_shown(cluster)} has no such method", code="method-missing")
    return GuardedCluster(cluster=cluster, plugin=who)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    """The plugin (``distribution:entry``), its cluster type, and its top module ``owner``, for messages."""

    source: str
    name: str
    owner: str

    def fail(
        self,
        method: str,
        reason: str,
        *,
        code: str = "plugin-failed",
        kind: type[PluginError] = ClusterPluginError,
        hint: str = REPORT,
    ) -> NoReturn:
        """Raise the error about ``method``."""
        text = f"{method} of cluster type {self.name} {reason}"
        message, fix = f"plugin {self.source}: {text}", f"correct {method} of the cluster"
        raise kind(message, reason=text, hint=hint, fix=fix, code=code, key=method, value=self.source)

    def nonsense(
        self, method: str, reason: str, answer: object, *, kind: type[PluginError] = ClusterPluginError
    ) -> NoReturn:
        """Raise the error about an answer that cannot be used."""
        self.fail(method, f"returned {_shown(answer)}: {reason}", code="answer-invalid", kind=kind)

    def call(self, method: str, ask: Callable[[], T], *, kind: type[PluginError] = ClusterPluginError) -> T:
        """What ``ask`` returns. An LlmbError is the cluster's own answer; every other exception is the plugin's bug.

        Raises the latter as ``kind``. Methods that ask the scheduler have no time limit: it may be slow.
        """
        try:
            with guarded(self.source, method, owner=self.owner, limited=method in _CHEAP):
                return ask()
        except PluginError as error:
            if isinstance(error, ClusterPluginError):
                raise
            where, text = f"{method} of cluster type {self.name}:", error.message
            raise kind(
                text.replace(f" in {method}:", f" in {where}"),
                reason=error.reason.replace(f"{method}:", where, 1),
                hint=error.hint,
                fix=error.fix,
                code=error.code,
                key=method,
                value=self.source,
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedCluster:
    """The cluster of a plugin, as llmb uses it. Each answer has the type that the contract says, or is an error."""

    cluster: Any
    plugin: _Plugin

    @property
    def pace(self) -> Pace:
        """The plugin's pace; the default one where it has none."""
        is_there = inspect.getattr_static(self.cluster, "pace", None) is not None
        found: object = self.plugin.call("pace", lambda: self.cluster.pace) if is_there else Pace()
        if not isinstance(found, Pace):
            self.plugin.nonsense("pace", "it must be a Pace", found)
        self._checked("pace", found)
        if found.parallel < 1 or min(found.poll, found.slowest_poll, found.settle, found.arrive) < 0:
            self.plugin.nonsense("pace", "parallel must be at least 1, and no time below 0", found)
        return found

    def identity(self) -> str | None:
        """The plugin's answer; None where it has no such method."""
        ask = getattr(self.cluster, "identity", None)
        found = self.plugin.call("identity", ask) if ask is not None else None
        if found is not None and not _is_word(found):
            self.plugin.nonsense("identity", "it must be one line of text, or None", found)
        return found

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """The plugin's faults."""
        return self._faults("preflight", launches)

    @property
    def faults_here(self) -> Callable[[Sequence[Launch]], list[Fault]] | None:
        """The plugin's method; None where it has none, so that llmb looks for itself."""
        return partial(self._faults, "faults_here") if hasattr(self.cluster, "faults_here") else None

    def _faults(self, method: str, launches: Sequence[Launch]) -> list[Fault]:
        found: object = self.plugin.call(method, lambda: getattr(self.cluster, method)(launches))
        if not isinstance(found, Sequence) or not all(isinstance(one, Fault) for one in found):
            self.plugin.nonsense(method, "it must be a list of Fault", found)
        return list(found)

    def faults_of_secrets(self, launches: Sequence[Launch]) -> Iterable[Fault]:
        """The plugin's answer, else the secrets that this shell lacks."""
        return self.plugin.call("faults_of_secrets", lambda: [*checks.secrets_at(self.cluster, launches, os.environ)])

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The plugin's script."""
        found = self.plugin.call("render", lambda: self.cluster.render(launch, stamp))
        if not isinstance(found, str) or "\0" in found:
            self.plugin.nonsense("render", "it must be the text of a script", found)
        return str(found)

    def submit(self, run: RunRecord) -> str:
        """The scheduler's id. Raises NoAnswerError for a bug: the scheduler may have the run."""
        found = self.plugin.call("submit", lambda: self.cluster.submit(run), kind=NoAnswerError)
        if not _is_word(found):
            reason = "it must be the scheduler's id of the run, as text"
            self.plugin.nonsense("submit", reason, found, kind=NoAnswerError)
        return str(found)

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The scheduler's ids by run."""
        found = self._by_run("find", runs, self.plugin.call("find", lambda: self.cluster.find(runs)))
        for run_id, scheduler_id in found.items():
            if not _is_word(scheduler_id):
                self.plugin.nonsense("find", f"the id of {run_id} must be text", found)
        return found

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run."""
        found = self._by_run("poll", runs, self.plugin.call("poll", lambda: self.cluster.poll(runs)))
        for run in runs:
            if run.id not in found:
                self.plugin.nonsense("poll", f"it has no state of run {run.id}", found)
            self._check_state(run, found[run.id])
        return found

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Ask the plugin to cancel these runs."""
        self.plugin.call("cancel", lambda: self.cluster.cancel(runs))

    def _by_run(self, method: str, runs: Sequence[RunRecord], found: Any) -> dict[str, Any]:
        if not isinstance(found, Mapping):
            self.plugin.nonsense(method, "it must be a mapping by the ids of runs", found)
        known = {run.id for run in runs}
        if unknown := [key for key in found if key not in known]:
            self.plugin.nonsense(method, f"{_shown(unknown[0])} is not the id of a run that was asked for", found)
        return dict(found)

    def _check_state(self, run: RunRecord, state: Any) -> None:
        if not isinstance(state, JobState):
            self.plugin.nonsense("poll", f"the state of {run.id} must be a JobState", state)
        self._checked("poll", state)
        if state.state not in KNOWN and state.state != UNKNOWN:
            close = nearest(state.state, sorted(KNOWN))
            meant = f"; did you mean '{close}'?" if close is not None else ""
            reason = f"returned the unknown state {_shown(state.state)} for run {run.id}{meant}"
            self.plugin.fail("poll", reason, code="answer-invalid", hint=f"{_STATES}; {REPORT}")
        for seconds in (state.started, state.ended, state.missing_since):
            try:
                check_time(seconds or 0.0)
            except ValueError as error:
                self.plugin.nonsense("poll", str(error), state)

    def _checked(self, method: str, value: Any) -> None:
        try:
            check_types(value)
        except KeyFaultError as error:
            self.plugin.nonsense(method, str(error), value)


def _is_word(found: object) -> bool:
    return isinstance(found, str) and bool(found.strip()) and found.isprintable()


def _shown(answer: object) -> str:
    try:
        text = repr(answer)
    except Exception:  # a plugin's __repr__ may fail as well
        text = f"a {type(answer).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
