# SPDX-License-Identifier: Apache-2.0
"""Guards a plugin's cluster: errors name the plugin and the method."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from llmb.contract.cluster import Cluster, Pace, UnclearError
from llmb.contract.state import KNOWN, UNKNOWN, JobState, check_time
from llmb.core.checked import check_types
from llmb.core.names import nearest
from llmb.core.values import dataclass
from llmb.errors import Fault, KeyFaultError, PluginError
from llmb.kit import checks
from llmb.plugins.guard import REPORT, guarded

if TYPE_CHECKING:
    from llmb.contract.cluster_type import ClusterType
    from llmb.contract.launch import Launch, Stamp
    from llmb.contract.record import RunRecord
    from llmb.contract.schema import ClusterConfig

T = TypeVar("T")

METHODS = ("preflight", "render", "submit", "find", "poll", "cancel")
_CHEAP = ("create", "pace", "render")  # methods that ask nothing of the scheduler
_STATES = "llmb-run docs cluster-types lists the states"
_SHOWN = 120  # characters of an answer in a message


class ClusterPluginError(PluginError):
    """The method ``key`` of a plugin's cluster failed, or its answer cannot be used."""


class NoAnswerError(UnclearError, ClusterPluginError):
    """``submit`` failed without a refusal: the scheduler may have the run."""


def create(kind: ClusterType, config: ClusterConfig) -> Cluster:
    """Return the cluster of ``config``, guarded if it is a plugin's. Raises ClusterPluginError."""
    return guard(kind, lambda: kind.make(config)) if kind.source else kind.make(config)


def guard(kind: ClusterType, make: Callable[[], Cluster]) -> GuardedCluster:
    """The cluster that ``make`` gives, guarded. Raises ClusterPluginError."""
    module = (
        kind.create if isinstance(kind.create, str) else str(getattr(kind.create, "__module__", ""))
    )
    plugin = _Plugin(source=kind.source, name=kind.name, owner=re.split(r"[.:]", module)[0])
    cluster: Any = plugin.call("create", make)
    if missing := [name for name in METHODS if not callable(getattr(cluster, name, None))]:
        plugin.fail(
            missing[0], f"is missing: {_shown(cluster)} has no such method", code="method-missing"
        )
    return GuardedCluster(cluster=cluster, plugin=plugin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    """A plugin (``distribution:entry``), its cluster type and its top module ``owner``."""

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
        raise kind(
            message, reason=text, hint=hint, fix=fix, code=code, key=method, value=self.source
        )

    def nonsense(
        self,
        method: str,
        reason: str,
        answer: object,
        *,
        kind: type[PluginError] = ClusterPluginError,
    ) -> NoReturn:
        """Raise the error about an answer that cannot be used."""
        self.fail(method, f"returned {_shown(answer)}: {reason}", code="answer-invalid", kind=kind)

    def call(
        self, method: str, ask: Callable[[], T], *, kind: type[PluginError] = ClusterPluginError
    ) -> T:
        """Return what ``ask`` returns. Raises other exceptions than LlmbError as ``kind``.

        An LlmbError is the cluster's own answer, every other exception the plugin's bug. Methods
        that ask the scheduler have no time limit: it may be slow.
        """
        try:
            with guarded(self.source, method, owner=self.owner, limited=method in _CHEAP):
                return ask()
        except PluginError as error:
            if isinstance(error, ClusterPluginError):
                raise
            subject, text = f"{method} of cluster type {self.name}:", error.message
            raise kind(
                text.replace(f" in {method}:", f" in {subject}"),
                reason=error.reason.replace(f"{method}:", subject, 1),
                hint=error.hint,
                fix=error.fix,
                code=error.code,
                key=method,
                value=self.source,
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedCluster:
    """The cluster of a plugin. Each answer has the type of the contract, or is an error."""

    cluster: Any
    plugin: _Plugin

    @property
    def pace(self) -> Pace:
        """The plugin's pace, or the default one."""
        is_there = inspect.getattr_static(self.cluster, "pace", None) is not None
        pace: object = self.plugin.call("pace", lambda: self.cluster.pace) if is_there else Pace()
        if not isinstance(pace, Pace):
            self.plugin.nonsense("pace", "it must be a Pace", pace)
        self._checked("pace", pace)
        if (
            pace.parallel < 1
            or min(pace.poll, pace.slowest_poll, pace.arrival_timeout, pace.arrive) < 0
        ):
            self.plugin.nonsense("pace", "parallel must be at least 1, and no time below 0", pace)
        return pace

    def identity(self) -> str | None:
        """Return the plugin's answer, None without such a method."""
        ask = getattr(self.cluster, "identity", None)
        identity = self.plugin.call("identity", ask) if ask is not None else None
        if identity is not None and not _is_word(identity):
            self.plugin.nonsense("identity", "it must be one line of text, or None", identity)
        return identity

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """The plugin's faults."""
        return self._faults("preflight", launches)

    @property
    def faults_here(self) -> Callable[[Sequence[Launch]], list[Fault]] | None:
        """The plugin's method. Without one it is None, and llmb looks for itself."""
        return (
            partial(self._faults, "faults_here") if hasattr(self.cluster, "faults_here") else None
        )

    def _faults(self, method: str, launches: Sequence[Launch]) -> list[Fault]:
        faults: object = self.plugin.call(method, lambda: getattr(self.cluster, method)(launches))
        if not isinstance(faults, Sequence) or not all(
            isinstance(fault, Fault) for fault in faults
        ):
            self.plugin.nonsense(method, "it must be a list of Fault", faults)
        return list(faults)

    def faults_of_secrets(self, launches: Sequence[Launch]) -> Iterable[Fault]:
        """The plugin's answer, else the secrets that this shell lacks."""
        return self.plugin.call(
            "faults_of_secrets", lambda: [*checks.secrets_at(self.cluster, launches, os.environ)]
        )

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The plugin's script."""
        script = self.plugin.call("render", lambda: self.cluster.render(launch, stamp))
        if not isinstance(script, str) or "\0" in script:
            self.plugin.nonsense("render", "it must be the text of a script", script)
        return str(script)

    def submit(self, run: RunRecord) -> str:
        """The scheduler's id. Raises NoAnswerError for a bug: the scheduler may have the run."""
        scheduler_id = self.plugin.call(
            "submit", lambda: self.cluster.submit(run), kind=NoAnswerError
        )
        if not _is_word(scheduler_id):
            reason = "it must be the scheduler's id of the run, as text"
            self.plugin.nonsense("submit", reason, scheduler_id, kind=NoAnswerError)
        return str(scheduler_id)

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The scheduler's ids by run."""
        ids = self._by_run("find", runs, self.plugin.call("find", lambda: self.cluster.find(runs)))
        for run_id, scheduler_id in ids.items():
            if not _is_word(scheduler_id):
                self.plugin.nonsense("find", f"the id of {run_id} must be text", ids)
        return ids

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run."""
        states = self._by_run(
            "poll", runs, self.plugin.call("poll", lambda: self.cluster.poll(runs))
        )
        for run in runs:
            if run.id not in states:
                self.plugin.nonsense("poll", f"it has no state of run {run.id}", states)
            self._check_state(run, states[run.id])
        return states

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Ask the plugin to cancel these runs."""
        self.plugin.call("cancel", lambda: self.cluster.cancel(runs))

    def _by_run(self, method: str, runs: Sequence[RunRecord], answer: Any) -> dict[str, Any]:
        if not isinstance(answer, Mapping):
            self.plugin.nonsense(method, "it must be a mapping by the ids of runs", answer)
        run_ids = {run.id for run in runs}
        if unexpected := [key for key in answer if key not in run_ids]:
            self.plugin.nonsense(
                method, f"{_shown(unexpected[0])} is not the id of a run that was asked for", answer
            )
        return dict(answer)

    def _check_state(self, run: RunRecord, state: Any) -> None:
        if not isinstance(state, JobState):
            self.plugin.nonsense("poll", f"the state of {run.id} must be a JobState", state)
        self._checked("poll", state)
        if state.state not in KNOWN and state.state != UNKNOWN:
            close = nearest(state.state, sorted(KNOWN))
            suggestion = f"; did you mean '{close}'?" if close is not None else ""
            reason = (
                f"returned the unknown state {_shown(state.state)} for run {run.id}{suggestion}"
            )
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


def _is_word(answer: object) -> bool:
    return isinstance(answer, str) and bool(answer.strip()) and answer.isprintable()


def _shown(answer: object) -> str:
    try:
        text = repr(answer)
    except Exception:  # a plugin's __repr__ may fail as well
        text = f"a {type(answer).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
