# SPDX-License-Identifier: Apache-2.0
"""What a log says of its run beside the steps: network, checkpoints, memory; and what makes it invalid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from llmb.logs.samples import Checkpoint, Samples
from llmb.stats.measure import Window, steps_in

SOCKET = "Socket"
PROFILED = "profiled: a profiler costs time"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a log says; None or empty where it does not.

    ``networks``: what NCCL uses (``IB``, ``Socket``); ``nodes``: how many ``hosts`` said anything; ``drivers`` and
    ``gpu_models``: each once; ``max_sm_clock_mhz`` and ``power_limit_w``: of the lowest GPU of all; ``vboost``: on how
    many nodes it was raised, and why not on the others; ``peak_memory_bytes`` of one GPU; ``checkpoints``: each save
    and load with the time of rank 0 and the longest of any rank, in seconds.
    """

    framework: str | None = None
    nccl_version: str | None = None
    networks: tuple[str, ...] = ()
    nodes: int | None = None
    peak_memory_bytes: float | None = None
    checkpoints: tuple[CheckpointTime, ...] = ()
    hosts: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    gpu_models: tuple[str, ...] = ()
    max_sm_clock_mhz: float | None = None
    power_limit_w: float | None = None
    vboost: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTime:
    """One ``save`` or ``load``, and how many ``ranks`` told of it; seconds."""

    kind: str
    iteration: int | None
    ranks: int
    rank0_seconds: float | None
    max_seconds: float | None


def facts_of(samples: Samples) -> LogFacts:
    """The facts of a log."""
    environment = samples.environment
    nodes = environment.described
    return LogFacts(
        framework=samples.framework,
        nccl_version=environment.nccl_version,
        networks=environment.networks,
        nodes=environment.nodes,
        peak_memory_bytes=samples.peak_memory,
        checkpoints=tuple(_time_of(checkpoint) for checkpoint in samples.checkpoints),
        hosts=tuple(sorted(environment.hosts)),
        drivers=_each(node.driver for node in nodes),
        gpu_models=_each(node.gpu for node in nodes),
        max_sm_clock_mhz=min(filter(None, (node.max_sm_clock_mhz for node in nodes)), default=None),
        power_limit_w=min(filter(None, (node.power_limit_w for node in nodes)), default=None),
        vboost=environment.vboost,
    )


def _each(words: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({word for word in words if word}))


def invalid_because(samples: Samples, window: Window | None, nodes: int | None = None) -> tuple[str, ...]:
    """What keeps the measurement from counting; ``nodes``: how many the job had, as far as others than the log know.

    A loss or a gradient that is no number leaves weights that are none, at whichever step. NCCL's ``Socket`` between
    nodes is TCP, which is reported to cost a fifth of the throughput.
    """
    found = []
    measured = [] if window is None else [step.loss for step in steps_in(samples, window) if step.loss is not None]
    if samples.has_nan or not all(map(math.isfinite, measured)):
        found.append("the loss is not a number")
    if samples.has_nan_gradient:
        found.append("the gradient norm is not a number")
    several = max(nodes or 1, samples.environment.nodes or 1) > 1
    if several and any(network.startswith(SOCKET) for network in samples.environment.networks):
        found.append("ran over TCP: NCCL said 'Using network Socket'")
    return tuple(found)


def _time_of(checkpoint: Checkpoint) -> CheckpointTime:
    return CheckpointTime(
        kind=checkpoint.kind,
        iteration=checkpoint.iteration,
        ranks=len(checkpoint.ranks),
        rank0_seconds=checkpoint.rank0_seconds,
        max_seconds=checkpoint.max_seconds,
    )
