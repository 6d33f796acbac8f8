# SPDX-License-Identifier: Apache-2.0
"""From the answers of nodes to a word for each, OK, SLOW, FAULT or UNKNOWN, with reasons. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from llmb_nodes.program import exchange, peers

OK, SLOW, FAULT, UNKNOWN = "OK", "SLOW", "FAULT", "UNKNOWN"
ORDER = (FAULT, SLOW, UNKNOWN, OK)  # worst first
_FIX_FAILED = "look into its kernel log, and check it again before jobs use it"
_FOUR_DIGITS = 999.5  # in three digits, this and more would be shown as 1e+03


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One measure of a node."""

    #: Of the worst GPU, the second measurement if there was one. None if it could not be measured.
    value: float | None
    unit: str
    #: By the rank on the node, None for a GPU without a value.
    per_gpu: tuple[float | None, ...] = ()
    #: The median of all nodes of the check.
    peers_median: float | None = None
    #: ``value`` divided by ``peers_median``.
    ratio: float | None = None
    #: The first value of a node that was measured again.
    first: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node in one check."""

    name: str
    word: str
    #: Why the word is not OK.
    reasons: tuple[str, ...] = ()
    #: What is worth knowing beside it: not confirmed values, facts of the severity note.
    notes: tuple[str, ...] = ()
    #: What the reasons ask an administrator to do.
    fixes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Measure] = field(default_factory=dict)
    #: Why a fact or measure has no value.
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Findings:
    """The findings of one node while it is judged."""

    faults: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fixes: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        """The worst word."""
        if self.faults:
            return FAULT
        if self.slow:
            return SLOW
        return UNKNOWN if self.unknowns else OK


def judge(
    reports: Sequence[exchange.Report],
    table: Mapping[str, Any],
    expected: Iterable[str] = (),
    run: str = "",
    ranks: int = 0,
    failed: Mapping[str, str] = MappingProxyType({}),
) -> list[NodeReport]:
    """Return the report of each node, worst first.

    ``expected``: the nodes of the job. One that wrote nothing is UNKNOWN. ``run``: the job's run.
    ``ranks``: those of each node. A node is UNKNOWN too if one of them wrote nothing. 0: any.
    ``failed``: the nodes that ended the job, each with the scheduler's reason. They are a FAULT.
    """
    by_node: dict[str, list[exchange.Report]] = {}
    for report in reports:
        by_node.setdefault(report["node"], []).append(report)
    findings = {name: _Findings() for name in by_node}
    answers = {name: _facts_of(ranks) for name, ranks in by_node.items()}
    _judge_facts(answers, table["facts"], findings)
    log = f"see llmb-run jobs logs {run}".rstrip()
    faults = {name: f"failed during check {run}: {failed[name]}" for name in failed}
    for name, verdict in findings.items():
        if name in faults:
            verdict.faults.append(faults[name])
            verdict.fixes.append(_FIX_FAILED)
        if silent_ranks := sorted({*range(ranks)} - {one["local_rank"] for one in by_node[name]}):
            verdict.unknowns.append(f"{_gpus(silent_ranks)} wrote nothing; {log}")
    measures = _judge_measures(by_node, table["measures"], findings, ranks)
    _judge_absent(by_node, table["measures"], findings)
    nodes = [
        NodeReport(
            name=name,
            word=verdict.word,
            reasons=(*verdict.faults, *verdict.slow, *verdict.unknowns),
            notes=tuple(verdict.notes),
            fixes=tuple(dict.fromkeys(verdict.fixes)),
            facts={
                key: answer["value"] for key, answer in answers[name].items() if "value" in answer
            },
            measures=measures[name],
            absent={
                **{
                    key: answer["absent"]
                    for key, answer in answers[name].items()
                    if "value" not in answer
                },
                **_absent(by_node[name]),
            },
        )
        for name, verdict in findings.items()
    ]
    silent = [name for name in expected if name not in by_node]
    silence = (f"the node wrote nothing; {log}",)
    nodes += [
        NodeReport(name=name, word=FAULT, reasons=(faults[name],), fixes=(_FIX_FAILED,))
        if name in faults
        else NodeReport(name=name, word=UNKNOWN, reasons=silence)
        for name in silent
    ]
    return sorted(nodes, key=lambda node: (ORDER.index(node.word), node.name))


def _facts_of(ranks: Sequence[exchange.Report]) -> dict[str, dict[str, Any]]:
    return next((report["facts"] for report in ranks if "facts" in report), {})


def _absent(ranks: Sequence[exchange.Report]) -> dict[str, str]:
    outcomes = [
        pair for report in ranks for outcomes in report["rounds"][:1] for pair in outcomes.items()
    ]
    return {name: outcome["absent"] for name, outcome in outcomes if "absent" in outcome}


def _judge_facts(
    answers: Mapping[str, Mapping[str, Any]],
    table: Mapping[str, Any],
    findings: Mapping[str, _Findings],
) -> None:
    for name, fact in table.items():
        values = {
            node: facts[name].get("value") for node, facts in answers.items() if name in facts
        }
        known_values = {node: value for node, value in values.items() if value is not None}
        is_fault = fact["severity"] == "fault"
        for node, facts in answers.items():
            if node in known_values:
                problem = _broken(known_values[node], fact["rule"], [*known_values.values()])
            elif not known_values or not fact["rule"]:
                continue  # no node has it: no fault of this one
            else:
                reason = facts.get(name, {}).get("absent", "it was not asked")
                holders = (
                    "1 node has" if len(known_values) == 1 else f"{len(known_values)} nodes have"
                )
                text = f"{name} is unknown ({reason}); {holders} it"
                (findings[node].unknowns if is_fault else findings[node].notes).append(text)
                continue
            if problem is not None:
                (findings[node].faults if is_fault else findings[node].notes).append(
                    f"{name} {problem}"
                )
                if fact["fix"] and is_fault:
                    source = f" ({fact['source']})" if fact["source"] else ""
                    findings[node].fixes.append(f"{fact['fix']}{source}")


def _broken(value: Any, rule: Mapping[str, Any], peers_values: Sequence[Any]) -> str | None:
    """Return the problem of a fact, None if it obeys its rule. A list has a value of each GPU."""
    values = value if isinstance(value, list) else [value]
    for kind, bound in rule.items():
        if kind == "same":
            usual, count = _usual(peers_values)
            if bound and 2 * count > len(peers_values) and _distinct(value) != _distinct(usual):
                return f"is {_shown(value)}; {count} nodes have {_shown(usual)}"
            continue
        offenders = [index for index, item in enumerate(values) if not _obeys(item, kind, bound)]
        if offenders:
            gpus = f" on GPU {', '.join(map(str, offenders))}" if isinstance(value, list) else ""
            worst = values[offenders[0]]
            words = {"at_least": "at least", "at_most": "at most", "equals": "exactly"}[kind]
            return f"is {_shown(worst)}{gpus}; it must be {words} {_shown(bound)}"
    return None


def _obeys(value: Any, kind: str, bound: Any) -> bool:
    if kind == "equals":
        return bool(value == bound)
    if not isinstance(value, int | float):
        return False
    return bool(value >= bound if kind == "at_least" else value <= bound)


def _usual(values: Sequence[Any]) -> tuple[Any, int]:
    """Return the most frequent value of the nodes, and the number of nodes that have it."""
    ((key, count),) = Counter(map(_distinct, values)).most_common(1)
    return next(value for value in values if _distinct(value) == key), count


def _distinct(value: Any) -> tuple[str, ...]:
    """Return the different values of the GPUs of a node. Their number is a fact of its own."""
    return tuple(sorted({str(item) for item in (value if isinstance(value, list) else [value])}))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        texts = [_shown(item) for item in value]
        return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _judge_measures(
    by_node: Mapping[str, Sequence[exchange.Report]],
    table: Mapping[str, Any],
    findings: Mapping[str, _Findings],
    ranks: int,
) -> dict[str, dict[str, Measure]]:
    """Judge the values of all nodes, and return the measures of each."""
    reports = [report for of_node in by_node.values() for report in of_node]
    gpus = max([ranks, *(report["local_rank"] + 1 for report in reports)])
    first, second = (exchange.values_of(reports, number) for number in (0, 1))
    again = peers.flagged(first, table)
    measures: dict[str, dict[str, Measure]] = {node: {} for node in by_node}
    for name, row in table.items():
        values, unit = first.get(name, {}), str(row.get("unit", ""))
        usual = peers.compare(values.values(), row.get("spread") or peers.FLOOR)
        places = range(1 if exchange.is_of_node(name, row) else gpus)
        for node, of_node in by_node.items():
            outcomes = {report["local_rank"]: [*_outcomes(report, name)] for report in of_node}
            faults = [
                outcome["fault"]
                for rounds in outcomes.values()
                for outcome in rounds
                if "fault" in outcome
            ]
            if faults:
                _judge_failure(findings[node], name, faults[0], has_peers=bool(values))
            last = {rank: rounds[-1].get("value") for rank, rounds in outcomes.items() if rounds}
            per_gpu = tuple(last.get(rank) for rank in places)
            if not any(value is not None for value in per_gpu):
                continue
            value = second.get(name, {}).get(node, values.get(node))
            is_repeated = name in again.get(node, ()) and node in second.get(name, {})
            measures[node][name] = Measure(
                value=value,
                unit=unit,
                per_gpu=per_gpu,
                peers_median=usual.median if usual is not None else None,
                ratio=value / usual.median
                if value is not None and usual and usual.median
                else None,
                first=values[node] if is_repeated else None,
            )
            if name in again.get(node, ()) and not faults:
                others = [other for peer, other in values.items() if peer != node]
                _judge_value(findings[node], name, measures[node][name], usual, others, row)
    return measures


def _judge_absent(
    by_node: Mapping[str, Sequence[exchange.Report]],
    table: Mapping[str, Any],
    findings: Mapping[str, _Findings],
) -> None:
    """A node is unknown if one of its GPUs lacks a measure that any other GPU has."""
    first = {
        node: {report["local_rank"]: (report["rounds"] or [{}])[0] for report in reports}
        for node, reports in by_node.items()
    }
    measured = {
        name
        for by_rank in first.values()
        for outcomes in by_rank.values()
        for name, outcome in outcomes.items()
        if outcome.get("value") is not None
    }
    for node, by_rank in first.items():
        names: dict[tuple[str, str], list[str]] = {}  # by reason and GPUs
        for name, row in table.items():
            if name not in measured:
                continue  # no node has it: no fault of this one
            is_of_node = exchange.is_of_node(name, row)
            ranks_of: dict[str, list[int]] = {}
            for rank, outcomes in by_rank.items():
                reason = None if is_of_node and rank != 0 else _reason(outcomes, name)
                if reason is not None:
                    ranks_of.setdefault(reason, []).append(rank)
            for reason, ranks in ranks_of.items():
                is_all = is_of_node or len(ranks) == len(by_rank)
                place = "" if is_all else f" on {_gpus(ranks)}"
                names.setdefault((reason, place), []).append(name)
        findings[node].unknowns += [
            f"{', '.join(together)} could not be measured{place}: {reason}"
            for (reason, place), together in names.items()
        ]


def _reason(outcomes: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    """Return why a rank has no value of a measure. None if it has, or if it failed."""
    if name not in outcomes:
        # A rank ends with a measure that hangs, which is judged as a failure.
        has_failed = any("fault" in outcome for outcome in outcomes.values())
        return None if has_failed else "it wrote no value"
    outcome = outcomes[name]
    if "fault" in outcome or outcome.get("value") is not None:
        return None
    return str(outcome.get("absent", "it wrote no value"))


def _gpus(ranks: Sequence[int]) -> str:
    return f"GPU{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _outcomes(report: exchange.Report, name: str) -> Iterator[dict[str, Any]]:
    return (outcomes[name] for outcomes in report["rounds"] if name in outcomes)


def _judge_failure(findings: _Findings, name: str, text: str, *, has_peers: bool) -> None:
    """A measure that fails is the node's fault only if other nodes did it."""
    if has_peers:
        findings.faults.append(f"{name}: {text}")
        findings.fixes.append(f"run {name} by hand on the node, and look at dmesg")
    else:
        findings.unknowns.append(f"{name}: {text}")


def _judge_value(
    findings: _Findings,
    name: str,
    measure: Measure,
    usual: peers.Peers | None,
    others: Iterable[float],
    row: Mapping[str, Any],
) -> None:
    """Judge a value that was flagged by its second measurement.

    ``others``: the values of the other nodes.
    """
    value, unit, minimum = measure.value, measure.unit, row.get("minimum")
    if measure.first is None or value is None:
        findings.unknowns.append(f"{name} was flagged and not measured again")
        return
    if minimum is not None and value < minimum:
        findings.faults.append(
            f"{name} {number(value)} {unit}, measured twice; {number(minimum)} is the least"
            f"{_of_gpu(measure)}"
        )
        findings.fixes.append(f"{name} is far below what this GPU type does on any healthy node")
    elif usual is not None and usual.is_below(value):
        findings.slow.append(
            f"{name} {number(value)} {unit}, measured twice; {_peers(usual, others)}"
            f" ({_percent(measure.ratio)}){_of_gpu(measure)}"
        )
    else:
        findings.notes.append(
            f"{name} {number(measure.first)} {unit} at first, and {number(value)} when measured"
            " again: not confirmed"
        )


def _peers(usual: peers.Peers, others: Iterable[float]) -> str:
    """Return the usual value as a sentence on the other nodes, or on all if they differ."""
    shown = [number(value) for value in others]
    if set(shown) == {number(usual.median)}:
        return f"the other {len(shown)} nodes have {shown[0]}"
    return f"the median of all {usual.nodes} nodes is {number(usual.median)}"


def _of_gpu(measure: Measure) -> str:
    """Name the GPU that makes the node slow, if one does."""
    values = [value for value in measure.per_gpu if value is not None]
    if len(values) < 2 or measure.value is None:
        return ""
    if min(values) < (1 - peers.FLOOR) * statistics.median(values):
        return f"; GPU {measure.per_gpu.index(min(values))} is the slowest"
    return ""


def number(value: float) -> str:
    """Return a value for people, in three or more digits."""
    return f"{value:.0f}" if value >= _FOUR_DIGITS else f"{value:.3g}"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"
