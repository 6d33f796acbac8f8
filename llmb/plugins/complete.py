# SPDX-License-Identifier: Apache-2.0
"""Completes and checks what hooks return: launches get what llmb knows of the job, log formats their plugin's name."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace

from llmb import api
from llmb.errors import UsageError
from llmb.workload.bridge import usual_image

Wrapping = Generator[None, "api.Launch", "api.Launch"]


def completed(launch: api.Launch, workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch:
    """``launch`` with the job's workload, GPU type and mounts. Raises UsageError for switches without effect."""
    switches = job.switches
    if switches.mounts and launch.image is None:
        key, reason = "mounts", "is for containers, and this program runs without one"
        hint = "remove it: the program sees the folders of its node"
        raise UsageError(f"{job.experiment_name}: '{key}' {reason}", hint=hint, code="switch-without-effect", key=key)
    if switches.container_writable is not None and not site.runs.writable_images:
        key, reason = "container_writable", f"is for Slurm with pyxis, not for {site.cluster_type}"
        message = f"{job.experiment_name}: '{key}' {reason}"
        raise UsageError(message, hint="remove it", code="switch-without-effect", key=key, value=site.cluster_type)
    fixes = dict(launch.fixes)
    if launch.image is not None and launch.image == job.image != usual_image(workload, job.release):
        chosen = f"{shlex.quote(launch.image)} --install {shlex.quote(str(site.install))}"
        fixes[launch.image] = f"llmb-install image {chosen}"
    own = [mount for mount in switches.mounts or () if mount not in launch.mounts]
    return replace(
        launch,
        workload=job.workload,
        gpu_type=job.gpu_type,
        mounts=(*own, *launch.mounts),
        vboost=bool(job.vboost),
        container_writable=switches.container_writable,
        fixes=fixes,
    )


def memory_of(workload: api.Workload, job: api.Job, site: api.Site) -> float | None:
    """The memory in GB that one GPU must have by the workload's row for ``job``."""
    from llmb.planning.find_row import find_row

    size, strong = workload.sizes.get(job.model_size), bool(job.switches.strong_scaling)
    row = find_row(size, site.gpu_type, job.dtype, job.scale, strong=strong) if size is not None else None
    return row.memory_gb if row is not None else None


def through(wrapper: Wrapping, launch: api.Launch) -> api.Launch:
    """``launch`` as a wrapper returns it. Raises TypeError where that is no launch, or the wrapper yields twice."""
    try:
        next(wrapper)
    except StopIteration:
        raise TypeError("returned before its yield") from None
    try:
        wrapper.send(launch)
    except StopIteration as end:
        if not isinstance(end.value, api.Launch):
            raise TypeError(f"returned {end.value!r}, not a Launch") from None
        return end.value
    raise TypeError("a wrapper has one yield")


def changes(before: api.Launch, after: api.Launch) -> Iterator[str]:
    """The fields in which two launches differ; of a mapping, each key: ``environment.NCCL_IB_HCA``."""
    for field in dataclasses.fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new or field.name == "changed_by":
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from (f"{field.name}.{key}" for key in {**old, **new} if old.get(key) != new.get(key))
        else:
            yield field.name


def check_parse(workload: api.Workload, answer: api.ParseSpec | api.Samples) -> None:
    """Raise KeyFaultError for values that cannot be right, or of a metric that the workload does not declare."""
    from llmb.logs.spec_checks import check_convertible, check_declared
    from llmb.plugins.sample_checks import check_samples

    metrics = [metric.name for metric in workload.metrics]
    if isinstance(answer, api.ParseSpec):
        check_declared(answer.keys, metrics, answer.patterns)
        check_convertible(answer.units, {metric.name: metric.unit for metric in workload.metrics})
        return
    check_samples(answer, workload.metrics)
