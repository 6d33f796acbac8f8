# SPDX-License-Identifier: Apache-2.0
"""How much of a large set of runs a page shows, so that it can be sent and read; the rest is counted, never silent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

ENTRIES = 250
ATTENTION = 20
CARDS = 24
FAMILIES = 24
REPEATED = 60
CHARTS = 48
FAILURES = 30
NAMED = 24  # runs of one failure
CONDITIONS = 150
RUNS = 500
TEXT = 300  # characters of one text


@dataclass(frozen=True, slots=True)
class Shown(Generic[T]):
    """The first ``items`` of ``total``."""

    items: Sequence[T]
    total: int

    @property
    def left_out(self) -> int:
        """How many there are beside them."""
        return self.total - len(self.items)


def first(items: Sequence[T], most: int) -> Shown[T]:
    """The first ``most`` of the items."""
    return Shown(items[:most], len(items))
