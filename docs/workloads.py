# SPDX-License-Identifier: Apache-2.0
"""Writes workloads.md from the workloads' YAML; with --check, exit code 1 if the page is out of
date.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llmb.builtin.bridge.bridge_rows import table_of
from llmb.contract.flops import flops_convention, model_flops
from llmb.contract.gpus import known_types
from llmb.contract.metrics import TFLOPS_PER_GPU, TOKENS_PER_SECOND_PER_GPU
from llmb.contract.model import ModelShape
from llmb.contract.spec import BRIDGE, NEMO, Size, Workload, read_workload
from llmb.core.tables import Column, render
from llmb.plan import listing
from llmb.plan.published import Figure
from llmb.plan.published_tables import read_published
from llmb.plan.recompute import TOLERANCE, disagreements
from llmb_testing.generated import write

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("workloads.md")
README = ROOT / "README.md"

HEAD = """\
# Workloads

<!-- Written by `python docs/workloads.py` from workload.yaml and published.yaml of plugins/*/*. -->

The workloads that you can run, and their published figures. `llmb-run list -w W` prints the rows of
a workload, and `llmb-run list --published` the figures; both take `--gpu-type TYPE`, and can print
JSON and CSV.

A row is for all of its GPU types, dtypes and GPU counts; `16..2048` means 16, 32, 64 and so on.

- N is the job's GPU count, DP = N / (TP·PP·CP), and GA (gradient accumulation) = GBS / (MBS·DP).
  Both must be whole numbers, the layers must be a multiple of PP·VP, and with VP > 1, GA must be a
  multiple of PP. `--set tp=4` overrides a number; the same checks apply.
- A job uses whole nodes; with the sizes smoke and tiny it can use part of a node. smoke is for the
  first run on a cluster ([jobs](jobs.md)).
- Strong scaling keeps the batch while the number of GPUs grows; request it with `--strong-scaling`,
  or with `strong_scaling: true` in a job list.
- GB/GPU is the memory that one GPU must have.
- Release is the published release whose settings a row follows, that of its newest figure, by GPU
  count if there are several. A row without a release has the settings of NeMo 2.3.1's scripts
  ([nemo.md](nemo.md#which-settings)).
"""
PEAKS = """\
Dense peaks, which the MFU uses, by GPU type and dtype. Megatron-Bridge's names for the ways in
which fp8 scales:

| dtype | scaling | in Megatron-Bridge |
|---|---|---|
| `fp8`, with `--set fp8=current` (`fp8: current` in a job list) | by the current values of a tensor | `fp8_cs` |
| `fp8` | delayed: by the values of earlier steps | |
| `mxfp8` | each block of 32 values | `fp8_mx` |
| `nvfp4` | 4 bits, each block of 16 values | `nvfp4` |

No workload has rows for every type here: `llmb-run list` shows which it has. With `gpu_types:
{h200: {like: h100}}` in cluster_config.yaml, an H200 uses the rows of the H100.
"""
FIGURES = """\
## Published figures

Step times in seconds, and the values that were printed with them. A figure is valid for its
release, batch and window only; the window `last` is the last step alone. Compare an MFU only with
an MFU of the same FLOPs formula ([results](results.md)).
"""
CHECKED = """\
## Printed values that disagree

`llmb-run list --published --check` recomputes the printed values: tokens/s and days from the step
time, model FLOPs from the model's shape, and the MFU from the printed FLOPs and the dense peak. For
Llama's 405b and its proxy no FLOPs are printed, so the FLOPs that give the printed MFU are used.
Tolerance: {tolerance}. llmb keeps the values as they were printed; verdicts compare only step
times.
"""


def page(workloads: Sequence[Workload]) -> str:
    """The whole page."""
    parts = [HEAD, _peaks()]
    for workload in workloads:
        parts += _workload(workload)
    found = {workload.key: read_published(workload) for workload in workloads}
    parts.append(FIGURES)
    for workload in workloads:
        groups = [
            [one for one in found[workload.key] if one.framework == name] for name in (NEMO, BRIDGE)
        ]
        tables = [
            write(group)
            for write, group in zip((_figures, _of_bridge), groups, strict=True)
            if group
        ]
        parts += [f"### {workload.key}", *tables] if tables else []
    wrong = [one for workload in workloads for one in disagreements(found[workload.key], workload)]
    parts += [CHECKED.format(tolerance=TOLERANCE), _table(listing.CHECKED, listing.checked(wrong))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


BLOCK = re.compile(r"(<!-- workloads [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def overview(workloads: Sequence[Workload]) -> str:
    """The table of the README: each workload's sizes with their GPU types and counts."""
    rows: list[Mapping[str, object]] = []
    for workload in workloads:
        bridge = table_of(workload)
        sizes = [*dict.fromkeys([*workload.sizes, *bridge.sizes])]
        for name in sizes:
            own = workload.sizes.get(name)
            counts: dict[str, set[int]] = {}
            by_bridge = [row for _, row in bridge.of(name)] if name in bridge.sizes else []
            for row in [*(own.rows if own is not None else ()), *by_bridge]:
                for gpu in row.gpu:
                    counts.setdefault(gpu, set()).update(row.scales.counts)
            if own is not None and own.model is not None and name not in ("smoke", "tiny"):
                rows.append({"workload": workload.key, "size": name, "gpus": _in_words(counts)})
        if not any(row["workload"] == workload.key for row in rows):
            rows.append({"workload": workload.key, "size": ", ".join(sizes), "gpus": "any"})
    rows.sort(key=lambda row: row["gpus"] == "any")  # models first
    columns = [Column(key="workload"), Column(key="size"), Column(key="gpus", heading="GPUs")]
    return _table(columns, rows)


def _in_words(counts: Mapping[str, set[int]]) -> str:
    """Return ``h100 16 to 2048, b200 16 to 1024``, in the order of GPU types."""
    known = [name for name in known_types() if name in counts]
    spans = {name: (min(counts[name]), max(counts[name])) for name in known}
    return ", ".join(
        f"{name} {low}" if low == high else f"{name} {low} to {high}"
        for name, (low, high) in spans.items()
    )


def readme(workloads: Sequence[Workload]) -> str:
    """The README with its table."""
    text = README.read_text("utf-8")
    return BLOCK.sub(lambda block: f"{block[1]}{overview(workloads)}{block[2]}", text)


def _peaks() -> str:
    columns = [
        Column(key="gpu", heading="GPU"),
        Column(key="gpus_per_node", heading="GPUs per node", right=True),
    ]
    columns += [Column(key="memory_gb", heading="GB", show="{:g}".format, right=True)]
    columns += [
        Column(key=dtype, heading=f"{dtype} TFLOPS", show="{:g}".format, right=True)
        for dtype in ("bf16", "fp8", "mxfp8", "nvfp4")
    ]
    rows = [
        {
            "gpu": name,
            "gpus_per_node": own.gpus_per_node,
            "memory_gb": own.memory_gb,
            **own.peak_tflops,
        }
        for name, own in known_types().items()
        if own.peak_tflops
    ]
    return PEAKS + "\n" + _table(columns, rows).rstrip("\n")


def _workload(workload: Workload) -> list[str]:
    limit = f"{workload.max_steps} steps, time limit {workload.time_limit_minutes} minutes"
    longer = {
        f"{row.time_limit_minutes} for {name} strong scaling"
        for name, size in workload.sizes.items()
        for row in size.rows
        if row.time_limit_minutes is not None
    }
    default = f"Default size {workload.default_size}, dtype {workload.default_dtype}; {limit}"
    default += f" ({', '.join(sorted(longer))})" if longer else ""
    own = "".join(
        f" {name}: {size.max_steps or workload.max_steps} steps,"
        f" {size.time_limit_minutes or workload.time_limit_minutes} minutes."
        for name, size in workload.sizes.items()
        if size.max_steps or size.time_limit_minutes
    )
    image = f" Image `{workload.image}`." if workload.image is not None else ""
    parts = [f"## {workload.key}", f"{workload.title}.{image}\n{default}.{own}"]
    shapes = [
        _shape(name, size, size.model)
        for name, size in workload.sizes.items()
        if size.model is not None
    ]
    parts += [_table(SHAPES, shapes)] if shapes else []
    releases = (listing.RELEASES,) if workload.is_training else ()
    parts += (
        ["\n".join(f"- {text}" for text in declared)]
        if (declared := list(listing.declared(workload)))
        else []
    )
    configurations = listing.configurations(workload, NEMO)
    parts += [
        _table([*listing.rows_of(workload, NEMO), *releases], configurations)
        if configurations
        else "Its rows are those of [Megatron-Bridge](megatron-bridge.md#rows)."
    ]
    saved = [row for name, size in workload.sizes.items() for row in _checkpoint(name, size)]
    if saved:
        parts += [
            "Checkpoints, and the GPU counts at which they were tested:",
            _table(CHECKPOINTS, saved),
        ]
    return parts


SHAPES = (
    Column(key="size", heading="Size"),
    *(
        Column(key=key, heading=heading, right=True)
        for key, heading in (
            ("layers", "Layers"),
            ("hidden", "Hidden"),
            ("ffn", "FFN"),
            ("heads", "Heads"),
            ("kv_groups", "KV groups"),
            ("vocab", "Vocabulary"),
            ("seq_length", "Sequence"),
        )
    ),
    Column(key="flops", heading="FLOPs a sample", show="{:.3e}".format, right=True),
    Column(key="formula", heading="Formula"),
    Column(key="recipe", heading="NeMo recipe"),
)


def _shape(name: str, size: Size, model: ModelShape) -> dict[str, object]:
    depths = sorted({row.layers for row in size.rows if row.layers is not None})
    flops = [model_flops(replace(model, layers=depth)) for depth in depths] or [model_flops(model)]
    return {
        "size": name,
        "layers": ", ".join(map(str, depths)) or model.layers,
        "hidden": model.hidden,
        "ffn": model.ffn,
        "heads": model.heads,
        "kv_groups": model.kv_groups,
        "vocab": model.vocab,
        "seq_length": model.seq_length,
        "flops": flops[-1],
        "formula": flops_convention(model),
        "recipe": size.nemo and size.nemo.recipe,
    }


CHECKPOINTS = (
    Column(key="size", heading="Size"),
    Column(key="gpu", heading="GPU"),
    Column(key="size_gb", heading="GB on disk", show="{:g}".format, right=True),
    Column(key="save", heading="Save", show=listing.span),
    Column(key="load", heading="Load from", right=True),
)


def _checkpoint(name: str, size: Size) -> list[dict[str, object]]:
    own = size.checkpoint
    if own is None:
        return []
    return [
        {
            "size": name,
            "gpu": gpu,
            "size_gb": own.size_gb,
            "save": scales.counts,
            "load": own.load.get(gpu),
        }
        for gpu, scales in own.save.items()
    ]


def _figures(found: Iterable[Figure]) -> str:
    rows = listing.figures(found)
    return _table(
        [column for column in listing.figure_columns(rows) if column.key != "workload"], rows
    )


def _of_bridge(found: Iterable[Figure]) -> str:
    """The figures of Megatron-Bridge, a row for each configuration with all of its metrics."""
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    figures = [*found]
    for figure, row in zip(figures, listing.figures(figures), strict=True):
        key = (
            figure.release,
            figure.model_size,
            figure.gpu_type,
            figure.dtype,
            figure.scale,
            figure.gbs,
        )
        rows.setdefault(key, dict(row))[figure.metric.name] = figure.value
    kept = ("release", "model_size", "gpu_type", "dtype", "scale", "gbs", "window", "steps")
    columns = [column for column in listing.FIGURES if column.key in kept]
    columns += [
        Column(
            key=TOKENS_PER_SECOND_PER_GPU, heading="Tokens/s/GPU", show="{:g}".format, right=True
        )
    ]
    columns += [Column(key=TFLOPS_PER_GPU, heading="TFLOPS/GPU", show="{:g}".format, right=True)]
    return "With Megatron-Bridge, by release of the image:\n\n" + _table(
        columns, list(rows.values())
    )


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> str:
    return render(columns, rows, "md")


def main(arguments: Sequence[str]) -> int:
    """Write the page; with --check, only compare, and return 1 if it is stale."""
    workloads = [
        read_workload(path) for path in sorted((ROOT / "plugins").glob("*/*/workload.yaml"))
    ]
    return write({PAGE: page(workloads), README: readme(workloads)}, "workloads", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
