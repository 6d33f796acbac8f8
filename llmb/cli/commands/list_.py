# SPDX-License-Identifier: Apache-2.0
"""`llmb-run list`: the workloads, and with -w every row of one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context

if TYPE_CHECKING:
    from llmb.workload import Row, Workload


@click.command("list")
@click.option("-w", "--workload", metavar="W", help="Show every configuration of one workload.")
@options.format_option
@pass_context
def command(context: Context, workload: str | None, fmt: str) -> None:
    """Show the workloads that can be run."""
    from llmb.cli.output import print_rows
    from llmb.names import find_workload
    from llmb.tables import Column

    if workload is None:
        headings = ("workload", "size", "gpu_types", "dtypes", "scales")
        rows = [row for item in context.workloads.values() for row in _sizes(item)]
        print_rows([Column(key=name, heading=name.replace("_", " ").capitalize()) for name in headings], rows, fmt)
        return
    chosen = context.workloads[find_workload(workload, list(context.workloads))]
    numbers = ("layers", "tp", "pp", "cp", "vp", "mbs", "gbs")
    columns = [Column(key=name, heading=name.capitalize()) for name in ("size", "gpu", "dtype", "scales")]
    columns += [Column(key=name, heading=name.upper() if len(name) < 4 else "Layers", right=True) for name in numbers]
    columns.append(Column(key="scaling", heading="Scaling"))
    print_rows(columns, _configurations(chosen), fmt)


def _sizes(workload: Workload) -> list[dict[str, Any]]:
    return [
        {
            "workload": workload.key,
            "size": name,
            "gpu_types": ", ".join(size.gpu_types()),
            "dtypes": ", ".join(dict.fromkeys(dtype for row in size.rows for dtype in row.dtype)),
            "scales": _span([count for row in size.rows for count in row.scales.counts]),
        }
        for name, size in workload.sizes.items()
    ]


def _configurations(workload: Workload) -> list[dict[str, Any]]:
    return [
        {
            "size": name, "gpu": ", ".join(row.gpu), "dtype": ", ".join(row.dtype), "scales": _span(row.scales.counts),
            "layers": row.layers or size.model.layers, "tp": row.tp, "pp": row.pp, "cp": row.cp, "vp": row.vp,
            "mbs": row.mbs, "gbs": row.gbs.text, "scaling": _scaling(row),
        }
        for name, size in workload.sizes.items()
        for row in size.rows
    ]  # fmt: skip


def _scaling(row: Row) -> str:
    return "strong" if row.strong_scaling else "weak"


def _span(counts: Any) -> str:
    """``16..2048`` for the powers of two between, else the counts themselves."""
    counts = sorted(set(counts))
    doubling = all(later == 2 * earlier for earlier, later in itertools.pairwise(counts))
    return f"{counts[0]}..{counts[-1]}" if doubling and len(counts) > 2 else ", ".join(map(str, counts))
