# SPDX-License-Identifier: Apache-2.0
"""Writes the table of rows in megatron-bridge.md from the files bridge.yaml; --check: exit code 1
if it is stale.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmb.builtin.bridge.bridge_rows import BridgeRow, table_of
from llmb.builtin.nvidia_images import releases
from llmb.builtin.plugins import builtin_plugins
from llmb.plugins.loader import load_plugins
from llmb_testing.generated import with_part, write

PAGE = Path(__file__).with_name("megatron-bridge.md")
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
    counts = ", ".join(map(str, row.scales.counts)) + " only" * row.exact_scales
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
    """Shorter sequences, and what saves memory or launches, in words."""
    words = [
        f"sequences of {row.seq_length}" if row.seq_length else "",
        "FSDP" if row.fsdp else "",
        "UB" if row.nccl_ub else "",
        f"offload {row.offload_layers}" if row.offload_layers else "",
        f"recompute {row.recompute_layers}" if row.recompute_layers else "",
        f"graphs: {', '.join(row.graph_scope) or row.graphs}" * (row.graphs not in (None, "none")),
    ]
    return ", ".join(filter(None, words))


def main(arguments: Sequence[str]) -> int:
    """Write the table into the page; with --check, only compare, and return 1 if it is stale."""
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *lines()))
    text = with_part(PAGE.read_text("utf-8"), f"\n{table}\n\n", BEGIN, END)
    return write({PAGE: text}, "bridge", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
