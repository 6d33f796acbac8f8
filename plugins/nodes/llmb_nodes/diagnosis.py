# SPDX-License-Identifier: Apache-2.0
"""Diagnoses as runs: their settings, what they will take, and their findings in words. Pure but for
reading the folder of a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmb_nodes import words
from llmb_nodes.history import WORKLOAD, say_once
from llmb_nodes.program import diagnose, strategy
from llmb_nodes.program.strategy import Diagnosis, GroupTest, NodeFinding, Outcome, SearchPlan

if TYPE_CHECKING:
    from llmb import api

SIZE = "diagnose"  # of the workload
FEWEST = 4  # nodes: a suspect needs others that are known to be good
PATHS = {
    "all": (strategy.NVLINK,),
    "network": (strategy.NETWORK,),
    "both": (strategy.NVLINK, strategy.NETWORK),
}
START_SECONDS = 15  # of a round: processes, the group, the files
_HANG_SECONDS = 60  # of a round with a group that hangs
_MARGIN = 300  # seconds of a job beside its rounds


def program_words(parameters: Mapping[str, str]) -> list[str]:
    """Return the words of the program for the parameters of a job."""
    expected = parameters.get("expect", "none")
    return [
        f"--seconds={parameters.get('seconds', '5')}",
        f"--paths={','.join(PATHS[parameters.get('path', 'all')])}",
        *([f"--expected={expected}"] if expected != "none" else []),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisCost:
    """The cost of a diagnosis, if tests need no repeats and nothing hangs."""

    nodes: int
    gpus: int
    group: int
    #: Rounds if all nodes are healthy, and at most with one fault.
    healthy: int
    one_fault: int
    #: Seconds of a round.
    seconds: float

    def minutes(self, rounds: int) -> float:
        """Return the duration of this many rounds."""
        return rounds * self.seconds / 60

    def gpu_hours(self, rounds: int) -> float:
        """Return the GPU hours of this many rounds. All nodes are held to the end."""
        return self.gpus * self.minutes(rounds) / 60

    def as_data(self) -> dict[str, Any]:
        """Return the object of ``--dry-run --format json``."""
        cases = {"healthy": self.healthy, "one_fault": self.one_fault}
        return {
            "nodes": self.nodes,
            "gpus": self.gpus,
            "group": self.group,
            **{
                name: {
                    "rounds": rounds,
                    "minutes": round(self.minutes(rounds), 1),
                    "gpu_hours": round(self.gpu_hours(rounds), 2),
                }
                for name, rounds in cases.items()
            },
        }


def estimate(nodes: int, gpus_per_node: int, paths: Sequence[str], seconds: float) -> DiagnosisCost:
    """Simulate a diagnosis of this many nodes, without a topology."""
    from llmb_nodes.simulation import most_rounds, simulate

    plan = SearchPlan(tuple(f"n{number}" for number in range(nodes)), paths=tuple(paths))
    return DiagnosisCost(
        nodes=nodes,
        gpus=nodes * gpus_per_node,
        group=plan.size,
        healthy=len(simulate(plan).rounds),
        one_fault=most_rounds(plan),
        seconds=seconds + START_SECONDS,
    )


def time_limit(nodes: int, paths: Sequence[str], seconds: float) -> str:
    """Return the time limit of a job, HH:MM:SS: for one fault, with all repeats and hangs."""
    size = SearchPlan(tuple(map(str, range(nodes)))).size
    rounds = len(paths) * (4 + 2 * math.ceil(math.log2(size)))
    seconds_per_round = strategy.REPEATS * (seconds + START_SECONDS) + _HANG_SECONDS
    minutes = math.ceil((rounds * seconds_per_round + _MARGIN) / 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisReport:
    """A diagnosis that was read from its run."""

    plan: SearchPlan
    rounds: Sequence[Sequence[tuple[GroupTest, Outcome]]]
    #: None if the job ended before the search.
    diagnosis: Diagnosis | None


def is_diagnosis(run: api.RunRecord) -> bool:
    """Return True if a run is a diagnosis of nodes."""
    return run.job.workload == WORKLOAD and run.job.model_size == SIZE


def read(run: api.RunRecord) -> DiagnosisReport | None:
    """Return the diagnosis of a run, None if it wrote none, or a damaged one, with a message."""
    try:
        answer = diagnose.read(run.work)
        end = None if answer is None else strategy.next_round(*answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        answer = None  # a value of another kind
    if answer is None:
        file = run.work / diagnose.FILE
        if file.exists():
            say_once(f"{file} is damaged. The diagnosis {run.id} is omitted.")
        return None
    plan, rounds = answer
    return DiagnosisReport(
        plan=plan, rounds=rounds, diagnosis=end if isinstance(end, Diagnosis) else None
    )


def word_of(finding: NodeFinding) -> str:
    """Return FAULT for what fails or is below the expected value, SLOW for what is below peers."""
    if not finding.confirmed:
        return words.OK
    if finding.problem or finding.kind == strategy.EVERYWHERE:
        return words.FAULT
    return words.SLOW


def reason_of(finding: NodeFinding, plan: SearchPlan) -> str:
    """Return the finding in a sentence for a person who must call an administrator."""
    text = f"{_subject(finding, plan)}: {_evidence(finding)}"
    if finding.path == strategy.NETWORK:
        text += ", over the network alone"
    if not finding.confirmed:
        text += "; healthy when it was tested again, so nobody is blamed"
    return text


def _subject(finding: NodeFinding, plan: SearchPlan) -> str:
    from llmb import api

    names = api.fold_nodes(finding.nodes)
    if finding.kind == strategy.NODE:
        return "every group with this node" if finding.confirmed else "a group with this node"
    if finding.kind == strategy.PAIR:
        return "these two together, and neither with others"
    if finding.kind == strategy.SWITCH:
        switch = next((plan.switches[n] for n in finding.nodes if n in plan.switches), "")
        place = f"switch group {switch}" if switch else names
        return f"groups of {place} with any other nodes"
    if finding.kind == strategy.LINK:
        half = len(finding.nodes) // 2
        first, second = finding.nodes[:half], finding.nodes[half:]
        return f"{api.fold_nodes(first)} with {api.fold_nodes(second)}, and neither with others"
    if finding.kind == strategy.EVERYWHERE:
        return "every group"
    return "this group, but no part of it"


def _evidence(finding: NodeFinding) -> str:
    if finding.problem:
        return finding.problem
    if finding.value is None:
        return "no value"
    value = f"{words.number(finding.value)} GB/s"
    if finding.usual is None:
        return value
    usual = words.number(finding.usual)
    share = 100 * (finding.value / finding.usual - 1)
    standard = "expected" if finding.kind == strategy.EVERYWHERE else "usual"
    return f"{value}; {usual} is {standard} ({share:+.0f} %)"


def notes_of(report: DiagnosisReport) -> list[str]:
    """Return what is worth knowing beside the findings."""
    from llmb import api

    notes = []
    if report.diagnosis is None:
        notes.append("the job ended before the search: the findings are not complete")
        return notes
    diagnosis = report.diagnosis
    for path, value in diagnosis.usual.items():
        across = diagnosis.across.get(path)
        beside = f", {words.number(across)} across switch groups" if across else ""
        route = " over the network alone" if path == strategy.NETWORK else ""
        notes.append(f"healthy groups reach {words.number(value)} GB/s{route}{beside}")
    share = min(diagnosis.pairs.values(), default=0.0)
    notes.append(f"{100 * share:.0f} % of all pairs of nodes met in a group")
    if report.plan.expected is None and not any(
        finding.confirmed for finding in diagnosis.findings
    ):
        notes.append("whether all nodes are slow is only known with --expect GB/s")
    if diagnosis.unjudged:
        names = api.fold_nodes(diagnosis.unjudged)
        notes.append(f"not judged, since no equal groups were there to compare with: {names}")
    return notes


def as_data(report: DiagnosisReport) -> dict[str, Any]:
    """Return the object of ``--format json``, as docs/nodes.md describes it."""
    diagnosis = report.diagnosis
    return {
        "nodes": [*report.plan.nodes],
        "complete": diagnosis is not None,
        "findings": [
            {
                "kind": finding.kind,
                "nodes": [*finding.nodes],
                "word": word_of(finding),
                "confirmed": finding.confirmed,
                "path": finding.path,
                "value": finding.value,
                "usual": finding.usual,
                "problem": finding.problem or None,
                "reason": reason_of(finding, report.plan),
            }
            for finding in (diagnosis.findings if diagnosis is not None else ())
        ],
        "usual": dict(diagnosis.usual) if diagnosis is not None else {},
        "across": dict(diagnosis.across) if diagnosis is not None else {},
        "pairs": dict(diagnosis.pairs) if diagnosis is not None else {},
        "unjudged": [*diagnosis.unjudged] if diagnosis is not None else [],
        "notes": notes_of(report),
        "rounds": [
            [
                {
                    "stage": test.stage,
                    "path": test.path,
                    "nodes": [*test.nodes],
                    "value": outcome.value,
                    "problem": outcome.problem or None,
                }
                for test, outcome in results
            ]
            for results in report.rounds
        ],
    }


def accusations(report: DiagnosisReport) -> Iterator[tuple[str, NodeFinding]]:
    """Yield the nodes that later jobs should avoid, each with a finding that is confirmed.

    Of a bad pair, one is enough.
    """
    kinds = (strategy.NODE, strategy.PAIR, strategy.SWITCH)
    for finding in report.diagnosis.findings if report.diagnosis is not None else ():
        if finding.confirmed and finding.kind in kinds:
            most = 1 if finding.kind == strategy.PAIR else len(finding.nodes)
            for name in finding.nodes[:most]:
                yield name, finding


def latest(
    runs: Iterable[api.RunRecord],
) -> dict[tuple[str, str], tuple[api.RunRecord, DiagnosisReport]]:
    """Return the newest diagnosis of each node over each path, ``all`` and ``network`` apart.

    One that ended before its search, or had nothing to compare a node with, tells nothing of it.
    """
    newest: dict[tuple[str, str], tuple[api.RunRecord, DiagnosisReport]] = {}
    for run in sorted(filter(is_diagnosis, runs), key=lambda run: run.submitted_at):
        report = read(run)
        if report is None or report.diagnosis is None:
            continue
        for path in report.plan.paths:
            for name in set(report.plan.nodes).difference(report.diagnosis.unjudged):
                newest[name, path] = run, report
    return newest
