# SPDX-License-Identifier: Apache-2.0
"""Simulates diagnoses of nodes with planted faults and writes their tables into diagnosis.md.

python docs/diagnosis.py            simulate and write (some minutes)
python docs/diagnosis.py --check    simulate some rows again, and compare them with the page
"""

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from unittest import mock

from llmb_nodes.program import peers, strategy
from llmb_nodes.program.strategy import SearchPlan
from llmb_nodes.simulation import Faults, simulate

PAGE = Path(__file__).with_name("diagnosis.md")
BEGIN, END = "<!-- diagnosis (written by `python docs/diagnosis.py`) -->", "<!-- end -->"
SECONDS = 20  # of a round: a process group, the collective, the files
HANG_SECONDS = 60  # the time limit of a group that hangs
FACTOR = 0.75  # of a faulty part
WEAK = 0.85  # of a node that is only a bit slow
RUNS = {16: 200, 64: 200, 256: 60, 1024: 30}  # of each row, by nodes
SPREADS = (0.01, 0.02, 0.05)
FAULTS = ("none", "node", "weak node", "pair", "switch", "hang", "everywhere")
SWEEPS = 400
Finding = tuple[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row of the first table."""

    nodes: int
    spread: float
    fault: str

    def planted(self, seed: int) -> tuple[SearchPlan, Faults, set[Finding]]:
        """Return a cluster with a fault in a random place, and the finding that is right."""
        chance = random.Random(f"{self} {seed}")
        nodes = tuple(f"n{number}" for number in range(self.nodes))
        width = max(4, self.nodes // 8)
        switches = {node: f"leaf{number // width}" for number, node in enumerate(nodes)}
        plan = SearchPlan(nodes, switches)
        bad = chance.randrange(self.nodes)
        factors = {"node": FACTOR, "weak node": WEAK, "hang": 0.0}
        if self.fault in factors:
            found = {(strategy.NODE, frozenset({nodes[bad]}))}
            return plan, Faults(nodes={nodes[bad]: factors[self.fault]}), found
        if self.fault == "pair":  # of one group of the first round: others may never meet
            first = bad // plan.size * plan.size
            pair = frozenset(chance.sample(nodes[first : first + plan.size], 2))
            return plan, Faults(pairs={pair: FACTOR}), {(strategy.PAIR, pair)}
        if self.fault == "switch":
            name = switches[nodes[bad]]
            members = frozenset(node for node in nodes if switches[node] == name)
            return plan, Faults(switches={name: FACTOR}), {(strategy.SWITCH, members)}
        if self.fault == "everywhere":
            plan = SearchPlan(nodes, switches, expected=100.0)
            return plan, Faults(everywhere=FACTOR), {(strategy.EVERYWHERE, frozenset(nodes))}
        return plan, Faults(), set()


def row(case: Case) -> str:
    """Return the line of a case; equal in each run."""
    rounds, tests, minutes, missed, wrong = [], [], [], 0, 0
    for seed in range(RUNS[case.nodes]):
        plan, faults, right = case.planted(seed)
        done = simulate(plan, faults, case.spread, seed)
        found = {
            (one.kind, frozenset(one.nodes)) for one in done.diagnosis.findings if one.confirmed
        }
        rounds.append(len(done.rounds))
        tests.append(done.tests)
        minutes.append((len(done.rounds) * SECONDS + done.hangs * HANG_SECONDS) / 60)
        missed += not right <= found
        wrong += bool(found - right)
    share = 100 / RUNS[case.nodes]
    cells = [
        f"{case.nodes:,}",
        f"{100 * case.spread:g} %",
        case.fault,
        f"{statistics.median(rounds):g} ({max(rounds)})",
        f"{statistics.median(tests):g} ({max(tests)})",
        f"{statistics.median(minutes):.1f} ({max(minutes):.1f})",
        f"{share * missed:.1f} %" if right else "",
        f"{share * wrong:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def fixed_row(case: Case) -> str:
    """Return the line of a case if no test is repeated."""
    with mock.patch.multiple(strategy, REPEATS=1, EVEN=1.0):
        return row(case)


def _z(values: Sequence[float]) -> set[int]:
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    return {n for n, value in enumerate(values) if value < mean - 2 * deviation}


def _modified_z(values: Sequence[float]) -> set[int]:
    median = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - median) for value in values)
    return {n for n, value in enumerate(values) if value < median - 2 * spread}


def _below(share: float) -> Callable[[Sequence[float]], set[int]]:
    def rule(values: Sequence[float]) -> set[int]:
        limit = (1 - share) * statistics.median(values)
        return {n for n, value in enumerate(values) if value < limit}

    return rule


def _peers(values: Sequence[float]) -> set[int]:
    usual = peers.compare(values)
    assert usual is not None
    return {n for n, value in enumerate(values) if usual.is_below(value)}


RULES: dict[str, tuple[Callable[[Sequence[float]], set[int]], int]] = {
    "z < -2 (Azure's scripts)": (_z, 1),
    "modified z < -2": (_modified_z, 1),
    "3.5 % below the median": (_below(0.035), 1),
    "5 % below the median (as SuperBench below a baseline)": (_below(0.05), 1),
    "10 % below the median (Megatron-LM's sniff test)": (_below(0.10), 1),
    "`nodes check`: 3.5 modified deviations and 3.5 %": (_peers, 1),
    "`nodes check`, measured twice": (_peers, 2),
}


def rule_row(name: str, nodes: int) -> str:
    """Return the line of a rule for nodes that are each measured by itself."""
    rule, times = RULES[name]
    cells = [name, f"{nodes:,}"]
    for spread in SPREADS:
        chance = random.Random(f"{name} {nodes} {spread}")
        blamed = missed = 0
        for _ in range(SWEEPS):
            means = [chance.gauss(1.0, spread / 4) for _ in range(nodes)]
            means[0] *= FACTOR
            flagged = set(range(nodes))
            for _ in range(times):
                flagged &= rule([100 * chance.gauss(mean, spread) for mean in means])
            blamed += bool(flagged - {0})
            missed += 0 not in flagged
        cells.append(f"{100 * blamed / SWEEPS:.0f} %, {100 * missed / SWEEPS:.0f} %")
    return f"| {' | '.join(cells)} |"


CASES = [
    Case(nodes=nodes, spread=spread, fault=fault)
    for nodes, spread, fault in product(RUNS, SPREADS, FAULTS)
]
FIXED = [
    Case(nodes=nodes, spread=spread, fault=fault)
    for nodes, spread, fault in product((16, 64), SPREADS[1:], FAULTS[:5])
]
CHECKED = [case for case in CASES if case.nodes == 16 and case.spread != SPREADS[-1]]
HEADS = ["nodes", "spread", "fault", "rounds", "tests", "minutes", "missed", "wrong blame"]


def _table(heads: Sequence[str], lines: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]


def content() -> str:
    """Return the part of the page between its marks."""
    rules = [rule_row(name, nodes) for nodes in (64, 256) for name in RULES]
    spreads = [f"spread {100 * spread:g} %" for spread in SPREADS]
    return "\n".join(
        [
            BEGIN,
            *_table(HEADS, [row(case) for case in CASES]),
            "",
            "The same search if each test runs once, whatever the noise is:",
            "",
            *_table(HEADS, [fixed_row(case) for case in FIXED]),
            "",
            "Rules for nodes that are each measured by itself, with one of them slow: the share of"
            f" {SWEEPS} sweeps that blame a healthy node, and the share that miss the slow one.",
            "",
            *_table(["rule", "nodes", *spreads], rules),
            END,
        ]
    )


def main(options: list[str]) -> int:
    """Write the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    if "--check" in options:
        lines = [row(case) for case in CHECKED] + [rule_row(name, 64) for name in RULES]
        missing = [line for line in lines if line not in old]
        print(f"{PAGE.name} is not up to date: {missing}" if missing else "diagnosis is up to date")
        return 1 if missing else 0
    PAGE.write_text(before + content() + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
