# SPDX-License-Identifier: Apache-2.0
"""The nodes that a submission should avoid, each with its evidence. Pure but for reading runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmb_nodes import diagnosis, history, past_runs, words
from llmb_nodes.program import strategy
from llmb_nodes.slow_nodes import Blame, Observation, find as find_blame

if TYPE_CHECKING:
    from llmb import api

_RAREST = 1e-6  # a smaller chance is shown as this one


@dataclass(frozen=True, slots=True, kw_only=True)
class FromRuns:
    """The evidence of past runs against a node."""

    blame: Blame
    #: Its slow observations, newest first.
    slow: tuple[Observation, ...]

    @property
    def gpus(self) -> int:
        """The GPUs of its newest slow run."""
        return self.slow[0].gpus

    @property
    def gpus_lost(self) -> int:
        """How many of ``gpus`` the lost speed is worth."""
        return round(self.blame.loss * self.gpus)

    @property
    def loss(self) -> str:
        """As in ``51 of 512 GPUs lost``."""
        if self.gpus_lost < 1:  # of a small run
            return f"{100 * self.blame.loss:.0f} % of the speed lost"
        return f"{self.gpus_lost} of {self.gpus} GPUs lost"

    @property
    def in_words(self) -> str:
        """The evidence as a phrase."""
        accusation = self.blame
        nodes = "it" if len(accusation.nodes) == 1 else " or ".join(accusation.nodes)
        return (
            f"{accusation.slow} of {accusation.total} runs with {nodes} were slow,"
            f" {accusation.slow_without} of {accusation.total_without} without; {self.loss};"
            f" chance would do this in {odds(accusation.chance)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTest:
    """What the newest check or diagnosis of a node has found against it."""

    #: ``check``, of the node alone, or ``diagnosis``, of groups of nodes.
    kind: str
    #: The id of its run.
    run: str
    #: SLOW or FAULT.
    word: str
    #: Phrases.
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node with the evidence against it."""

    name: str
    #: The check and the diagnoses that are evidence, in this order.
    tests: tuple[FromTest, ...] = ()
    #: None if past runs are no evidence.
    runs: FromRuns | None = None
    #: The word and the day of a check that found nothing, empty without one.
    alone: str = ""
    #: What an administrator can do.
    fixes: tuple[str, ...] = ()
    #: Its newest check is UNKNOWN, so an earlier check is the evidence.
    is_unknown_now: bool = False

    @property
    def word(self) -> str:
        """The worst word of its tests, empty if only runs are evidence."""
        return min((test.word for test in self.tests), key=words.ORDER.index, default="")

    @property
    def evidence(self) -> tuple[str, ...]:
        """Phrases: those of tests first."""
        return (
            *(reason for test in self.tests for reason in test.reasons),
            *(() if self.runs is None else (self.runs.in_words,)),
            *([self.alone] if self.alone else ()),
        )

    def run_of(self, kind: str) -> str | None:
        """Return the id of the check or diagnosis that is evidence, None without one."""
        return next((test.run for test in self.tests if test.kind == kind), None)


def odds(chance: float) -> str:
    """Return ``1 of 4,000 clusters without a slow node``."""
    if chance < _RAREST:
        return f"fewer than 1 of {1 / _RAREST:,.0f} clusters without a slow node"
    number = 1 / chance
    rounded = round(number, 1 - len(str(int(number))))
    return f"1 of {rounded:,.0f} clusters without a slow node"


def find(runs: Sequence[api.RunRecord], rows: Iterable[past_runs.ResultRow]) -> list[Suspect]:
    """Return the nodes that their newest check or diagnosis or past runs found, the worst first.

    ``rows`` are results of ``runs``, objects of ``llmb-run results --format json``.
    """
    past_checks = history.checks_of(runs)
    checks = history.latest(past_checks, judged_only=True)
    newest = history.latest(past_checks)
    diagnosed = from_diagnoses(runs)
    accused = from_runs(past_runs.observations(past_runs.measured(runs, rows)))
    suspects = [
        _suspect(name, checks.get(name), diagnosed.get(name, ()), accused.get(name))
        for name in {*checks, *diagnosed, *accused}
    ]
    suspects = [
        replace(suspect, is_unknown_now=True)
        if suspect.run_of("check") and newest[suspect.name][1].word == words.UNKNOWN
        else suspect
        for suspect in suspects
    ]
    return sorted(
        (suspect for suspect in suspects if suspect.tests or suspect.runs is not None), key=_order
    )


def unknown_now(runs: Sequence[api.RunRecord]) -> list[str]:
    """Return the nodes of which their newest check knows nothing."""
    newest = history.latest(history.checks_of(runs))
    return [name for name, (_, node) in newest.items() if node.word == words.UNKNOWN]


def _suspect(
    name: str,
    checked: tuple[history.PastCheck, words.NodeReport] | None,
    diagnosed: Sequence[FromTest],
    runs: FromRuns | None,
) -> Suspect:
    """Return a node with all that speaks against it."""
    if checked is None:
        fixes = (f"llmb-run nodes check --nodelist {name}",)
        return Suspect(name=name, tests=(*diagnosed,), runs=runs, fixes=fixes)
    check, node = checked
    if node.word in (words.FAULT, words.SLOW):
        found = FromTest(kind="check", run=check.run.id, word=node.word, reasons=node.reasons)
        return Suspect(name=name, tests=(found, *diagnosed), runs=runs, fixes=node.fixes)
    alone = f"alone it was {node.word} in its check of {past_runs.day(check.time)}"
    return Suspect(name=name, tests=(*diagnosed,), runs=runs, alone=alone)


def from_diagnoses(runs: Iterable[api.RunRecord]) -> dict[str, list[FromTest]]:
    """Return what the newest diagnoses of each node have found against it, by path."""
    accused: dict[str, list[FromTest]] = {}
    for (name, path), (run, report) in diagnosis.latest(runs).items():
        findings = [
            finding
            for suspect, finding in diagnosis.accusations(report)
            if (suspect, finding.path) == (name, path)
        ]
        if findings:
            accused.setdefault(name, []).append(
                FromTest(
                    kind="diagnosis",
                    run=run.id,
                    word=min(map(diagnosis.word_of, findings), key=words.ORDER.index),
                    reasons=tuple(
                        _in_diagnosis(finding, report, run.submitted_at) for finding in findings
                    ),
                )
            )
    return accused


def _in_diagnosis(
    finding: strategy.NodeFinding, report: diagnosis.DiagnosisReport, seconds: float
) -> str:
    from llmb import api

    # A pair or a switch group has other nodes beside the suspect.
    nodes = "" if finding.kind == strategy.NODE else f"{api.fold_nodes(finding.nodes)}: "
    reason = diagnosis.reason_of(finding, report.plan)
    return f"{nodes}{reason} in the diagnosis of {past_runs.day(seconds)}"


def from_runs(observations: Sequence[Observation]) -> dict[str, FromRuns]:
    """Return the evidence of runs against each node that it is against."""
    accused = {}
    for accusation in find_blame(observations):
        for name in accusation.nodes:
            slow = [
                observation
                for observation in observations
                if observation.is_slow and name in observation.compared
            ]
            slow.sort(key=lambda observation: -observation.time)
            accused[name] = FromRuns(blame=accusation, slow=tuple(slow))
    return accused


def _order(suspect: Suspect) -> tuple[int, float, str]:
    chance = 1.0 if suspect.runs is None else suspect.runs.blame.chance
    order = words.ORDER.index(suspect.word) if suspect.word else len(words.ORDER)
    return order, chance, suspect.name
