# SPDX-License-Identifier: Apache-2.0
"""The content of a training log, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step: ``iteration`` from 0, ``step_time`` in seconds, ``tflops`` of one GPU as the framework says.

    ``grad_norm``: of all gradients, before clipping. Numbers are as logged, so nan and inf occur; None where the line
    omits them. ``tokens_rate``: tokens per second of one GPU; ``step_time`` is nan where the line has only that.
    ``span``: the line is the mean of this many steps, this one the last of them. ``values``: the metrics that a
    workload declares, by name; ``step_time`` is nan for a benchmark without steps that take a time.
    """

    iteration: int
    step_time: float
    tflops: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    tokens_rate: float | None = None
    span: int = 1
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEvent:
    """One save or load of a checkpoint: the ``ranks`` that logged it, the longest time of any and rank 0's, in s.

    ``folder``: its folder according to the log. None where the log omits it.
    """

    kind: Literal["save", "load"]
    ranks: tuple[int, ...]
    max_seconds: float | None
    rank0_seconds: float | None = None
    iteration: int | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What our programs log of the GPUs of one node: None where its driver does not know.

    ``gpu``: the model's name; ``max_sm_clock_mhz`` and ``power_limit_w``: of the lowest of its ``gpus``.
    """

    host: str
    driver: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    max_sm_clock_mhz: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a run ran, according to its log: empty or None where the log omits it.

    ``networks``: what NCCL uses (``IB``, ``Socket``, ``AWS Libfabric``), each once; ``hosts``: the nodes that logged
    anything; ``world_size`` in ranks, which is GPUs; ``vboost``: on how many nodes it was raised, and why not on the
    others; ``described``: nodes with their GPUs; ``steps``, ``gbs`` (samples) and ``seq_length`` (tokens): what the
    trainer logs before its first step; ``device``: ``CPU`` where the ranks found no GPU.
    """

    networks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    nccl_version: str | None = None
    world_size: int | None = None
    vboost: str | None = None
    described: tuple[Node, ...] = ()
    steps: int | None = None
    gbs: int | None = None
    seq_length: int | None = None
    device: str | None = None

    @property
    def nodes(self) -> int | None:
        """How many nodes logged anything, None without any."""
        return len(self.hosts) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The last attempt of a log.

    ``last``: the last iteration that the log announces, from 0; ``first``: the number of the first step in windows,
    which use the numbers of the log (1 for Megatron); ``attempts``: how often the iterations started again, 0 without a
    step; ``begins``: where the line of its first step begins in the file, in bytes, 0 for the first attempt; ``ended``:
    the trainer logged that it finished; ``framework``: the program of the lines (``NeMo 2``; None for a plugin's own);
    ``gbs``: global batch in samples; ``peak_memory`` of one GPU in bytes, the highest of all steps.
    """

    steps: tuple[Step, ...] = ()
    last: int | None = None
    first: int = 0
    attempts: int = 0
    begins: int = 0
    ended: bool = False
    checkpoints: tuple[CheckpointEvent, ...] = ()
    environment: Environment = Environment()
    framework: str | None = None
    gbs: int | None = None
    peak_memory: float | None = None

    @property
    def numbered(self) -> tuple[Step, ...]:
        """The steps with the numbers that windows count by."""
        return tuple(replace(step, iteration=step.iteration + self.first) for step in self.steps)

    @property
    def max_iteration(self) -> int | None:
        """The highest iteration, None without a step."""
        return self.steps[-1].iteration if self.steps else None

    @property
    def is_complete(self) -> bool:
        """Whether the log has the line of its last step; of a log that does not announce it, whether it has any."""
        if not self.steps:
            return False
        return self.last is None or self.steps[-1].iteration + self.steps[-1].span > self.last

    @property
    def has_nan(self) -> bool:
        """Whether a step's loss is not a number."""
        return any(step.loss is not None and step.loss != step.loss for step in self.steps)

    @property
    def has_nan_gradient(self) -> bool:
        """Whether a step's gradient norm is not a number."""
        return any(step.grad_norm is not None and step.grad_norm != step.grad_norm for step in self.steps)
