# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an install directory written by hand, with records and logs as submissions leave
them.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.contract.state import COMPLETED, JobState
from llmb.contract.switches import Switches
from llmb.core.process import ProcessId
from llmb.plan.config_layers import load_config
from llmb.plan.plan import make_plan
from llmb.run import store
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry


def steps(seconds: float, count: int = 50, last: int = 49, loss: str = "12.81") -> str:
    """A log of ``count`` steps of ``seconds`` each; the first ten take three times as long."""
    return "".join(
        f"0: Training epoch 0, iteration {i}/{last} | reduced_train_loss: {loss} |"
        f" train_step_timing in s: {3 * seconds if i < 10 else seconds:.6g} | TFLOPS_per_GPU:"
        " 571.8\n"
        for i in range(count)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandMade:
    """An install directory of cluster type local for H100s. All runs have ended, so no scheduler is
    needed.
    """

    folder: Path
    config: ClusterConfig
    workloads: Mapping[str, Workload]

    def job(
        self,
        workload: str,
        dtype: str,
        scale: int,
        *,
        params: Mapping[str, Any] | None = None,
        strong: bool = False,
        profile: bool = False,
        gpu_type: str | None = None,
        **env: str,
    ) -> Job:
        """The job that a submission plans."""
        request = job_entry(
            workload=workload,
            dtypes=(dtype,),
            scales=(scale,),
            switches=Switches(strong_scaling=strong or None),
            profile=profile,
            env=env,
        )
        plan = make_plan(
            [request],
            self.workloads,
            self.config,
            overrides=Settings(**params or {}),
            force=True,
            gpu_type=gpu_type,
        )
        assert not plan.faults, plan.faults
        return plan.jobs[0]

    def run(
        self,
        run_id: str,
        job: Job,
        log: str | None,
        state: JobState | str = COMPLETED,
        *,
        seconds: float = 900.0,
    ) -> RunRecord:
        """Write a run of ``job``, its ``log`` and its end."""
        launch = Launch(
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            program=Program(module="m"),
        )
        stamp = store.new_directory(
            self.config.experiments(job.workload), job.experiment_name, 1000
        )
        run = RunRecord(
            id=run_id,
            created=float(stamp.timestamp),
            llmb_version="0",
            cluster_type="local",
            directory=stamp.path,
            job=job,
            launch=launch,
            script_name="launch",
            submitter=ProcessId.current(),
        )
        record.save(run)
        if log is not None:
            run.log.write_text(log)
        end = (
            JobState(state=state, started=100.0, ended=100.0 + seconds)
            if isinstance(state, str)
            else state
        )
        store.save_state(run, replace(end))
        return run

    def measured(
        self,
        run_id: str,
        seconds: float,
        workload: str = "nemotron4_15b",
        dtype: str = "bf16",
        scale: int = 16,
        *,
        nodes: str = "",
        **how: Any,
    ) -> RunRecord:
        """Write a successful run with steps of ``seconds`` in its window."""
        job = self.job(workload, dtype, scale, **how)
        end = JobState(state=COMPLETED, started=100.0, ended=1000.0, nodes=nodes)
        return self.run(run_id, job, steps(seconds), end)

    def switched(self, run_id: str, log: str, **switches: Any) -> RunRecord:
        """Write a run of 15b on 64 GPUs with these switches."""
        job = self.job("nemotron4_15b", "bf16", 64)
        own = replace(job, switches=replace(job.switches, **switches))
        if "load_checkpoint" in switches:
            own = replace(own, max_steps=1)
        return self.run(run_id, own, log)


Make = Callable[..., HandMade]
Command = Callable[..., "subprocess.CompletedProcess[str]"]
MANY = 4096  # GPUs of the machine: the records are written by hand


@pytest.fixture
def make_install(cluster: Callable[..., Path], workloads: dict[str, Workload]) -> Make:
    """Creates such an install directory; keywords are keys of its configuration."""

    def make(**keys: Any) -> HandMade:
        given = {"h100": {}, **keys.pop("gpu_types", {})}
        gpu_types = {name: {"gpus_per_node": MANY, **own} for name, own in given.items()}
        folder = cluster("local", keys.pop("gpu_type", "h100"), gpu_types=gpu_types, **keys)
        config, _ = load_config(folder, {}, cluster_types=all_types)
        return HandMade(folder=folder, config=config, workloads=workloads)

    return make


@pytest.fixture
def install(make_install: Make) -> HandMade:
    """An install directory with H100s, and H200s that are like them."""
    return make_install(gpu_types={"h200": {"like": "h100"}})


@pytest.fixture
def run(install: HandMade, llmb_here: Command) -> Command:
    """Runs llmb-run on the install directory, within this process."""

    def on_install(*words: object) -> subprocess.CompletedProcess[str]:
        return llmb_here(*words, "--install", install.folder)

    return on_install
