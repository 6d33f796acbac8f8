# SPDX-License-Identifier: Apache-2.0
"""Writes the table of rows in megatron-bridge.md from the files bridge.yaml; --check: exit code 1
if it is stale.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmb.builtin.plugins import builtin_plugins
from llmb.plan.bridge_rows import BridgeRow, releases, table_of
from llmb.plugins.loader import load_plugins

PAGE = Path(__file__).with_name("megatron-bridge.md")
NAME = "docs/megatron-bridge.md"
BEGIN = "<!-- python docs/bridge.py writes this table from bridge.yaml -->\n"
END = "<!-- end of the table -->\n"
HEAD = (
    "Size",
    "Release",
    "GPU",
    "dtype",
    "GPUs",
    "tp / pp / cp / vp",
    "Micro batch",
    "Batch",
    "Memory and graphs",
)


def lines() -> Iterator[Sequence[str]]:
    """The rows of all sizes but those with llmb's own layouts, the newest release first."""
    found = load_plugins(builtin_plugins()).workloads().values()
    for table in (table_of(workload) for workload in found if workload.bridge is not None):
        for size in (name for name, one in table.sizes.items() if not one.cut):
            rows = list(table.of(size))
            for release in releases():
                yield from (cells(size, release, row) for own, row in rows if own == release)


def cells(size: str, release: str, row: BridgeRow) -> tuple[str, ...]:
    """One line of the table."""
    layout = " / ".join(str(part or "–") for part in (row.tp, row.pp, row.cp, row.vp))
    layout += f", ep {row.ep}" if row.ep != 1 else ""
    counts = ", ".join(map(str, row.scales.counts))
    return (
        size,
        release,
        ", ".join(row.gpu),
        ", ".join(row.dtype),
        counts,
        layout,
        str(row.mbs),
        row.gbs.text,
        extras(row),
    )


def extras(row: BridgeRow) -> str:
    """What saves memory or launches, in words."""
    words = [
        "FSDP" if row.fsdp else "",
        "UB" if row.nccl_ub else "",
        f"offload {row.offload_layers}" if row.offload_layers else "",
        f"recompute {row.recompute_layers}" if row.recompute_layers else "",
        f"optimizer × {row.optimizer_instances}" if row.optimizer_instances else "",
        f"graphs: {', '.join(row.graph_scope) or row.graphs}" * (row.graphs not in (None, "none")),
    ]
    return ", ".join(filter(None, words))


def page(before: str) -> str:
    """The page with the current table. Raises ValueError if the page has no markers for it."""
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{NAME} has no lines '{BEGIN.strip()}' and '{END.strip()}'")
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *lines()))
    return f"{head}{BEGIN}\n{table}\n\n{END}{tail}"


def main(arguments: Sequence[str]) -> int:
    """Write the table into the page; with --check, only compare, and return 1 if it is stale."""
    before = PAGE.read_text("utf-8")
    now = page(before)
    if "--check" not in arguments:
        PAGE.write_text(now, "utf-8")
        return 0
    if before != now:
        print(f"{NAME} is out of date; run: python docs/bridge.py")
        return 1
    print(f"{NAME} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
