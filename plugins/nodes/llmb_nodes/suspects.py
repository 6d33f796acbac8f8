# SPDX-License-Identifier: Apache-2.0
"""The nodes that a submission should avoid, each with its evidence. Pure but for reading runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmb_nodes import history, past_runs, words
from llmb_nodes.blame import Blame, Observation, find as find_blame

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
class Suspect:
    """A node with the evidence against it."""

    name: str
    #: SLOW or FAULT if its newest check found that, else empty.
    word: str = ""
    #: Phrases, those of the check first.
    evidence: tuple[str, ...]
    #: What an administrator can do.
    fixes: tuple[str, ...] = ()
    #: The check, None if only runs are evidence.
    check: str | None = None
    #: None if only a check is evidence.
    runs: FromRuns | None = None


def odds(chance: float) -> str:
    """Return ``1 of 4,000 clusters without a slow node``."""
    if chance < _RAREST:
        return f"fewer than 1 of {1 / _RAREST:,.0f} clusters without a slow node"
    number = 1 / chance
    rounded = round(number, 1 - len(str(int(number))))
    return f"1 of {rounded:,.0f} clusters without a slow node"


def find(runs: Sequence[api.RunRecord], rows: Iterable[past_runs.ResultRow]) -> list[Suspect]:
    """Return the nodes that their newest check or past runs found, the worst first.

    ``rows`` are results of ``runs``, objects of ``llmb-run results --format json``.
    """
    checks = history.latest(history.checks_of(runs), judged_only=True)
    accused = from_runs(past_runs.observations(past_runs.measured(runs, rows)))
    suspects = [
        suspect
        for name in {*checks, *accused}
        if (suspect := _suspect(name, checks.get(name), accused.get(name))) is not None
    ]
    return sorted(suspects, key=_order)


def _suspect(
    name: str, checked: tuple[history.Check, words.NodeReport] | None, runs: FromRuns | None
) -> Suspect | None:
    """Return a node as a suspect, None if nothing speaks against it."""
    against = () if runs is None else (runs.in_words,)
    if checked is not None and checked[1].word in (words.FAULT, words.SLOW):
        check, node = checked
        return Suspect(
            name=name,
            word=node.word,
            evidence=(*node.reasons, *against),
            fixes=node.fixes,
            check=check.run.id,
            runs=runs,
        )
    if runs is None:
        return None
    if checked is None:
        fixes = (f"llmb-run nodes check --nodelist {name}",)
        return Suspect(name=name, evidence=against, fixes=fixes, runs=runs)
    check, node = checked
    day = time.strftime("%Y-%m-%d", time.localtime(check.time))
    alone = f"alone it was {node.word} in its check of {day}"
    return Suspect(name=name, evidence=(*against, alone), runs=runs)


def from_runs(observations: Sequence[Observation]) -> dict[str, FromRuns]:
    """Return the evidence of runs against each node that it is against."""
    accused = {}
    for accusation in find_blame(observations):
        for name in accusation.nodes:
            slow = [
                observation
                for observation in observations
                if observation.is_slow and name in observation.nodes
            ]
            slow.sort(key=lambda observation: -observation.time)
            accused[name] = FromRuns(blame=accusation, slow=tuple(slow))
    return accused


def _order(suspect: Suspect) -> tuple[int, float, str]:
    chance = 1.0 if suspect.runs is None else suspect.runs.blame.chance
    order = words.ORDER.index(suspect.word) if suspect.word else len(words.ORDER)
    return order, chance, suspect.name
