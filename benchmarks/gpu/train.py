# SPDX-License-Identifier: Apache-2.0
"""llmb's torch program with a Llama for one GPU: FLOPs, MFU, repeats, and verdicts.

A baseline is accepted, the same runs are judged by it, then runs that a variable slows: they must
FAIL, with the variable as a cause.
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.context import Context
from gpu.site import TRAINING, Site

BASELINE = "minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained."""

    size: str
    dtype: str
    steps: int
    repeats: int
    #: Micro batches, each in a run of its own; the first is that of the verdicts.
    batches: tuple[int, ...]
    #: A further size, with a micro batch of 1.
    larger: str | None
    #: The variable that slows a run.
    slowing: str


LARGE = Plan(
    size="1b",
    dtype="bf16",
    steps=50,
    repeats=4,
    batches=(2, 1, 4),
    larger="3b",
    # Each allocation then asks the driver.
    slowing="PYTORCH_NO_CUDA_MEMORY_CACHING=1",
)
SMALL = Plan(
    size="small",
    dtype="fp32",
    steps=20,
    repeats=2,
    batches=(2, 1),
    larger=None,
    # Many threads for few cores, which wait for each other.
    slowing="OMP_NUM_THREADS=32",
)


def run(context: Context) -> None:
    """Run everything, the verdicts first."""
    plan = LARGE if context.is_gpu else SMALL
    site = Site(context)
    first, *others = plan.batches
    base = _train(context, site, plan, "baseline", batch=first, repeats=plan.repeats)
    site.run("baseline", "accept", BASELINE)
    again = _train(context, site, plan, "again", batch=first, repeats=plan.repeats)
    _record_verdict(context, site, "again", again)
    slowing = ("--env", plan.slowing)
    slowed = _train(
        context, site, plan, "slowed", *slowing, batch=first, repeats=min(2, plan.repeats)
    )
    _record_verdict(context, site, "slowed", slowed)
    for batch in others:
        _train(context, site, plan, f"batch {batch}", batch=batch)
    if plan.larger is not None:
        _train(context, site, plan, plan.larger, batch=1, size=plan.larger)
    _record_flops(context, base[0])


def _train(
    context: Context,
    site: Site,
    plan: Plan,
    name: str,
    *words: object,
    batch: int,
    repeats: int = 1,
    size: str | None = None,
) -> list[dict[str, Any]]:
    """Submit runs, record their step times and MFU, and keep the first log."""
    results = site.submit(
        *("-w", TRAINING, "-s", size or plan.size, "--dtype", plan.dtype, "--scale", 1),
        *("--set", f"mbs={batch}", "--gbs", batch, "--max-steps", plan.steps),
        *("--repeats", repeats, *words),
    )
    values = [
        {
            key: result[key]
            for key in (
                *("status", "time_mean_seconds", "time_std_dev_seconds", "mfu"),
                *("tokens_per_second_per_gpu", "model_flops", "reason"),
            )
        }
        | {
            "peak_memory_bytes": (result["log"] or {}).get("peak_memory_bytes"),
            "telemetry": [node.get("telemetry") for node in result["nodes"]],
            "outliers": (result["statistics"] or {}).get("outliers"),
        }
        for result in results
    ]
    site.keep_log(results[0], name.replace(" ", "-"))
    times = [value["time_mean_seconds"] for value in values if value["time_mean_seconds"]]
    shares = [value["mfu"] for value in values if value["mfu"]]
    context.record(
        name,
        values,
        f"{size or plan.size}, {name}, micro batch {batch}: {_status(values)}"
        + (f", {statistics.mean(times):.4g} s per step" if times else "")
        + (f", repeats differ by {max(times) / min(times) - 1:.2%}" if len(times) > 1 else "")
        + (f", MFU {statistics.mean(shares):.1%}" if shares else ""),
    )
    return results


def _status(values: list[dict[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(str(value["status"]) for value in values))


def _record_verdict(context: Context, site: Site, name: str, results: list[dict[str, Any]]) -> None:
    """Record the verdict of the newest session against the baseline, and what `explain` says."""
    words = ("compare", "--baseline", BASELINE, "--format", "json")
    (row,) = json.loads(site.run(*words, codes=(0, 3)))["comparisons"]
    run = results[0]["run"]
    explained = site.run("explain", run, "--baseline", BASELINE, codes=(0, 3))
    (context.kept / f"{name}-explain.txt").write_text(explained)
    keys = ("verdict", "verdict_reason", "ratio", "ratio_interval", "repeats", "differences")
    ratio = "no ratio" if row["ratio"] is None else f"ratio {row['ratio']:.3f}"
    causes = [row["verdict_reason"], *row["differences"]]
    context.record(
        f"verdict of {name}",
        {key: row[key] for key in keys} | {"explain": explained.splitlines()},
        f"verdict of {name}: {row['verdict']}, {ratio}; {'; '.join(filter(None, causes))}",
    )


def _record_flops(context: Context, result: dict[str, Any]) -> None:
    """Compare llmb's FLOPs of a sample with those that torch counts in the same program."""
    recipe = next(Path(result["path"]).parents[1].rglob("recipe.json"))
    answer = json.loads(context.run_torch("gpu.flops", recipe)[-1])
    counted = answer["flops"]
    ours = json.loads(recipe.read_text("utf-8"))["model_flops"]
    text = f"FLOPs of a sample: {ours:.4g} by llmb, {counted:.4g} counted by torch, ratio"
    value = {"llmb": ours, "torch": counted, "by_operation": answer["by_operation"]}
    context.record("flops", value, f"{text} {ours / counted:.4f}")
