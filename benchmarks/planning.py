# SPDX-License-Identifier: Apache-2.0
"""What a list of 10,000 jobs costs: planning, launches and scripts; and lists of 1,000 runs that
have ended.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from llmb.builtin.plugins import builtin_plugins
from llmb.plan.config_layers import load_config
from llmb.plan.joblist import read_job_list
from llmb.plan.plan import make_plan
from llmb.plugins.guarded_cluster import create
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import prepare, preview
from llmb_installer.cluster_types import all_types
from measuring import LLMB_RUN, cpu_seconds, environment, parser, report, run

T = TypeVar("T")

ROUNDS = 3
# Each list has 100 configurations for {repeats}.
PLACES = {
    "local": (
        "cluster_type: local\ngpu_type: cpu\n",
        (
            "pretrain_nemotron4_tiny: {{dtypes: [bf16, fp32], scales: [1, 2], repeats: {repeats},"
            " overrides: {{params: {{max_steps: [4, 6, 8, 10, 12, 14, 16, 18, 20, 25, 30, 35, 40,"
            " 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100]}}}}}}\n"
        ),
    ),
    "slurm": (
        (
            "cluster_type: slurm\ngpu_type: h100\nslurm: {{account: team, gpu: {{partition:"
            " batch}}}}\n"
        ),
        (
            "pretrain_nemotron4_15b: {{dtypes: [bf16, fp8], scales: [16, 32, 64, 128, 256],"
            " repeats: {repeats}, overrides: {{params: {{max_steps: [10, 20, 30, 40, 50, 60, 70,"
            " 80, 90, 100]}}}}}}\n"
        ),
    ),
}
CONFIGURATIONS, REPEATS = 100, 100
FAKE_LIST = "fake_small:\n('bf16', [8, 16, 32, 64, 128], {repeats})\n"


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds that ``work`` took, and what it gave."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def write(folder: Path, kind: str, repeats: int) -> None:
    """Write the configuration of a cluster and a job list for it."""
    folder.mkdir(exist_ok=True)
    config_text, list_text = PLACES[kind]
    (folder / "cluster_config.yaml").write_text(config_text.format())
    (folder / "jobs.yaml").write_text(list_text.format(repeats=repeats))


def plan(kind: str, folder: Path, repeats: int) -> None:
    """Print what each part of planning takes, in a fresh process."""
    write(folder, kind, repeats)
    config, _ = load_config(folder, os.environ, cluster_types=all_types)
    plugins = load_plugins(builtin_plugins())
    workloads = plugins.workloads()
    cluster = create(plugins.cluster_types()[kind], config)
    read, listed = timed(lambda: read_job_list(folder / "jobs.yaml"))
    planned, made = timed(lambda: make_plan(listed.entries, workloads, config))
    launched, (items, faults) = timed(lambda: prepare(made, plugins, config))
    if len(items) != CONFIGURATIONS * repeats:
        sys.exit(f"{len(items)} jobs, {faults[:1]}")
    shown, size = timed(lambda: sum(len(preview(item, cluster, config) or "") for item in items))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = read + planned + launched + shown
    print(
        f"{kind:6} {len(items)} jobs: read {read:.3f} s, plan {planned:.3f} s, launches"
        f" {launched:.3f} s, scripts {shown:.3f} s ({size / 1e6:.0f} MB), together {total:.2f} s,"
        f" {most:.0f} MB of memory",
        flush=True,
    )


def least(arguments: list[str], environ: dict[str, str], rounds: int) -> float:
    """CPU seconds that one llmb-run takes; the least of some."""
    return min(cpu_seconds(lambda: run([LLMB_RUN, *arguments], env=environ)) for _ in range(rounds))


def dry_runs(folder: Path, repeats: int, rounds: int) -> dict[str, float]:
    """Print and return what dry runs of the whole lists take."""
    figures = {}
    for kind in PLACES:
        place = folder / kind
        write(place, kind, repeats)
        for fmt in ("table", "json"):
            words = [
                "submit-all",
                str(place / "jobs.yaml"),
                "--dry-run",
                "--format",
                fmt,
                "--install",
                str(place),
            ]
            figures[f"plan 10,000 jobs for {kind}, {fmt}, s"] = seconds = least(
                words, environment(), rounds
            )
            print(
                f"{kind:6} submit-all --dry-run --format {fmt:5}: {seconds:.2f} s of CPU time",
                flush=True,
            )
    return figures


def ended_runs(folder: Path, repeats: int, rounds: int) -> None:
    """Print what lists of runs take that the fake cluster has completed."""
    info = folder / "site-packages" / "llmb_fake-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llmb-fake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmb]\nfake = llmb_testing.plugin\n")
    environ = {**environment(), "PYTHONPATH": str(info.parent)}
    place = folder / "fake"
    place.mkdir()
    (place / "cluster_config.yaml").write_text("cluster_type: fake\ngpu_type: h100\n")
    (place / "jobs.txt").write_text(FAKE_LIST.format(repeats=repeats))
    where = ["--install", str(place)]
    run([LLMB_RUN, "submit-all", str(place / "jobs.txt"), "--wait", *where], env=environ)
    again = ["submit-all", str(place / "jobs.txt"), "--resume"]
    for name, words in {
        "jobs list": ["jobs", "list"],
        "results": ["results"],
        "submit-all --resume": again,
    }.items():
        seconds = least([*words, *where], environ, rounds)
        print(f"fake   {name:20} with {5 * repeats} runs: {seconds:.2f} s of CPU time", flush=True)


def main() -> None:
    """Measure planning in fresh processes, then whole commands."""
    options = parser(__doc__)
    options.add_argument(
        "--part", choices=PLACES, help="only the parts of planning for this cluster type"
    )
    arguments = options.parse_args()
    repeats, rounds = (1, 1) if arguments.small else (REPEATS, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.part:
            plan(arguments.part, Path(folder), repeats)
            return
        for kind in PLACES:
            size = ["--small"] if arguments.small else []
            subprocess.run([sys.executable, __file__, "--part", kind, *size], check=True)
        figures = dry_runs(Path(folder), repeats, rounds)
        ended_runs(Path(folder), 2 * repeats, rounds)
    report(figures)


if __name__ == "__main__":
    main()
