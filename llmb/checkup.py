# SPDX-License-Identifier: Apache-2.0
"""Looks through a plugin's workload for what would only fail when somebody submits it: its rows, and its launch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from llmb.configure import Place, Wish, configure
from llmb.errors import Fault, LlmbError, UsageError
from llmb.gpus import CPU, known_types
from llmb.job import Job
from llmb.loader import PluginError, Plugins
from llmb.names import suggest
from llmb.site import Site
from llmb.workload import ANY_GPU, Row, Workload

_INSTALL = Path("/install")


def faults_of(workload: Workload, plugins: Plugins) -> list[Fault]:
    """Everything wrong with a workload and with how its plugin launches it, each once."""
    faults = dict.fromkeys(_wrong_default(workload))
    for name, size in workload.sizes.items():
        jobs: list[Job] = []
        for row in size.rows:
            faults |= dict.fromkeys(_unknown_types(f"{workload.key} {name}", row))
            for found in _jobs(workload, name, row):
                if isinstance(found, Fault):
                    faults[found] = None
                else:
                    jobs.append(found)
        if jobs:
            faults |= dict.fromkeys(_faults_of_launch(workload, jobs[0], plugins))
    return list(faults)


def _wrong_default(workload: Workload) -> Iterator[Fault]:
    dtypes = list(dict.fromkeys(dtype for row in workload.sizes[workload.default_size].rows for dtype in row.dtype))
    if workload.default_dtype not in dtypes:
        message = f"{workload.key} {workload.default_size} has no row for the default_dtype '{workload.default_dtype}'"
        yield Fault(message=message, hint=suggest(workload.default_dtype, dtypes))


def _unknown_types(label: str, row: Row) -> Iterator[Fault]:
    known = [*known_types(), ANY_GPU]
    for gpu in row.gpu:
        if gpu not in known:
            yield Fault(message=f"{label}: no GPU type is called '{gpu}'", hint=suggest(gpu, known))


def _jobs(workload: Workload, size: str, row: Row) -> Iterator[Job | Fault]:
    """The job of each GPU type, dtype and scale of a row, or what is wrong with it."""
    types = (CPU if gpu == ANY_GPU else gpu for gpu in row.gpu)
    for gpu, dtype, scale in itertools.product(types, row.dtype, row.scales.counts):
        if gpu not in known_types():
            continue
        place = Place(
            gpu_type=gpu, rows=gpu, gpus_per_node=known_types()[gpu].gpus_per_node, one_machine=gpu == CPU,
            needs_image=gpu != CPU,
        )  # fmt: skip
        wish = Wish(
            workload=workload, size=size, dtype=dtype, scale=scale, params={}, strong_scaling=row.strong_scaling
        )
        try:
            yield configure(wish, place)[0]
        except UsageError as error:
            yield Fault(message=error.message, hint="mend the row, or the model's shape")


def _faults_of_launch(workload: Workload, job: Job, plugins: Plugins) -> Iterator[Fault]:
    """What the plugin's own launch fails with when it is asked for this job."""
    if not hasattr(plugins.manager.get_plugin(plugins.offers[workload.key].source), "llmb_launch"):
        return
    is_local = job.gpu_type == CPU
    site = Site(
        cluster_type="local" if is_local else "slurm", gpu_type=job.gpu_type, gpus_per_node=job.gpus_per_node,
        install=_INSTALL, container=not is_local, venv=_INSTALL / "venvs" / "x", environment=job.env,
    )  # fmt: skip
    try:
        plugins.launch(workload, job, site)
    except PluginError as error:
        yield Fault(message=error.message, hint=error.hint)
    except LlmbError:  # what it says to a user may be right at another place
        return
