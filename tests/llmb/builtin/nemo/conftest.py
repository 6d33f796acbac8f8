# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of NeMo launches: the launch and the recipe of a request."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.job import Job
from llmb.contract.launch import Launch
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig, WorkloadConfig, WorkloadsConfig
from llmb.plan.plan import make_plan
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import site_of
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

NOTHING: Mapping[str, Any] = {}
KEYS = ("pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh")


@pytest.fixture(scope="session")
def plugins() -> Plugins:
    """llmb's own plugins and those installed here."""
    return load_plugins(builtin_plugins())


@pytest.fixture(scope="session")
def launched(plugins: Plugins) -> Callable[..., list[tuple[Job, Launch | None]]]:
    """The jobs and launches of a request, on ``gpu`` GPUs of a cluster type; keywords are fields of
    the request.

    ``installed``: fields of the Site.
    """

    def run(
        workload: str,
        *,
        gpu: str = "h100",
        kind: str = "slurm",
        container: str = "pyxis",
        installed: Mapping[str, Any] = NOTHING,
        **request: Any,
    ) -> list[tuple[Job, Launch | None]]:
        venv = WorkloadsConfig(
            config={key: WorkloadConfig(venv_path=Path("/venvs/nemo")) for key in KEYS}
        )
        slurm = SlurmConfig(container=container)  # type: ignore[arg-type]
        config = ClusterConfig(
            cluster_type=kind,
            kind=all_types()[kind],
            gpu_type=gpu,
            llmb_install=Path("/llmb"),
            sections={"slurm": slurm} if kind == "slurm" else {},
            workloads=venv,
            environment={"NCCL_DEBUG": "WARN"},
        )
        workloads = plugins.workloads()
        plan = make_plan([job_entry(workload=workload, **request)], workloads, config)
        assert not plan.faults
        sites = [replace(site_of(config, job), **installed) for job in plan.jobs]
        return [
            (job, plugins.launch(workloads[job.workload], job, site))
            for job, site in zip(plan.jobs, sites, strict=True)
        ]

    return run


@pytest.fixture(scope="session")
def one(launched: Callable[..., list[tuple[Job, Launch | None]]]) -> Callable[..., Launch]:
    """The only launch of a request."""

    def run(workload: str, **request: Any) -> Launch:
        ((_, launch),) = launched(workload, **request)
        assert launch is not None
        return launch

    return run


@pytest.fixture(scope="session")
def recipe(one: Callable[..., Launch]) -> Callable[..., dict[str, Any]]:
    """The recipe.json of the only job of a request."""

    def run(workload: str, **request: Any) -> dict[str, Any]:
        (staged,) = one(workload, **request).files
        assert staged.name == "recipe.json"
        found: dict[str, Any] = json.loads(staged.text)
        return found

    return run


@pytest.fixture(scope="session")
def rows(plugins: Plugins) -> list[tuple[str, str, str, str, int, bool]]:
    """Every published configuration: workload, size, GPU type, dtype, scale, whether its batch is
    constant.
    """
    return list(_rows(plugins))


def _rows(plugins: Plugins) -> Iterator[tuple[str, str, str, str, int, bool]]:
    for key in KEYS:
        for name, size in plugins.workloads()[key].sizes.items():
            for row in size.rows if size.nemo is not None else ():
                for gpu in row.gpu:
                    for dtype in row.dtype:
                        for scale in row.scales.counts:
                            yield key, name, gpu, dtype, scale, row.strong_scaling
