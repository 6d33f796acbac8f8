# SPDX-License-Identifier: Apache-2.0
"""What a list of 10,000 jobs costs: planning, launches and scripts; and lists of 1,000 runs that have ended."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROUNDS = 3
TOOL = str(Path(sys.executable).with_name("llmb-run"))
# configurations × repeats = 10,000 jobs
PLACES = {
    "local": (
        "cluster_type: local\ngpu_type: cpu\n",
        "pretrain_nemotron4_tiny: {dtypes: [bf16, fp32], scales: [1, 2], repeats: 250, overrides: {params: {max_steps:"
        " [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]}}}\n",
    ),
    "slurm": (
        "cluster_type: slurm\ngpu_type: h100\nslurm: {account: team, gpu: {partition: batch}}\n",
        "pretrain_nemotron4_15b: {dtypes: [bf16, fp8], scales: [16, 32, 64, 128, 256], repeats: 100, overrides:"
        " {params: {max_steps: [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]}}}\n",
    ),
}
FAKE_LIST = "fake_small:\n('bf16', [8, 16, 32, 64, 128], 200)\n"


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds that ``work`` took, and what it gave."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def plan(kind: str, folder: Path) -> None:
    """Print what each part of planning 10,000 jobs takes, in a fresh process."""
    from llmb.config import load_config
    from llmb.planning.joblist import read_job_list
    from llmb.planning.plan import make_plan
    from llmb.plugins.loader import load_plugins
    from llmb.submission.prepare import prepare, preview

    config_text, list_text = PLACES[kind]
    (folder / "cluster_config.yaml").write_text(config_text)
    (folder / "jobs.yaml").write_text(list_text)
    config, _ = load_config(folder, os.environ)
    plugins = load_plugins()
    workloads = plugins.workloads()
    cluster = plugins.cluster_types()[kind].create(config)
    read, listed = timed(lambda: read_job_list(folder / "jobs.yaml"))
    planned, made = timed(lambda: make_plan(listed.requests, workloads, config))
    launched, (items, faults) = timed(lambda: prepare(made, plugins, config))
    if len(items) != 10_000:
        sys.exit(f"{len(items)} jobs, {faults[:1]}")
    shown, size = timed(lambda: sum(len(preview(item, cluster, config) or "") for item in items))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = read + planned + launched + shown
    print(
        f"{kind:6} {len(items)} jobs: read {read:.3f} s, plan {planned:.3f} s, launches {launched:.3f} s, "
        f"scripts {shown:.3f} s ({size / 1e6:.0f} MB), together {total:.2f} s, {most:.0f} MB of memory"
    )


def run(arguments: list[str], environ: dict[str, str]) -> float:
    """Seconds that one llmb-run takes, its output thrown away; the least of some."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return min(
        timed(lambda: subprocess.run([TOOL, *arguments], env=environ, check=True, **quiet))[0] for _ in range(ROUNDS)
    )


def commands(folder: Path) -> None:
    """Print what whole commands take: dry runs of 10,000 jobs, and lists of 1,000 runs."""
    for kind, (config_text, list_text) in PLACES.items():
        place = folder / kind
        place.mkdir()
        (place / "cluster_config.yaml").write_text(config_text)
        (place / "jobs.yaml").write_text(list_text)
        for fmt in ("table", "json"):
            words = ["submit-all", str(place / "jobs.yaml"), "--dry-run", "--format", fmt, "--install", str(place)]
            print(
                f"{kind:6} submit-all --dry-run --format {fmt:5} of 10,000 jobs: {run(words, dict(os.environ)):.2f} s"
            )
    info = folder / "site-packages" / "llmb_fake-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llmb-fake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmb]\nfake = llmb_testing.plugin\n")
    environ = {**os.environ, "PYTHONPATH": str(info.parent)}
    place = folder / "fake"
    place.mkdir()
    (place / "cluster_config.yaml").write_text("cluster_type: fake\ngpu_type: h100\n")
    (place / "jobs.txt").write_text(FAKE_LIST)
    where = ["--install", str(place)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = [TOOL, "submit-all", str(place / "jobs.txt"), "--wait", *where]
    subprocess.run(words, env=environ, check=True, **quiet)
    again = ["submit-all", str(place / "jobs.txt"), "--resume"]
    for name, words in {"jobs list": ["jobs", "list"], "results": ["results"], "submit-all --resume": again}.items():
        print(f"fake   {name:20} with 1,000 runs: {run([*words, *where], environ):.2f} s")


def main() -> None:
    """Measure planning in fresh processes, then whole commands."""
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            plan(sys.argv[1], Path(folder))
            return
        for kind in PLACES:
            subprocess.run([sys.executable, __file__, kind], check=False)
        commands(Path(folder))


if __name__ == "__main__":
    main()
