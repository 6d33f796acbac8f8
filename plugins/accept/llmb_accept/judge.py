# SPDX-License-Identifier: Apache-2.0
"""From a plan and what has run to the outcome of each phase, and what must run next. Pure.

The same function drives an acceptance and verifies its archive: nothing but the plan, the nodes and
the runs decides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb import api
from llmb_accept.acceptance import Acceptance
from llmb_accept.plan import SPREAD, Phase, PlanRow

ACCEPTED, NOT_ACCEPTED = "ACCEPTED", "NOT_ACCEPTED"
PASSED, FAILED, NOT_RUN, OPEN = "passed", "failed", "not run", "open"
OK = "OK"  # the word of a node that a check of nodes has no objection to
SUCCESS = "Success"
_HELD_OUT = ("PASS", "WARN")
_ENDED = (SUCCESS, "Failed", "Cancelled", "Unknown")
# A group is slow if it is below the median of its peers by both: modified deviations, and a share
# of the median, the spread of its row. They are those of the checks of nodes.
DEVIATIONS, FLOOR, FEWEST = 3.5, SPREAD, 3
_OF_NORMAL = 1.4826  # the standard deviation of normal values by their median absolute deviation
_NONE_LEFT = "no node is left"
CONFIRMING = 2  # the round in which groups that failed are measured again

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRun:
    """A run of an acceptance."""

    id: str
    session: str
    #: Its list of nodes as submitted, empty without one.
    nodelist: str
    llmb_version: str
    plugin: str = ""
    plugin_version: str = ""
    #: Its object of ``llmb-run results --format json``.
    row: Mapping[str, Any]

    @property
    def is_open(self) -> bool:
        """True if it has not ended."""
        return self.row["status"] not in _ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWord:
    """A node in a check of nodes."""

    word: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What has run."""

    #: Oldest first.
    runs: tuple[AcceptanceRun, ...] = ()
    #: The nodes of each check by the run's id.
    checks: Mapping[str, Mapping[str, NodeWord]] = field(default_factory=dict)

    def find(self, session: str, nodelist: str) -> AcceptanceRun | None:
        """Return the first run of a session on these nodes, which is the plan's.

        Another one that somebody adds to the session later does not count.
        """
        runs = (run for run in self.runs if (run.session, run.nodelist) == (session, nodelist))
        return next(runs, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Jobs that must run next: one of ``row`` on each of ``groups``, or a check of nodes."""

    session: str
    #: None for a check.
    row: PlanRow | None
    check: str | None = None
    groups: tuple[Group, ...]
    #: Of each job.
    gpus: int
    #: The phase that needs them.
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line of the certificate: what was asked for, and what came of it."""

    name: str
    nodes: Group
    status: str
    #: The headline metric as text, or why it is not passed.
    text: str = ""
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOutcome:
    """A phase after all its runs."""

    name: str
    status: str
    items: tuple[Item, ...] = ()
    #: Why each node that leaves is not in the next phase.
    left: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The outcome of the phases so far, and what must run next, nothing if it is complete."""

    phases: tuple[PhaseOutcome, ...]
    #: Why it is not accepted besides its phases.
    problems: tuple[str, ...] = ()
    needed: tuple[Needed, ...] = ()
    #: The runs that have not ended.
    waiting: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to run."""
        return not self.needed and not self.waiting

    @property
    def answer(self) -> str:
        """ACCEPTED only if it is complete, and every phase and node passed."""
        is_good = all(phase.status == PASSED and not phase.left for phase in self.phases)
        return ACCEPTED if self.is_complete and is_good and not self.problems else NOT_ACCEPTED

    @property
    def left(self) -> dict[str, str]:
        """The nodes that failed, each with the phase and the reason."""
        return {
            node: f"{phase.name}: {reason}"
            for phase in self.phases
            for node, reason in phase.left.items()
        }


def assess(acceptance: Acceptance, evidence: Evidence) -> Assessment:
    """Return the outcome of the phases in their order, up to the first that needs runs."""
    nodes = acceptance.nodes
    outcomes: list[PhaseOutcome] = []
    for phase in acceptance.plan.phases:
        work = _Work(acceptance=acceptance, evidence=evidence, phase=phase, nodes=nodes)
        outcome = work.outcome()
        outcomes.append(outcome)
        if work.needed or work.waiting:
            return Assessment(
                phases=tuple(outcomes), needed=tuple(work.needed), waiting=tuple(work.waiting)
            )
        nodes = tuple(node for node in nodes if node not in outcome.left)
    return Assessment(phases=tuple(outcomes), problems=tuple(_problems(acceptance, evidence)))


def _problems(acceptance: Acceptance, evidence: Evidence) -> Iterable[str]:
    if not acceptance.plan.one_release:
        return
    releases: dict[str, set[str]] = {"llmb": {run.llmb_version for run in evidence.runs}}
    for run in evidence.runs:
        releases.setdefault(run.plugin or "a workload", set()).add(run.plugin_version)
    for name, versions in releases.items():
        if len(versions) > 1:
            yield f"{name} was not one release throughout: {', '.join(sorted(versions))}"


@dataclass(slots=True, kw_only=True)
class _Work:
    """A phase while it is assessed."""

    acceptance: Acceptance
    evidence: Evidence
    phase: Phase
    nodes: Group
    needed: list[Needed] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def outcome(self) -> PhaseOutcome:
        """Return the outcome, of the status ``open`` if runs are missing."""
        phase = self.phase
        if not self.nodes:
            return self._not_run(_NONE_LEFT)
        if phase.check is not None:
            reason = self.acceptance.cannot_run.get(phase.name)
            return self._not_run(reason) if reason is not None else self._checked(phase.check)
        rows = [row for row in phase.rows if self._is_for_gpu(row)]
        if not rows:
            return self._not_run(f"the plan has no job for {self.acceptance.gpu_type}")
        if phase.nodes is None:
            return self._of_all(rows)
        if phase.nodes > len(self.nodes):
            return self._not_run(f"it needs {phase.nodes} nodes, and {len(self.nodes)} are left")
        return self._of_groups(rows, phase.nodes)

    @property
    def lost(self) -> Mapping[str, str]:
        """The nodes that the scheduler refused in this phase, each with the reason."""
        refused = self.acceptance.lost.get(self.phase.name, {})
        return {node: why for node, why in refused.items() if node in self.nodes}

    def _group_of_all(self, session: str, choose: Callable[[Group], Group]) -> Group:
        """Return the nodes of a job on all nodes: those it ran on, else all that are not lost.

        Nodes that were lost after a run do not make it run again. ``choose`` is given all nodes,
        and then those without the first that was lost, and so on.
        """
        lost = [*self.lost]
        for count in range(len(lost) + 1):
            gone = lost[:count]
            group = choose(tuple(node for node in self.nodes if node not in gone))
            if self.evidence.find(session, self.acceptance.nodelist(group)) is not None:
                break
        return group

    def _is_for_gpu(self, row: PlanRow) -> bool:
        return not row.gpu_types or self.acceptance.gpu_type in row.gpu_types

    def _not_run(self, reason: str) -> PhaseOutcome:
        item = Item(name=self.phase.name, nodes=self.nodes, status=NOT_RUN, text=reason)
        return PhaseOutcome(name=self.phase.name, status=NOT_RUN, items=(item,))

    def _end(
        self,
        items: Sequence[Item],
        failed_nodes: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> PhaseOutcome:
        failed_nodes = failed_nodes or {}
        unnamed = {node: why for node, why in self.lost.items() if node not in failed_nodes}
        items = [
            *items,
            *(
                Item(name="node", nodes=(node,), status=FAILED, text=why)
                for node, why in unnamed.items()
            ),
        ]
        statuses = {item.status for item in items}
        status = next((word for word in (OPEN, NOT_RUN, FAILED) if word in statuses), PASSED)
        return PhaseOutcome(
            name=self.phase.name,
            status=status,
            items=tuple(items),
            left={**failed_nodes, **unnamed},
            notes=tuple(notes),
        )

    def _open(self) -> PhaseOutcome:
        return PhaseOutcome(name=self.phase.name, status=OPEN)

    # A check of nodes

    def _checked(self, kind: str) -> PhaseOutcome:
        name = self.phase.name
        session = self.acceptance.session(name)
        group = self._group_of_all(session, lambda nodes: nodes)
        if not group:
            return self._end([])
        run = self.evidence.find(session, self.acceptance.nodelist(group))
        if run is None:
            gpus = len(group) * self.acceptance.gpus_per_node
            needed = Needed(
                session=session, row=None, check=kind, groups=(group,), gpus=gpus, phase=name
            )
            self.needed.append(needed)
            return self._open()
        if run.is_open:
            self.waiting.append(run.id)
            return self._open()
        words = self.evidence.checks.get(run.id, {})
        if not self.acceptance.names_nodes and len(words) == 1:  # this machine, by its own name
            words = {self.nodes[0]: next(iter(words.values()))}
        silent = NodeWord(word="UNKNOWN", reasons=("the check has nothing of it",))
        items, failed_nodes = [], {}
        for node in group:
            node_word = words.get(node, silent)
            text = "; ".join((node_word.word, *node_word.reasons))
            is_ok = node_word.word == OK
            status = PASSED if is_ok else FAILED
            items.append(Item(name="check", nodes=(node,), status=status, text=text, run=run.id))
            if not is_ok:
                failed_nodes[node] = text
        return self._end(items, failed_nodes)

    # Jobs on all nodes

    def _of_all(self, rows: Sequence[PlanRow]) -> PhaseOutcome:
        items = [self._tried(row) for row in rows]
        return self._open() if self.needed or self.waiting else self._end(items)

    def _tried(self, row: PlanRow) -> Item:
        """Return the item of the first attempt that passed, or of the last one."""
        per_node = self.acceptance.gpus_per_node
        if self.lost.keys() >= set(self.nodes):
            return Item(name=row.name, nodes=self.nodes, status=NOT_RUN, text=_NONE_LEFT)
        item = None
        for attempt in range(1, self.phase.attempts + 1):
            session = self.acceptance.session(self.phase.name, row.name, str(attempt))
            try:
                group = self._group_of_all(session, lambda nodes: placed(row, nodes, per_node)[0])
                group, gpus = placed(row, group, per_node)
            except LookupError as error:
                return Item(name=row.name, nodes=self.nodes, status=NOT_RUN, text=str(error))
            (item,) = self._round(row, (group,), gpus, attempt, lambda _value: None)
            if item.status != FAILED:
                break
        assert item is not None
        return item

    # Jobs on groups of nodes

    def _of_groups(self, rows: Sequence[PlanRow], size: int) -> PhaseOutcome:
        groups, gpus = split(self.nodes, size), size * self.acceptance.gpus_per_node
        first = {row.name: self._round(row, groups, gpus, 1, None) for row in rows}
        if self.needed or self.waiting:
            return self._open()
        failed = {
            row.name: [item for item in first[row.name] if item.status == FAILED] for row in rows
        }
        suspects = {node for items in failed.values() for item in items for node in item.nodes}
        partners = [node for node in self.nodes if node not in {*suspects, *self.lost}]
        items = [item for of_row in first.values() for item in of_row if item.status != FAILED]
        failed_nodes: dict[str, str] = {}
        notes: list[str] = []
        for row in rows:
            nodes = [node for item in failed[row.name] for node in item.nodes]
            if nodes:  # a row that passed or cannot run has nothing to measure again
                self._confirm(row, first[row.name], nodes, partners, items, failed_nodes, notes)
        if self.needed or self.waiting:
            return self._open()
        return self._end(items, failed_nodes, notes)

    def _confirm(
        self,
        row: PlanRow,
        first: Sequence[Item],
        suspects: Sequence[str],
        partners: Sequence[str],
        items: list[Item],
        failed_nodes: dict[str, str],
        notes: list[str],
    ) -> None:
        """Measure each node of a group that failed again, with nodes that passed everything.

        A node that fails twice, the second time with other nodes, is the cause.
        """
        size = self.phase.nodes or 1
        suspects = list(dict.fromkeys(suspects))
        reasons = {
            node: item.text for item in first if item.status == FAILED for node in item.nodes
        }
        if len(partners) < size - 1:
            for node in suspects:
                text = f"{reasons[node]}; no good node is left to measure it with"
                failed_nodes[node] = f"{row.name}: {text}"
                items.append(Item(name=row.name, nodes=(node,), status=FAILED, text=text))
            return
        groups = tuple(
            (
                node,
                *(
                    partners[(number * (size - 1) + place) % len(partners)]
                    for place in range(size - 1)
                ),
            )
            for number, node in enumerate(suspects)
        )
        gpus = size * self.acceptance.gpus_per_node
        again = self._round(row, groups, gpus, CONFIRMING, self._limit(row, first))
        for (node, *_), item in zip(groups, again, strict=True):
            items.append(item)
            if item.status == FAILED:
                failed_nodes[node] = f"{row.name}: {item.text} (before: {reasons[node]})"
            elif item.status == PASSED:
                notes.append(f"{node}: {row.name}: {reasons[node]}; not so when measured again")

    def _round(
        self,
        row: PlanRow,
        groups: Sequence[Group],
        gpus: int,
        number: int,
        limit: Callable[[float], str | None] | None,
    ) -> list[Item]:
        """Return an item for each group. ``limit`` says why a value is too slow, None: by peers."""
        reason = self.acceptance.cannot_run.get(f"{self.phase.name}.{row.name}")
        if reason is not None:
            text = f"cannot run: {reason}"
            return [Item(name=row.name, nodes=self.nodes, status=NOT_RUN, text=text)] * (
                len(groups) if self.phase.nodes is None else 1
            )
        session = self.acceptance.session(self.phase.name, row.name, str(number))
        runs = [self.evidence.find(session, self.acceptance.nodelist(group)) for group in groups]
        missing = tuple(
            group
            for group, run in zip(groups, runs, strict=True)
            if run is None and not self.lost.keys() & set(group)
        )
        if missing:
            needed = Needed(
                session=session, row=row, groups=missing, gpus=gpus, phase=self.phase.name
            )
            self.needed.append(needed)
        self.waiting += [run.id for run in runs if run is not None and run.is_open]
        items = [self._item(row, group, run) for group, run in zip(groups, runs, strict=True)]
        too_slow = limit or self._limit(row, items)
        return [self._compared(item, too_slow) for item in items]

    def _item(self, row: PlanRow, group: Group, run: AcceptanceRun | None) -> Item:
        gone = [f"{node}: {self.lost[node]}" for node in group if node in self.lost]
        if run is None and gone:
            return Item(name=row.name, nodes=group, status=FAILED, text="; ".join(gone))
        if run is None or run.is_open:
            return Item(name=row.name, nodes=group, status=OPEN)
        problem = problem_of(run.row, row)
        return Item(
            name=row.name,
            nodes=group,
            status=FAILED if problem else PASSED,
            text=problem or shown(run.row),
            run=run.id,
        )

    def _compared(self, item: Item, too_slow: Callable[[float], str | None]) -> Item:
        value = self._speed(item)
        problem = None if value is None else too_slow(value)
        if problem is None:
            return item
        return Item(
            name=item.name,
            nodes=item.nodes,
            status=FAILED,
            text=f"{item.text}: {problem}",
            run=item.run,
        )

    def _limit(self, row: PlanRow, items: Sequence[Item]) -> Callable[[float], str | None]:
        """Return the rule that compares a group with the equal groups of the first round."""
        speeds = [speed for item in items if (speed := self._speed(item, failed=True)) is not None]
        return peers_limit(speeds, row.spread)

    def _speed(self, item: Item, *, failed: bool = False) -> float | None:
        """Return the headline metric of a run that passed, larger is better."""
        run = next((run for run in self.evidence.runs if run.id == item.run), None)
        if run is None or not (failed or item.status == PASSED) or run.row["status"] != SUCCESS:
            return None
        metric = run.row["metrics"].get(run.row["headline"])
        if metric is None or not metric["mean"]:
            return None
        mean: float = metric["mean"]
        return mean if metric["better"] == "higher" else 1 / mean


def placed(row: PlanRow, nodes: Group, gpus_per_node: int) -> tuple[Group, int]:
    """Return the nodes and the GPUs of a job of all nodes, the largest of its scales that fits.

    Raises LookupError if none fits.
    """
    gpus = len(nodes) * gpus_per_node
    if not row.scales:
        return nodes, gpus
    fitting = [scale for scale in row.scales if scale <= gpus]
    if not fitting:
        raise LookupError(f"it needs {row.scales[0]} GPUs, and {gpus} are left")
    return nodes[: -(-fitting[-1] // gpus_per_node)], fitting[-1]


def split(nodes: Group, size: int) -> tuple[Group, ...]:
    """Return groups of ``size`` nodes that have every node. The last takes from the first ones."""
    groups = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    lacking = size - len(groups[-1])
    groups[-1] = (*groups[-1], *nodes[:lacking])
    return tuple(groups)


def peers_limit(speeds: Sequence[float], floor: float = FLOOR) -> Callable[[float], str | None]:
    """Return the rule that says how far a speed is below its peers, None if it is not too far.

    ``floor``: the share of the median that healthy groups may be below it. It says so only of three
    groups or more: of two, nobody knows which one is right.
    """
    if len(speeds) < FEWEST:
        return lambda _speed: None
    median = statistics.median(speeds)
    spread = _OF_NORMAL * statistics.median(abs(speed - median) for speed in speeds)
    limit = median - max(DEVIATIONS * spread, floor * median)

    def too_slow(speed: float) -> str | None:
        if speed >= limit:
            return None
        return f"{100 * (1 - speed / median):.1f} % below the median of {len(speeds)} groups"

    return too_slow


def problem_of(row: Mapping[str, Any], required: PlanRow) -> str:
    """Return why a run does not pass, empty if it does. ``row``: of ``results``."""
    if row["status"] != SUCCESS:
        return f"{row['status']}: {row['reason'] or 'no reason is known'}"
    if row["invalid"]:
        return f"INVALID: {'; '.join(row['invalid'])}"
    metrics: Mapping[str, Mapping[str, Any]] = row["metrics"]
    for name, minimum in required.minimum.items():
        if name not in metrics:
            return f"it has no {name}"
        if metrics[name]["mean"] < minimum:
            return _beyond(name, metrics[name], "below", minimum)
    if row["headline"] not in metrics:
        return "it measured nothing"
    judged = {name: metric for name, metric in metrics.items() if metric["judged"]}
    for name, metric in judged.items():
        if (problem := _broken_bound(name, metric)) is not None:
            return problem
    if row.get("wrong"):
        return f"FAIL: {row['wrong']}"
    if required.sustained and (problem := _not_sustained(row)):
        return problem
    if required.ratio_above is None:
        return ""
    ratios = [metric["ratio"] for metric in judged.values() if metric["ratio"] is not None]
    if not ratios:
        return "NO_REFERENCE: nothing is published for it, and no baseline has it"
    if min(ratios) <= required.ratio_above:
        share, least = _shares(min(ratios), required.ratio_above)
        return f"{share} of its reference; more than {least} is needed"
    return ""


def _not_sustained(row: Mapping[str, Any]) -> str:
    """Return why a training did not hold out, empty if it did."""
    verdict = row["sustained_verdict"]
    if verdict is None:
        return "it was too short to say how it holds out, or has no step times and no telemetry"
    word, reason = verdict["verdict"], verdict["reason"]
    return "" if word in _HELD_OUT else f"sustained {word}: {reason}"


def _broken_bound(name: str, metric: Mapping[str, Any]) -> str | None:
    """Return the limit of a verdict FAIL that this run alone breaks."""
    bounds = metric["bounds"] or {}
    value, ratio = metric["mean"], metric["ratio"]
    minimum, maximum = bounds.get("minimum"), bounds.get("maximum")
    if minimum is not None and value < minimum:
        return _beyond(name, metric, "below", minimum)
    if maximum is not None and value > maximum:
        return _beyond(name, metric, "above", maximum)
    fails_below = bounds.get("fail_below") or 0.95
    if ratio is not None and ratio < fails_below:
        against = metric.get("against", "its reference")
        share, least = _shares(ratio, fails_below)
        return f"FAIL: {share} of {against}, below {least}"
    return None


def _beyond(name: str, metric: Mapping[str, Any], word: str, limit: float) -> str:
    """Return that the value of a metric is below or above its limit."""
    value, _ = api.in_enough_digits(
        metric["mean"], limit, lambda number, more: f"{number:.{4 + more}g}"
    )
    return f"{name} {value} {metric['unit']} is {word} {limit:g}"


def _shares(ratio: float, limit: float) -> tuple[str, str]:
    """Return a ratio and its limit in percent."""
    share, _ = api.in_enough_digits(
        100 * ratio, 100 * limit, lambda number, more: f"{number:.{1 + more}f}"
    )
    return f"{share} %", f"{100 * limit:g} %"


def shown(row: Mapping[str, Any]) -> str:
    """Return the headline metric as text, with its ratio."""
    name = row["headline"]
    metric = row["metrics"][name]
    text = f"{name} {metric['mean']:.4g} {metric['unit']}".strip()
    if metric["ratio"] is not None:
        against = f" of {metric['against']}" if "against" in metric else ""
        text += f" ({100 * metric['ratio']:.1f} %{against})"
    sustained = row.get("sustained_verdict")
    return f"{text}; {sustained['verdict']}: {sustained['reason']}" if sustained else text
