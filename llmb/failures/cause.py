# SPDX-License-Identifier: Apache-2.0
"""A root cause as a value: its class, the line that shows it, the rank that said it, and the fix."""

import re
from dataclasses import dataclass

from llmb.failures.table import table

_RANK = re.compile(rb"\[rank(\d{1,6})\]|^\s*(\d{1,6}): |\[default(\d{1,3})\]:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a run failed: its class, and the line of the log that says so, fit to be shown.

    ``rank``: who said it, where the line has a rank before it; ``log``: the name of the file where several were read;
    ``advice``: the fix of this very failure, where it is known.
    """

    kind: str
    line: str
    rank: int | None = None
    log: str | None = None
    advice: str = ""

    @property
    def fix(self) -> str:
        """What to do next."""
        return self.advice or table().fixes.get(self.kind, "")

    def __str__(self) -> str:
        where = "" if self.rank is None else f" (rank {self.rank})"
        return f"{self.kind}{where}: {self.line}"


def rank_of(line: bytes) -> int | None:
    """The rank that a line's prefix names: ``[rank3]:`` of torch, ``3: `` of srun, ``[default3]:`` of torchrun."""
    found = [match for match in _RANK.finditer(line) if match.lastindex != 3] or list(_RANK.finditer(line))
    return int(next(group for group in found[0].groups() if group is not None)) if found else None
