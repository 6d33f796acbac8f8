# SPDX-License-Identifier: Apache-2.0
"""Completes and checks what hooks return: launches, log formats, and the samples of a log."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from llmb import api
from llmb.core import checked, names
from llmb.core.units import is_time
from llmb.errors import KeyFaultError, UsageError
from llmb.plan.framework import image_of

_NO_NUMBER = "write a finite number, or omit the value where nothing was measured"
# what a step has is not below 0; nan where it is not measured
_FROM_ZERO = ("step_time", "tflops", "tokens_rate")


def check_samples(samples: api.Samples, metrics: Sequence[api.MetricSpec]) -> None:
    """Raise KeyFaultError for samples that no log can have, whatever the run did."""
    checked.check_types(samples)
    units = {metric.name: metric.unit for metric in metrics}
    before: int | None = None
    for number, step in enumerate(samples.steps):
        checked.check_types(step)
        _check_order(number, step.iteration, before)
        before = step.iteration
        if step.span < 1:
            raise _fault(
                f"is {step.span}", "a line is the mean of 1 step or more", step.span, number, "span"
            )
        for name in _FROM_ZERO:
            value = getattr(step, name)
            if value is not None and (value < 0 or value == math.inf):
                hint = "a time and a rate are 0 or more; nan where it is not measured"
                raise _fault(f"is {value:g}", hint, value, number, name)
        for name, value in step.values.items():
            if name not in units:
                message, hint = (
                    f"Step.values has '{name}', no metric of the workload",
                    names.suggest(name, list(units)),
                )
                raise KeyFaultError(
                    message, "values", name, hint=hint, code="metric-unknown", value=name
                )
            if value < 0 and is_time(units[name]):
                raise _fault(
                    f"is {value:g} {units[name]}",
                    "a time is 0 or more",
                    value,
                    number,
                    "values",
                    name,
                )
    _check_whole(samples, before)


def _check_order(number: int, iteration: int, before: int | None) -> None:
    path = (number, "iteration")
    if iteration < 0:
        raise _fault(f"is {iteration}", "iterations are counted from 0", iteration, *path)
    if before is not None and iteration <= before:
        problem = "is repeated" if iteration == before else f"comes after {before}"
        hint = "give the steps of the last attempt alone, each once, in ascending order"
        raise _fault(f"{iteration} {problem}", hint, iteration, *path, code="steps-unordered")


def _check_whole(samples: api.Samples, highest: int | None) -> None:
    """Raise KeyFaultError for impossible numbers of a log whose last iteration is ``highest``."""
    if samples.last is not None and samples.last < (highest or 0):
        hint = (
            "it is the last iteration that was planned, from 0: one less than the number of steps"
        )
        message = f"is {samples.last}, but the last step is {highest or 0}"
        raise KeyFaultError(message, "last", hint=hint, value=samples.last)
    for name, least in (
        ("first", 0),
        ("attempts", 0),
        ("begins", 0),
        ("gbs", 1),
        ("peak_memory", 0),
    ):
        value = getattr(samples, name)
        if value is not None and not (least <= value < math.inf):
            raise KeyFaultError(f"is {value}", name, hint=f"it is {least} or more", value=value)


def check_complete(samples: api.Samples, metrics: Sequence[api.MetricSpec]) -> None:
    """Raise KeyFaultError for a sample log's samples that lack a value or have an unusable one."""
    if not samples.steps:
        hint = "the sample log must have the lines of a whole run, and llmb_parse find them"
        raise KeyFaultError("has no step", "steps", hint=hint, code="steps-missing", value=())
    has_times = any(math.isfinite(step.step_time) for step in samples.steps)
    for number, step in enumerate(samples.steps):
        for name, value in _numbers(step):
            if not math.isfinite(value) and (has_times or name != "step_time"):
                path = ("values", name) if name in step.values else (name,)
                raise _fault(f"is {value:g}", _NO_NUMBER, value, number, *path)
    for name in (metric.name for metric in metrics):
        absent = [number for number, step in enumerate(samples.steps) if name not in step.values]
        if absent and len(absent) < len(samples.steps):
            having = len(samples.steps) - len(absent)
            message = f"is missing: {having} of {len(samples.steps)} steps have it"
            hint = "give each step a value of each metric"
            raise _fault(message, hint, None, absent[0], "values", name, code="values-missing")


def _numbers(step: api.Step) -> Iterator[tuple[str, float]]:
    """Every number of a step by its name."""
    numbers = (
        (field.name, getattr(step, field.name))
        for field in fields(step)
        if field.name not in ("fault", "values")
    )
    yield from ((name, float(value)) for name, value in numbers if value is not None)
    yield from step.values.items()


def _fault(
    message: str, hint: str, value: object, number: int, *path: str, code: str = "value-not-allowed"
) -> KeyFaultError:
    return KeyFaultError(message, "steps", number, *path, hint=hint, code=code, value=value)


Wrapping = Generator[None, "api.Launch", "api.Launch"]


def completed(
    launch: api.Launch, workload: api.Workload, job: api.Job, site: api.Site
) -> api.Launch:
    """Return ``launch`` with the job's workload, GPU type and mounts.

    Raises UsageError for switches without effect.
    """
    switches = job.switches
    if switches.mounts and launch.image is None:
        key, reason = "mounts", "is for containers, and this program runs without one"
        raise UsageError(
            f"{job.experiment_name}: '{key}' {reason}",
            hint="remove it: the program sees the folders of its node",
            code="switch-without-effect",
            key=key,
        )
    if switches.container_writable is not None and not site.runs.writable_images:
        key, reason = "container_writable", f"is for Slurm with pyxis, not for {site.cluster_type}"
        raise UsageError(
            f"{job.experiment_name}: '{key}' {reason}",
            hint="remove it",
            code="switch-without-effect",
            key=key,
            value=site.cluster_type,
        )
    fixes = dict(launch.fixes)
    usual = image_of(workload, job.framework, job.release)
    if launch.image is not None and launch.image == job.image != usual:
        chosen = f"{shlex.quote(launch.image)} --install {shlex.quote(str(site.install))}"
        fixes[launch.image] = f"llmb-install image {chosen}"
    added_mounts = [mount for mount in switches.mounts or () if mount not in launch.mounts]
    return replace(
        launch,
        workload=job.workload,
        gpu_type=job.gpu_type,
        mounts=(*added_mounts, *launch.mounts),
        vboost=bool(job.vboost),
        container_writable=switches.container_writable,
        fixes=fixes,
    )


def memory_of(workload: api.Workload, job: api.Job, site: api.Site) -> float | None:
    """The memory in GB that one GPU must have by the workload's row for ``job``."""
    from llmb.contract.rows import find_row

    size, strong = workload.sizes.get(job.model_size), bool(job.switches.strong_scaling)
    row = (
        find_row(size.rows, site.gpu_type, job.dtype, job.scale, strong=strong)
        if size is not None
        else None
    )
    return row.memory_gb if row is not None else None


def through(wrapper: Wrapping, launch: api.Launch) -> api.Launch:
    """Return ``launch`` as a wrapper changes it.

    Raises TypeError if that is no launch, or the wrapper yields twice.
    """
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
    """Yield the fields in which two launches differ.

    Of a mapping, it yields each key: ``environment.NCCL_IB_HCA``.
    """
    for field in dataclasses.fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new or field.name == "changed_by":
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from (
                f"{field.name}.{key}" for key in {**old, **new} if old.get(key) != new.get(key)
            )
        else:
            yield field.name


def check_parse(workload: api.Workload, answer: api.ParseSpec | api.Samples) -> None:
    """Raise KeyFaultError for impossible values, or values of undeclared metrics."""
    from llmb.contract.spec_checks import check_convertible, check_declared

    metrics = [metric.name for metric in workload.metrics]
    if isinstance(answer, api.ParseSpec):
        check_declared(answer.keys, metrics, answer.patterns)
        check_convertible(answer.units, {metric.name: metric.unit for metric in workload.metrics})
        return
    check_samples(answer, workload.metrics)
