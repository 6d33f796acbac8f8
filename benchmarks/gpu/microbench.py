# SPDX-License-Identifier: Apache-2.0
"""All microbenchmarks by llmb-run, in the flow of a user: install, submit, results, report."""

from typing import Any

import yaml

from gpu.context import Context
from gpu.site import MICROBENCH, Site
from llmb.contract.gpus import known_types

#: By case: dtypes, and the values of its parameter, on a GPU.
LARGE: dict[str, dict[str, Any]] = {
    "gemm": {"dtypes": ["bf16", "fp16", "fp32"], "matrix_size": [4096, 8192, 16384]},
    "memory": {"dtypes": ["fp32"], "buffer_size": ["256M", "1G", "4G"]},
    "host_to_device": {"dtypes": ["fp32"], "buffer_size": ["256M", "1G"]},
    "launch": {"dtypes": ["fp32"]},
    "storage": {"dtypes": ["fp32"], "file_size": ["1G"]},
}
SMALL: dict[str, dict[str, Any]] = {
    "gemm": {"dtypes": ["fp32"], "matrix_size": [256]},
    "memory": {"dtypes": ["fp32"], "buffer_size": ["1M"]},
    "launch": {"dtypes": ["fp32"]},
    "storage": {"dtypes": ["fp32"], "file_size": ["4M"]},
    "all_reduce": {"dtypes": ["fp32"], "message_size": ["64K"], "scales": [2]},
}


def run(context: Context, *cases: str) -> None:
    """Run the ``cases``, all by default."""
    table = LARGE if context.is_gpu else SMALL
    if context.machine.get("gpus", 0) > 1:
        table = table | {"all_reduce": {"dtypes": ["fp32"], "message_size": ["64M"], "scales": [2]}}
    chosen = {name: case for name, case in table.items() if not cases or name in cases}
    missing = sorted((set(cases) if cases else set(LARGE) | set(SMALL)) - set(chosen))
    if missing:
        text = f"not possible here: {', '.join(missing)} (two GPUs, or a GPU)"
        context.record("not_possible", missing, text)
    if not chosen:
        return
    site = Site(context)
    jobs = context.kept / "jobs.yaml"
    jobs.write_text(yaml.safe_dump(_job_list(chosen, is_small=not context.is_gpu)))
    results = site.submit(jobs)
    for result in results:
        _record(context, site, result)
    site.run("results", codes=(0, 3))
    site.run("list", "--published", "-w", MICROBENCH)
    report = context.kept / "report.html"
    site.run("report", "-o", report, codes=(0, 3))


def _job_list(cases: dict[str, dict[str, Any]], *, is_small: bool) -> dict[str, Any]:
    jobs = {}
    for name, case in cases.items():
        parameters = {key: case[key] for key in case if key not in ("dtypes", "scales")}
        shorter = {"max_steps": 5} if is_small else {}
        jobs[f"{MICROBENCH}_{name}"] = {
            "scales": case.get("scales", [1]),
            "dtypes": case["dtypes"],
            "defaults": {"params": parameters | shorter},
        }
    return jobs


def _record(context: Context, site: Site, result: dict[str, Any]) -> None:
    name = result["experiment"].removeprefix(f"{MICROBENCH}_")
    site.keep_log(result, name)
    metrics = {
        key: {"mean": metric["mean"], "std": metric["std"], "unit": metric["unit"]}
        for key, metric in result["metrics"].items()
    }
    means = ", ".join(f"{key} {m['mean']:.4g} {m['unit'] or ''}" for key, m in metrics.items())
    share = _share_of_peak(result, site.gpu_type)
    values: dict[str, Any] = {
        "status": result["status"],
        "verdict": result["verdict"],
        "metrics": metrics,
    }
    values["share_of_peak"] = share
    peak = "" if share is None else f", {share:.1%} of the data sheet's peak"
    text = f"{name}: {result['status']}, {means or 'nothing measured'}{peak}, {result['verdict']}"
    context.record(name, values, text)


def _share_of_peak(result: dict[str, Any], gpu_type: str) -> float | None:
    """Return the share of the dense peak that a matrix product reaches, if llmb knows the peak."""
    gpu = known_types().get(gpu_type)
    peak = None if gpu is None else gpu.peak_tflops.get(result["configuration"]["dtype"])
    metric = result["metrics"].get("tflops")
    return None if peak is None or metric is None else float(metric["mean"] / peak)
