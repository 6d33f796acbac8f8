# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_nodes.program --table=checks.json [--quick]: this rank's part of a node check.

The first measurement is done by all. Then each rank reads the files of all others, finds out by the
same rule which nodes are far from their peers, and the ranks of these nodes measure again. The exit
code is 0 whatever is found: a failed rank would end the others.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from llmb_nodes.program import exchange, facts, peers
from llmb_nodes.program.measures import Bench, Rank

SECONDS = {"quick": 0.5, "check": 5.0}  # of each measure


def main(arguments: Sequence[str]) -> int:
    """Run this rank's part, in the folder of the run."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in arguments)
    table = json.loads(Path(options["table"]).read_text(encoding="utf-8"))
    size = "quick" if "quick" in options else "check"
    rank = read_rank(os.environ, SECONDS[size], is_quick=size == "quick")
    RankCheck(rank, table, int(os.environ.get("WORLD_SIZE", "1"))).run()
    return 0


def read_rank(environ: Mapping[str, str], seconds: float, *, is_quick: bool) -> Rank:
    """Return this process by the variables of llmb and of Slurm, which names the node."""
    host = socket.gethostname().split(".")[0]
    return Rank(
        node=environ.get("SLURMD_NODENAME") or host,
        local_rank=int(environ.get("LLMB_LOCAL_RANK", "0")),
        local_world=int(environ.get("LOCAL_WORLD_SIZE", "1")),
        folder=Path.cwd(),
        seconds=seconds,
        is_quick=is_quick,
    )


class RankCheck:
    """The check of one rank: its report grows, and is written after each part."""

    def __init__(self, rank: Rank, table: Mapping[str, Any], world: int) -> None:
        self.rank, self.table, self.world = rank, table, world
        self.bench = Bench(rank)
        self.report: exchange.Report = {
            "node": rank.node,
            "local_rank": rank.local_rank,
            "began": round(time.time(), 1),
            "rounds": [],
        }

    def run(self) -> None:
        """Ask and measure, and measure again if this node is flagged. Rank 0 prints the values."""
        if self.rank.local_rank == 0:
            self.report["facts"] = facts.ask_all(self.table["facts"])
        self._measure([*self.table["measures"]])
        patience = float(self.table["patience"])
        reports = exchange.wait(
            self.rank.folder, lambda reports: len(reports) >= self.world, patience
        )
        again = peers.flagged(exchange.values_of(reports, 0), self.table["measures"])
        if flagged := again.get(self.rank.node):
            self._measure([name for name in self.table["measures"] if name in flagged])
        if os.environ.get("LLMB_RANK", "0") == "0":
            self._print(again, patience)

    def _measure(self, names: Sequence[str]) -> None:
        outcomes: dict[str, Any] = {}
        self.report["rounds"].append(outcomes)
        for name in names:
            # A call that hangs in a driver cannot be interrupted, only left behind.
            limit = float(self.table["hang_seconds"])
            watchdog = threading.Timer(limit, self._give_up, (outcomes, name, limit))
            watchdog.daemon = True
            watchdog.start()
            outcome = self.bench.measure(name, self.table["measures"][name])
            watchdog.cancel()
            if outcome is not None:
                outcomes[name] = outcome
        exchange.write(self.rank.folder, self.report)

    def _give_up(self, outcomes: dict[str, Any], name: str, limit: float) -> NoReturn:
        outcomes[name] = {"fault": f"did not end within {limit:g} s"}
        exchange.write(self.rank.folder, self.report)
        os._exit(0)

    def _print(self, again: Mapping[str, set[str]], patience: float) -> None:
        """Wait for the second measurement, and print the lines that the log is read by."""

        def is_complete(reports: Sequence[exchange.Report]) -> bool:
            return all(len(report["rounds"]) > 1 for report in reports if report["node"] in again)

        reports = exchange.wait(self.rank.folder, is_complete, patience)
        worst = 100.0
        for by_node in exchange.values_of(reports, 0).values():
            usual = peers.compare(by_node.values())
            if usual is not None and usual.median > 0:
                worst = min(worst, 100 * min(by_node.values()) / usual.median)
        nodes = {report["node"] for report in reports}
        print(
            f"node check: {len(nodes)} nodes, measured again: {', '.join(sorted(again)) or 'none'}"
        )
        print(f"node check: slowest value {worst:.2f} % of its peers", flush=True)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the destructor of a process group sometimes never returns
