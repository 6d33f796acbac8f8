# SPDX-License-Identifier: Apache-2.0
"""Simulates sessions and writes how often each verdict is given into docs/results.md.

python docs/power.py            simulate and write (a minute)
python docs/power.py --check    simulate some cases again, and compare them with the page
"""

import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from llmb.contract.metrics import STEP_TIME, TRAINING_BY_NAME
from llmb.judge.deviation import Deviations
from llmb.judge.value import FAIL, INCONCLUSIVE, PASS, SUSPICIOUS, WARN, judge_values

PAGE = Path(__file__).with_name("results.md")
BEGIN, END = "<!-- power (written by `python docs/power.py`) -->", "<!-- end -->"
RATIOS = (1.00, 0.97, 0.93, 0.90)
CONFIGURATIONS = 12
SESSIONS = 250  # of each case; each has 12 verdicts
WORDS = {PASS: "PASS", WARN: "WARN", FAIL: "FAIL", INCONCLUSIVE: "INC.", SUSPICIOUS: "SUSP."}
TIME = TRAINING_BY_NAME[STEP_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Sessions of one kind."""

    deviation: float  #: of single runs, as a fraction
    repeats: int
    against: int  #: runs of each configuration on the other side, 0 for a published figure
    shift: float = 0.0  #: of the other night as a whole, as a fraction
    scatter: float = 0.0  #: of the logarithm of the deviations of configurations

    @property
    def label(self) -> tuple[str, str, str]:
        other = f"{self.against} run{'s' if self.against > 1 else ''}"
        return (
            f"{100 * self.deviation:g} %",
            str(self.repeats),
            other if self.against else "a figure",
        )


COUNTS = (1, 2, 3, 5)
EQUAL = [
    Case(deviation=deviation, repeats=repeats, against=repeats * has_runs)
    for deviation, has_runs, repeats in product((0.003, 0.01, 0.02), (0, 1), COUNTS)
]
DIFFERENT = [
    Case(deviation=0.01, repeats=repeats, against=repeats, scatter=0.7) for repeats in (2, 3, 5)
]
SHIFTED = [
    Case(deviation=deviation, repeats=3, against=3, shift=0.01) for deviation in (0.003, 0.01)
]
CHECKED = (EQUAL[1], EQUAL[14], DIFFERENT[0], SHIFTED[1])


def session(case: Case, ratio: float, rng: random.Random) -> list[str]:
    """Return the verdicts of one simulated session."""
    sides: list[tuple[list[float], list[float]]] = []
    night = rng.gauss(0.0, case.shift)
    for _ in range(CONFIGURATIONS):
        deviation = case.deviation * math.exp(rng.gauss(0.0, case.scatter))
        ours = [math.exp(night + rng.gauss(0.0, deviation)) / ratio for _ in range(case.repeats)]
        theirs = [math.exp(rng.gauss(0.0, deviation)) for _ in range(case.against)]
        sides.append((ours, theirs or [1.0]))
    exact = not case.against
    known = Deviations([[ours] if exact else [ours, theirs] for ours, theirs in sides])
    return [
        judge_values(
            ours,
            theirs,
            TIME,
            known.of(ours) if exact else known.of(ours, theirs),
            exact=exact,
        ).verdict
        for ours, theirs in sides
    ]


def row(case: Case) -> str:
    """Return the line of a case in the table; equal in each run."""
    cells = list(case.label)
    for ratio in RATIOS:
        rng = random.Random(f"{case} {ratio}")
        found = Counter(word for _ in range(SESSIONS) for word in session(case, ratio, rng))
        shares = {WORDS[word]: 100 * found[word] / found.total() for word in WORDS if found[word]}
        cells.append(", ".join(f"{name} {share:.1f}" for name, share in shares.items()))
    return f"| {' | '.join(cells)} |"


def table(cases: Sequence[Case]) -> list[str]:
    """Return the lines of a table."""
    heads = ["deviation", "repeats", "against", *(f"true ratio {ratio:.2f}" for ratio in RATIOS)]
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *map(row, cases)]


def content() -> str:
    """Return the part of the page between its marks."""
    size = SESSIONS * CONFIGURATIONS
    return "\n".join(
        [
            BEGIN,
            f"Sessions of {CONFIGURATIONS} configurations, {SESSIONS} for each cell ({size:,}"
            " verdicts). All runs deviate as much:",
            "",
            *table(EQUAL),
            "",
            "The deviations of the configurations differ: the logarithm of each is 0.7 from the"
            " common one, so that two of three are between a half and twice of it:",
            "",
            *table(DIFFERENT),
            "",
            "Nights differ as a whole, by 1 % (one standard deviation). No interval contains that:"
            " the repeats of one night do not show it. Compare on the same nodes, in one session:",
            "",
            *table(SHIFTED),
            END,
        ]
    )


def main(options: list[str]) -> int:
    """Write the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    if "--check" in options:
        missing = [line for case in CHECKED if (line := row(case)) not in old]
        print(f"{PAGE.name} is not up to date: {missing}" if missing else "power is up to date")
        return 1 if missing else 0
    PAGE.write_text(before + content() + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
