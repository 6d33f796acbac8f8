# SPDX-License-Identifier: Apache-2.0
"""A run with --profile: torch's trace, and which of NVIDIA's profilers this machine has."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from gpu.context import Context
from gpu.site import TRAINING, Site

TOOLS = ("nsys", "ncu", "compute-sanitizer")
MOST_KEPT = 8 << 20  # bytes of a trace that is kept


def run(context: Context) -> None:
    """Profile three steps, and record what the trace has."""
    tools = {name: shutil.which(name) for name in TOOLS}
    text = ", ".join(f"{name} {'is' if path else 'is not'} here" for name, path in tools.items())
    context.record("tools", {name: path is not None for name, path in tools.items()}, text)
    site = Site(context)
    size, dtype = ("1b", "bf16") if context.is_gpu else ("small", "fp32")
    (result,) = site.submit(
        *("-w", TRAINING, "-s", size, "--dtype", dtype, "--scale", 1),
        *("--profile", "--profile-start", 5, "--profile-stop", 8),
    )
    site.keep_log(result, "profiled")
    traces = sorted(Path(result["path"]).parents[1].rglob("*.pt.trace.json"))
    if not traces:
        context.record("trace", None, f"{result['status']}: no trace; {result['reason']}")
        return
    if traces[0].stat().st_size <= MOST_KEPT:
        context.keep(traces[0], "trace.json")
    _record_trace(context, json.loads(traces[0].read_text("utf-8")), traces[0].stat().st_size)


def _record_trace(context: Context, trace: dict[str, Any], size: int) -> None:
    kernels: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for event in trace["traceEvents"]:
        kinds[event.get("cat", "other")] += 1
        if event.get("cat") == ("kernel" if context.is_gpu else "cpu_op"):
            kernels[event["name"]] += event.get("dur", 0)
    longest = [[name[:120], round(us)] for name, us in kernels.most_common(8)]
    value = {"bytes": size, "events": dict(kinds), "longest_us": longest}
    first = f", longest: {longest[0][0]}" if longest else ""
    context.record("trace", value, f"trace: {size:,} bytes, {kinds.total()} events{first}")
