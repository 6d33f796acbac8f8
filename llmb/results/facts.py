# SPDX-License-Identifier: Apache-2.0
"""What a log says besides its steps: network, GPUs, memory, times of checkpoints; and what makes it invalid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmb.logs.samples import Samples
from llmb.results.deviations import Uneven, uneven_nodes
from llmb.stats.window import Window, steps_in

SOCKET = "Socket"
PROFILED = "profiled: a profiler costs time"
TRACED = "ran with an NCCL trace, which costs time"
LOSS_NAN = "the loss is not a number"
GRADIENT_NAN = "the gradient norm is not a number"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a log says besides its steps; None or empty where it omits it.

    ``networks``: what NCCL uses (``IB``, ``Socket``); ``nodes``: the number of ``hosts`` that logged anything;
    ``drivers`` and ``gpu_models``: each once; ``max_sm_clock_mhz`` and ``power_limit_w``: the lowest of all GPUs;
    ``vboost``: on how many nodes it was raised, and why not on the others; ``peak_memory_bytes`` of one GPU;
    ``checkpoints``: each save and load, in seconds; ``uneven``: in what some of its nodes differ from the others.
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
    uneven: tuple[Uneven, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTime:
    """One ``save`` or ``load`` in seconds, and how many ``ranks`` logged it."""

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
        checkpoints=tuple(
            CheckpointTime(
                kind=one.kind,
                iteration=one.iteration,
                ranks=len(one.ranks),
                rank0_seconds=one.rank0_seconds,
                max_seconds=one.max_seconds,
            )
            for one in samples.checkpoints
        ),
        hosts=tuple(sorted(environment.hosts)),
        drivers=_each(node.driver for node in nodes),
        gpu_models=_each(node.gpu for node in nodes),
        max_sm_clock_mhz=min(filter(None, (node.max_sm_clock_mhz for node in nodes)), default=None),
        power_limit_w=min(filter(None, (node.power_limit_w for node in nodes)), default=None),
        vboost=environment.vboost,
        uneven=uneven_nodes(nodes),
    )


def _each(words: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({word for word in words if word}))


def invalid_because(
    samples: Samples, window: Window | None, nodes: int | None = None, declared: Sequence[str] = ()
) -> tuple[str, ...]:
    """Why the measurement is invalid; ``nodes``: of the job, None where only the log can tell.

    A loss or gradient that is not a number spoils all weights, at whichever step; a metric of those ``declared`` spoils
    the window. NCCL's ``Socket`` between nodes is TCP, which is reported to cost a fifth of the throughput.
    """
    found = []
    steps = [] if window is None else steps_in(samples, window)
    if samples.has_nan or not all(math.isfinite(step.loss) for step in steps if step.loss is not None):
        found.append(LOSS_NAN)
    if samples.has_nan_gradient:
        found.append(GRADIENT_NAN)
    for name in declared:
        if any(math.isnan(step.values.get(name, 0.0)) for step in steps):
            found.append(f"{name} is not a number")
    several = max(nodes or 1, samples.environment.nodes or 1) > 1
    if several and any(network.startswith(SOCKET) for network in samples.environment.networks):
        found.append("ran over TCP: NCCL logged 'Using network Socket'")
    return tuple(found)
