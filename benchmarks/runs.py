# SPDX-License-Identifier: Apache-2.0
"""How long `jobs`, `results` and `report` take with 10,000 runs that have ended: at first, and from
kept summaries.

The runs have logs of 50 steps in NeMo's format and are of 100 configurations; every 50th failed.
All files are in the page cache. Wall time grows with the load of the machine; the CPU time of the
command itself (user) much less.
"""

import os
import resource
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.contract import record
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, FAILED, JobState
from llmb.core import files, typed
from llmb.core.process import ProcessId
from llmb.plan.config_layers import load_config
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb.run import store
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry
from measuring import LLMB_RUN, environment, parser, report

RUNS, ROUNDS, STEPS = 10_000, 3, 50
# `results` keeps the summaries that the others read, so it is the first.
WORDS = {"results": ["results"], "jobs": ["jobs"], "report": ["report", "-o", "report.html"]}
CONFIG = {
    "schema_version": 2,
    "cluster_type": "local",
    "gpu_type": "h100",
    "gpu_types": {"h100": {"gpus_per_node": 4096}},
    "workloads": {"installed": []},
}


def jobs_of(install: Path) -> list[Job]:
    """100 jobs of different configurations."""
    config, _ = load_config(install, {}, cluster_types=all_types)
    workloads = load_plugins(builtin_plugins()).workloads()
    requests = [
        job_entry(
            workload="nemotron4_15b", dtypes=(dtype,), scales=(scale,), env={"TRIAL": str(trial)}
        )
        for trial in range(10)
        for dtype in ("bf16", "fp8")
        for scale in (16, 32, 64, 128, 256)
    ]
    plan = make_plan(requests, workloads, config, force=True)
    assert not plan.faults, plan.faults
    return list(plan.jobs)


def log_of(seconds: float, count: int) -> str:
    """A log of ``count`` steps as NeMo 2 writes it."""
    return "".join(
        f"[default0]:Training epoch 0, iteration {step}/{STEPS - 1} | lr: 4.491e-06 |"
        f" global_batch_size: 64 | global_step: {step} | peak_memory_usage: 72972500992 |"
        f" reduced_train_loss: 12.81 | train_step_timing in s: {seconds + step % 3 / 1000:.4g} |"
        " TFLOPS_per_GPU: 571.8\n"
        for step in range(count)
    )


def make_runs(install: Path, count: int) -> None:
    """Write ``count`` runs that have ended, without the care for crashes that submissions take."""
    config, _ = load_config(install, {}, cluster_types=all_types)
    templates = []
    for number, job in enumerate(jobs_of(install)):
        launch = Launch(
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            program=Program(module="m"),
            environment={f"VARIABLE_{n}": "value" for n in range(20)},
        )
        directory = config.experiments(job.workload) / launch.name / f"{launch.name}_{number}"
        run = RunRecord(
            id=f"template{number:04}",
            created=1.7e9,
            llmb_version="0",
            cluster_type="local",
            directory=directory,
            job=job,
            launch=launch,
            script_name="launch.sh",
            submitter=ProcessId.current(),
            scheduler_id="12345678",
        )
        directory.mkdir(parents=True)
        record.save(run)
        text = (directory / record.RECORD).read_text()
        (directory / record.RECORD).unlink()
        directory.rmdir()
        templates.append((run, text))
    ended = JobState(state=COMPLETED, exit_code=0, started=1.7e9, ended=1.7e9 + 900)
    states = {
        end: files.to_json(typed.to_data(replace(ended, state=end))) for end in (COMPLETED, FAILED)
    }
    for number in range(count):
        run, text = templates[number % len(templates)]
        fails = number % 50 == 49
        directory = run.directory.with_name(f"{run.launch.name}_{1_700_000_000 + number}")
        (directory / run.launch.name).mkdir(parents=True)
        (directory / record.RECORD).write_text(text.replace(run.id, f"r{number:07}"))
        (directory / store.STATE).write_text(states[FAILED if fails else COMPLETED])
        log = log_of(2.5 + number % 7 / 100, 20 if fails else STEPS)
        (directory / run.launch.name / f"log-{run.launch.name}.out").write_text(log)


def seconds(install: Path, name: str) -> tuple[float, float]:
    """CPU time (user) and wall time of one command."""
    argv = [LLMB_RUN, *WORDS[name], "--install", str(install)]
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        argv, capture_output=True, cwd=install, text=True, env=environment(), check=False
    )
    assert done.returncode in (0, 3), done.stderr[-2000:]
    return (
        resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before,
        time.perf_counter() - started,
    )


def measure(install: Path, count: int, rounds: int) -> dict[str, float]:
    """Print the times of the first round, and the least of later ones; return CPU seconds by
    command.
    """
    (install / "cluster_config.yaml").write_text(
        yaml.safe_dump({**CONFIG, "llmb_install": str(install)})
    )
    if not (install / "workloads").exists():
        make_runs(install, count)
    print(f"{count} runs, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    print(f"{'user / wall':13}{'first':>18}{f'then, least of {rounds}':>20}", flush=True)
    figures = {}
    for name in WORDS:
        first = seconds(install, name)
        later = min([seconds(install, name) for _ in range(rounds)], default=first)
        texts = [f"{user:.2f} / {wall:.2f} s" for user, wall in (first, later)]
        print(f"{name:13}{texts[0]:>18}{texts[1]:>20}", flush=True)
        figures[f"{name} of 10,000 runs, s"] = later[0]
        if name == "results":
            figures["results of 10,000 runs, first time, s"] = first[0]
    return figures


def main() -> None:
    """Make the runs and measure the commands."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, help=f"how many, instead of {RUNS:,}")
    options.add_argument("--folder", type=Path, help="where they stay, and are used again")
    arguments = options.parse_args()
    count, rounds = (
        arguments.runs or (50 if arguments.small else RUNS),
        0 if arguments.small else ROUNDS,
    )
    with tempfile.TemporaryDirectory() as folder:
        install = arguments.folder.resolve() if arguments.folder else Path(folder)
        report(measure(install, count, rounds))


if __name__ == "__main__":
    main()
