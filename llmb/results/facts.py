# SPDX-License-Identifier: Apache-2.0
"""What a log says of its run beside the steps: network, checkpoints, memory; and what makes it invalid."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llmb.logs.samples import Checkpoint, Samples
from llmb.measure import Window
from llmb.summary import steps_in

SOCKET = "Socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a log says; None or empty where it does not.

    ``networks``: what NCCL uses (``IB``, ``Socket``); ``nodes``: how many hosts said so; ``peak_memory_bytes`` of one
    GPU; ``checkpoints``: each save and load with the time of rank 0 and the longest of any rank, in seconds.
    """

    framework: str | None = None
    nccl_version: str | None = None
    networks: tuple[str, ...] = ()
    nodes: int | None = None
    peak_memory_bytes: float | None = None
    checkpoints: tuple[CheckpointTime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTime:
    """One ``save`` or ``load``, and how many ``ranks`` told of it; seconds."""

    kind: str
    iteration: int | None
    ranks: int
    rank0_seconds: float | None
    max_seconds: float


def facts_of(samples: Samples) -> LogFacts:
    """The facts of a log."""
    environment = samples.environment
    return LogFacts(
        framework=samples.framework, nccl_version=environment.nccl_version, networks=environment.networks,
        nodes=environment.nodes, peak_memory_bytes=samples.peak_memory,
        checkpoints=tuple(_time_of(checkpoint) for checkpoint in samples.checkpoints),
    )  # fmt: skip


def invalid_because(samples: Samples, window: Window | None, nodes: int | None = None) -> tuple[str, ...]:
    """What keeps the measurement from counting; ``nodes`` of the job where its record says so.

    NCCL's ``Socket`` between nodes is TCP, which is reported to cost a fifth of the throughput.
    """
    found = []
    if window is not None:
        losses = [step.loss for step in steps_in(samples, window) if step.loss is not None]
        if any(not math.isfinite(loss) for loss in losses):
            found.append("the loss is not a number")
    several = (nodes or samples.environment.nodes or 1) > 1
    if several and any(network.startswith(SOCKET) for network in samples.environment.networks):
        found.append("ran over TCP: NCCL said 'Using network Socket'")
    return tuple(found)


def _time_of(checkpoint: Checkpoint) -> CheckpointTime:
    return CheckpointTime(
        kind=checkpoint.kind, iteration=checkpoint.iteration, ranks=len(checkpoint.ranks),
        rank0_seconds=checkpoint.rank0_seconds, max_seconds=checkpoint.max_seconds,
    )  # fmt: skip
