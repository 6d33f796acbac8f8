# SPDX-License-Identifier: Apache-2.0
"""What differs between two runs, or a run and the published one: settings, where they ran, what a log omits. Pure."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from llmb.results.description import Configuration
from llmb.results.facts import LogFacts
from llmb.results.result import Result
from llmb.runs.job import Job
from llmb.stats.measure import LAST, Window
from llmb.verdict.reference import SAME
from llmb.workload.flops import flops_convention
from llmb.workload.published import Figure, raises_vboost
from llmb.workload.rows import Row

NCCL_FIX = "--env NCCL_DEBUG=INFO --env NCCL_DEBUG_SUBSYS=INIT,NET"
_SPLIT = ("tp", "pp", "cp", "vp", "ep", "mbs")  # not etp: a row without it has that of tp
_MOST_HOSTS = 8
_PARALLEL = ("tp", "pp", "cp", "ep", "etp", "mbs", "gpus_per_node")  # None where a log omits them
_NOT_IN_LOGS = (*_PARALLEL, "vboost", "release", "rows_of")
# What a run does besides measuring, in words.
_DOES = {
    "saves": "saves checkpoints",
    "loads": "loads a checkpoint",
    "nccl_trace": "traces NCCL",
    "profile": "is profiled",
    "vboost": "raises vboost",
}


def differences(ours: Configuration, theirs: Configuration) -> list[str]:
    """The settings, besides those of SAME, that differ: ``tp 4, not 2``. Unknown parallelism does not differ."""
    names = (own.name for own in fields(Configuration) if own.name not in (*SAME, "env", "dotted"))
    found = [(name, getattr(ours, name), getattr(theirs, name)) for name in names]
    found += [(name, ours.dotted.get(name), theirs.dotted.get(name)) for name in sorted({*ours.dotted, *theirs.dotted})]
    variables = sorted({*ours.env, *theirs.env})
    found += [(name, ours.env.get(name), theirs.env.get(name)) for name in variables]
    found = [(name, own, other) for name, own, other in found if own != other]
    unknown = {name for name, own, other in found if name in _NOT_IN_LOGS and None in (own, other)}
    if "tp" in unknown:
        unknown.add("vp")  # None is no vp where the rest is known
    return [_differs(*one) for one in found if one[0] not in unknown]


def _differs(name: str, own: Any, other: Any) -> str:
    if name in _DOES:
        return f"{_DOES[name]}, the reference does not" if own else f"the reference {_DOES[name]}"
    return f"{name} {_word(own)}, not {_word(other)}"


def differing_facts(ours: LogFacts | None, theirs: LogFacts | None) -> list[str]:
    """What differs in where both ran, as far as both logs say it."""
    if ours is None or theirs is None:
        return []
    facts = (
        ("NCCL", ours.nccl_version, theirs.nccl_version),
        ("network", ", ".join(ours.networks), ", ".join(theirs.networks)),
        ("driver", ", ".join(ours.drivers), ", ".join(theirs.drivers)),
        ("GPU", ", ".join(ours.gpu_models), ", ".join(theirs.gpu_models)),
        ("SM clock in MHz", ours.max_sm_clock_mhz, theirs.max_sm_clock_mhz),
        ("power limit in W", ours.power_limit_w, theirs.power_limit_w),
        ("vboost", ours.vboost, theirs.vboost),
        ("framework", ours.framework, theirs.framework),
    )
    return [f"{what} {_word(own)}, not {_word(other)}" for what, own, other in facts if own and other and own != other]


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "unset" if value is None else str(value)


def window_in_words(window: Window | None) -> str:
    """``iterations 11-44``."""
    if window is None:
        return "no iteration"
    if window == LAST:
        return "the last iteration"
    return f"iteration {window.first}" if window.first == window.last else f"iterations {window.first}-{window.last}"


def differences_from_published(
    result: Result, job: Job, figure: Figure, *, peak_tflops: float | None = None, row: Row | None = None
) -> Iterator[str]:
    """What differs between a run and the published figure that it is compared with.

    ``peak_tflops``: of one GPU at the job's dtype; ``row``: of the workload's table, which the published runs used.
    """
    if result.verdict.same_window is False:
        here, there = window_in_words(result.metrics.window), window_in_words(figure.window)
        yield f"window: {here} here, {there} of {figure.steps} in the published run"
    training = job.training
    own = result.metrics.flops_convention or (None if training is None else flops_convention(training.model))
    if figure.flops_convention is not None and figure.flops_convention != own:
        ours, mfu = result.verdict.mfu_reference_convention, "so the two MFU cannot be compared"
        if ours is not None and figure.mfu is not None:
            mfu = f"which gives an MFU of {100 * ours:.2f} % here and {100 * figure.mfu:.2f} % there"
        yield f"FLOPs formula: {own} here, {figure.flops_convention} in the published run, {mfu}"
    if figure.peak_tflops is not None and figure.peak_tflops != peak_tflops:
        yield f"peak for the MFU: {figure.peak_tflops:g} TFLOPS in the published run"
    for name in _SPLIT if row is not None and training is not None else ():
        here, there = (getattr(one, name) or "none" for one in (training, row))
        if here != there:
            yield f"{name}: {here} here, {there} in the workload's table"
    if job.switches.fp8 == "current":
        yield "fp8 scaling: current here, delayed in the published runs"
    if job.switches.tokenizer == "hub":
        yield "tokenizer: the model's own here, NeMo's null tokenizer in the published runs"
    if (vboost := _vboost(result, job, figure)) is not None:
        yield vboost
    if job.env:
        yield "variables set here: " + ", ".join(sorted(job.env))


def _vboost(result: Result, job: Job, figure: Figure) -> str | None:
    """How vboost differs from the published runs, where it does."""
    there = raises_vboost(figure.release)
    log = result.log.vboost if result.log is not None else None
    if job.vboost and there and log is not None and ":" in log:  # some nodes refused it
        return f"vboost: {log} here, on in the published runs"
    if job.vboost in (None, there):
        return None
    return f"vboost: {'on' if job.vboost else 'off'} here, {'on' if there else 'off'} in the published runs"


def settings_in_common(result: Result) -> str:
    """The settings that a result has in common with its reference."""
    own, window = result.identity.configuration, ", window" if result.verdict.same_window else ""
    parameters = ", parameters" if own is not None and own.parameters else ""
    training = ", global batch, sequence length, layers" if own is None or own.gbs is not None else ""
    return f"size, dtype, GPU type, number of GPUs{parameters}{training}{window}"


def where_it_ran(log: LogFacts | None, image: str | None = None, digest: str | None = None) -> Iterator[str]:
    """Image, network, GPUs and nodes of a run, as far as its record, its log and the installer know them."""
    if image is not None:
        yield f"image {image} ({digest or 'unknown digest'})"
    if log is None:
        return
    hosts = ", ".join(log.hosts[:_MOST_HOSTS]) + (", ..." if len(log.hosts) > _MOST_HOSTS else "")
    facts = (
        f"step lines of {log.framework}" if log.framework else "",
        f"network {', '.join(log.networks)}" if log.networks else "",
        f"NCCL {log.nccl_version}" if log.nccl_version else "",
        f"{', '.join(log.gpu_models)}" if log.gpu_models else "",
        f"driver {', '.join(log.drivers)}" if log.drivers else "",
        f"SM clock up to {log.max_sm_clock_mhz:g} MHz" if log.max_sm_clock_mhz else "",
        f"power limit {log.power_limit_w:g} W" if log.power_limit_w else "",
        f"vboost {log.vboost}" if log.vboost else "",
        f"{log.nodes} node{'s' if log.nodes > 1 else ''}{f' ({hosts})' if hosts else ''}" if log.nodes else "",
    )
    if any(facts):
        yield ", ".join(text for text in facts if text)


def missing_in_log(log: LogFacts | None, scale: int) -> Iterator[str]:
    """What the speed of several GPUs depends on and the log omits, with the options that log it."""
    found = log or LogFacts()
    missing = [name for name, known in (("NCCL version", found.nccl_version), ("network", found.networks)) if not known]
    if scale > 1 and missing:
        yield f"missing in the log: {' and '.join(missing)}; to log them, submit with {NCCL_FIX}"
