# SPDX-License-Identifier: Apache-2.0
"""Writes finished runs into an install directory by hand, with invented logs: for tests and
examples of reports.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmb.contract import record
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.contract.state import COMPLETED, RUNNING, JobState
from llmb.core.process import ProcessId
from llmb.plan.images import image_path
from llmb.plan.plan import make_plan
from llmb.run import store
from llmb_testing.entries import job_entry

EVENING = 1763668800  # 2025-11-20 20:00 UTC


def opening(
    nodes: int,
    network: str = "IB",
    *,
    driver: str = "570.86.15",
    nccl: str = "2.26.3+cuda12.9",
) -> str:
    """Return the lines that NCCL and llmb print at the start, for every node."""
    gpus = {"driver": driver, "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "max_sm_clock_mhz": 1980}
    facts = json.dumps({**gpus, "power_limit_w": 700.0})
    lines = [
        f"node{n:04}:812:812 [0] NCCL INFO Using network {network}\nllmb node node{n:04}: {facts}\n"
        for n in range(1, nodes + 1)
    ]
    return f"NCCL version {nccl}\n" + "".join(lines)


def telemetry(nodes: int, clock: int = 1980) -> str:
    """Return the lines that the telemetry prints at the end, for every node.

    Clocks below those of an H100 are locked ones, which take less power.
    """
    locked = clock < 1980
    values = json.dumps(
        {
            "gpus": 8,
            "sm_clock_mhz": {"median": clock, "p5": clock if locked else 1935},
            "power_w": {"mean": 430.2 if locked else 652.7, "max": 512.4 if locked else 701.3},
            "energy_j": 1273392.0 if locked else 1931992.0,
            "temperature_c": {"max": 54 if locked else 66},
            "throttle": {"applications_clocks": 0.998} if locked else {"sw_power_cap": 0.214},
            "ecc_uncorrected": 0,
            "remapped_rows": 0,
        }
    )
    return "".join(f"llmb telemetry node{n:04}: {values}\n" for n in range(1, nodes + 1))


def steps(
    seconds: float,
    seed: int,
    *,
    count: int = 50,
    slow: Mapping[int, float] | None = None,
    noise: float = 0.002,
    drift: float = 0.0,
) -> str:
    """NeMo 2's step lines: a slow first step, noise, and the ``slow`` steps, longer by these
    factors.
    """
    chance = random.Random(seed)
    lines = []
    for i in range(count):
        factor = 9.0 if i == 0 else 1.2 if i < 4 else (slow or {}).get(i, 1.0)
        time = seconds * factor * (1 + chance.gauss(0, noise) + drift * (i - 27) / 34)
        loss = 12.8 * math.exp(-i / 90)
        lines.append(
            f"0: Training epoch 0, iteration {i}/49 | lr: {7.5e-6 * i:.3e} | global_step: {i} |"
            f" peak_memory_usage: 70833405952 | reduced_train_loss: {loss:.4g} | train_step_timing"
            f" in s: {time:.4g}" + (f" | consumed_samples: {128 * (i + 1)}" if i else "") + "\n"
        )
    ended = "`Trainer.fit` stopped: `max_steps=50` reached.\n" if count == 50 else ""
    return "".join(lines) + ended


@dataclass(slots=True)
class InventedRuns:
    """An install directory of cluster type slurm whose runs are written by hand."""

    folder: Path
    config: ClusterConfig
    workloads: Mapping[str, Workload]
    #: The first run's creation in seconds since the epoch. Each later one is 10 minutes after.
    start: int = EVENING
    first: int = 0
    driver: str = "570.86.15"
    version: str = "0.1.0"
    made: list[RunRecord] = field(default_factory=list)

    def job(
        self,
        workload: str,
        dtype: str,
        scale: int,
        *,
        params: Mapping[str, Any] | None = None,
        profile: bool = False,
        **env: str,
    ) -> Job:
        """Return the job that a submission plans."""
        request = job_entry(
            workload=workload, dtypes=(dtype,), scales=(scale,), profile=profile, env=env
        )
        plan = make_plan(
            [request],
            self.workloads,
            self.config,
            overrides=Settings(**params or {}),
            force=True,
        )
        assert not plan.faults, plan.faults
        return plan.jobs[0]

    def run(
        self, job: Job, log: str | None, state: str = COMPLETED, *, run_id: str = "", **end: Any
    ) -> RunRecord:
        """Write a run. The default ``run_id`` is the next free one."""
        number = len(self.made)
        launch = Launch(
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            program=Program(module="m"),
            environment={"NCCL_DEBUG": "WARN", "HF_TOKEN": "never-shown", **job.env},
        )
        stamp = store.new_directory(
            self.config.experiments(job.workload),
            job.experiment_name,
            self.start + 600 * (number - self.first),
        )
        run = RunRecord(
            id=run_id
            or f"{'kmnpqrstvwxz'[number // 12 % 12]}{'23456789acdf'[number % 12]}x{number:02}cde",
            created=float(stamp.timestamp),
            llmb_version=self.version,
            cluster_type="slurm",
            directory=stamp.path,
            job=job,
            launch=launch,
            script_name="launch",
            submitter=ProcessId.current(),
            scheduler_id=str(48100 + number),
        )
        record.save(run)
        run.work.mkdir(exist_ok=True)
        if log is not None:
            run.log.write_text(log)
        ended = None if state == RUNNING else run.created + 460
        store.save_state(run, JobState(state=state, started=run.created + 60, ended=ended, **end))
        self.made.append(run)
        return run

    def measured(
        self,
        seconds: float,
        workload: str,
        dtype: str,
        scale: int,
        *,
        repeats: int = 1,
        network: str = "IB",
        clock: int = 1980,
        jitter: float = 0.002,
        how: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Write successful repeats with steps of about ``seconds``."""
        job = self.job(workload, dtype, scale, **(how or {}))
        for _ in range(repeats):
            seed = len(self.made)
            own = seconds * (1 + random.Random(seed).gauss(0, jitter))
            begin = opening(job.nodes, network, driver=self.driver)
            self.run(job, begin + steps(own, seed, **more) + telemetry(job.nodes, clock))

    def later(self, seconds: int, *, driver: str | None = None, version: str | None = None) -> None:
        """Let the next run begin ``seconds`` after the first one of this night, with another driver
        or llmb.
        """
        self.start, self.first = self.start + seconds, len(self.made)
        self.driver, self.version = driver or self.driver, version or self.version

    def digest(self, reference: str, digest: str) -> None:
        """Write the file that the installer writes for an image."""
        path = image_path(reference, self.config)
        path.parent.mkdir(exist_ok=True)
        path.with_name(f"{path.name}.json").write_text(json.dumps({"digest": digest}))
