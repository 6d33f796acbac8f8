# SPDX-License-Identifier: Apache-2.0
"""Real failures: the log as it is, and what llmb says about it."""

from typing import Any

from gpu.context import Context
from gpu.site import FAILURES, TRAINING, Site

#: The cases of plugins/_failing.py, with the options of their submission.
CASES: dict[str, tuple[str, ...]] = {
    "oom": (),
    "killed": (),
    "illegal_address": (),
    "too_long": ("--time-limit", "00:00:10"),
}


def run(context: Context) -> None:
    """Submit each case, keep its log, and record the cause that llmb finds."""
    site = Site(context)
    for case, options in CASES.items():
        words = ("-w", FAILURES, "-s", case, "--scale", 1, *options)
        _record(context, site, case, site.submit(*words))
    dtype = "bf16" if context.is_gpu else "fp32"
    words = ("-w", TRAINING, "-s", "nan", "--dtype", dtype, "--scale", 1, "--max-steps", 12)
    _record(context, site, "nan", site.submit(*words))
    if context.is_gpu:
        # torch's own error within a training: more samples than the memory holds.
        many = ("--set", "mbs=64", "--gbs", 64, "--max-steps", 3)
        words = ("-w", TRAINING, "-s", "3b", "--dtype", dtype, "--scale", 1, *many)
        _record(context, site, "oom_in_training", site.submit(*words))


def _record(context: Context, site: Site, case: str, results: list[dict[str, Any]]) -> None:
    (result,) = results
    site.keep_log(result, case)
    explained = site.run("explain", result["run"], codes=(0, 1, 3))
    (context.kept / f"{case}-explain.txt").write_text(explained)
    keys = ("state", "status", "cause", "reason", "verdict", "invalid")
    value = {key: result[key] for key in keys}
    cause = result["cause"] or {"kind": result["reason"], "line": ""}
    found = ": ".join(filter(None, (cause["kind"], cause["line"][:200])))
    outcome = " ".join(filter(None, (result["state"], result["verdict"])))
    text = f"{case}: {outcome}; {found}"
    context.record(case, value | {"explain": explained.splitlines()}, text)
