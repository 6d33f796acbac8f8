# SPDX-License-Identifier: Apache-2.0
"""The nodes that a submission should avoid, each with its evidence. Pure but for reading runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmb_nodes import history, words

if TYPE_CHECKING:
    from llmb import api


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node with the evidence against it."""

    name: str
    #: SLOW or FAULT if a check found that.
    word: str
    evidence: tuple[str, ...]
    fixes: tuple[str, ...] = ()
    #: The newest run that is evidence, and its time in seconds since the epoch.
    run: str
    time: float


def suspects_of(runs: Iterable[api.RunRecord]) -> list[Suspect]:
    """Return the nodes whose newest check found them SLOW or broken, the worst first."""
    return from_checks(history.checks_of(runs))


def from_checks(checks: Sequence[history.Check]) -> list[Suspect]:
    """Return the nodes that are SLOW or FAULT in the newest check that knows them."""
    found = [
        Suspect(
            name=name,
            word=node.word,
            evidence=node.reasons,
            fixes=node.fixes,
            run=check.run.name,
            time=check.time,
        )
        for name, (check, node) in history.latest(checks, known=True).items()
        if node.word in (words.FAULT, words.SLOW)
    ]
    return sorted(found, key=lambda suspect: (words.ORDER.index(suspect.word), suspect.name))
