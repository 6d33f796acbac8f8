# SPDX-License-Identifier: Apache-2.0
"""The content of a training log, as values."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from llmb.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step. Numbers are as logged, so nan and inf occur. Omitted ones are None."""

    iteration: int
    step_time: float
    tflops: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    tokens_rate: float | None = None
    span: int = 1
    #: Why the program itself calls the step bad: ``nan``, ``skipped``, or empty. ``rounded`` for a
    #: run whose number of steps follows only from a rounded rate.
    fault: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEvent:
    """One save or load of a checkpoint. Fields that the log omits are None."""

    kind: Literal["save", "load"]
    #: The ranks that logged it.
    ranks: tuple[int, ...]
    #: The longest time of any rank.
    max_seconds: float | None
    rank0_seconds: float | None = None
    iteration: int | None = None
    #: Its folder according to the log.
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClock:
    """The SM clock of a node's slowest GPU in MHz, while it was busy."""

    median: float
    #: It was lower only 5 % of the time.
    p5: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPower:
    """The power of one GPU of a node in watts."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTemperature:
    """The temperature of a node's GPUs in degrees Celsius."""

    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The values that were sampled on a node during a run. What its driver lacks is None."""

    sm_clock_mhz: MeasuredClock | None = None
    power_w: MeasuredPower | None = None
    #: In joules, of all GPUs together. None unless the counter of each covers the samples.
    energy_j: float | None = None
    temperature_c: MeasuredTemperature | None = None
    #: The share of the time in which a GPU had lower clocks for a reason (``sw_power_cap``), of the
    #: GPU that had it longest. Reasons that none had are omitted.
    throttle: Mapping[str, float] | None = field(default=None, hash=False)
    #: New ones of all GPUs since the run's start.
    ecc_uncorrected: int | None = None
    #: Of all GPUs, since they were built.
    remapped_rows: int | None = None
    #: The seconds between the first and the last sample, None if only the log has the values.
    seconds: float | None = None
    #: The samples are only those of the measured window.
    in_window: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The GPUs of one node as our programs log them. Facts that its driver lacks are None."""

    host: str
    driver: str | None = None
    #: The model's name.
    gpu: str | None = None
    gpus: int | None = None
    #: Of the lowest of its ``gpus``.
    max_sm_clock_mhz: float | None = None
    #: Of the lowest of its ``gpus``.
    power_limit_w: float | None = None
    #: As it was sampled during the run.
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links of a run as NCCL logs them. Fields that the log omits are empty or None."""

    #: Of its largest communicator. Nodes in one NVLink domain count as one.
    nodes: int | None = None
    gpus_per_node: int | None = None
    #: NVLink connects the GPUs of several nodes.
    mnnvl: bool | None = None
    #: NVLink SHARP is available.
    nvls: bool | None = None
    #: Of one node.
    nics: int | None = None
    #: ``IB`` or ``RoCE``.
    link: str = ""
    #: Of one NIC, in Gbit/s.
    nic_gbit: int | None = None
    #: As the user chose it by NCCL_ALGO, in lower case.
    algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that a detector of the training program measured as the slowest, or warned of."""

    #: ``NVRx``, ``sniff test`` or ``StragglerDetector``.
    detector: str
    #: In the detector's words: ``GPU relative performance``.
    measure: str
    rank: int
    host: str | None = None
    #: Its speed as a fraction of the fastest rank's, in a sniff test of the median. The lowest of
    #: all reports, None if none has it.
    score: float | None = None
    #: The detector warned of it.
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machines of a run according to its log. Fields that it omits are empty or None."""

    #: What NCCL uses (``IB``, ``Socket``, ``AWS Libfabric``), each once.
    networks: tuple[str, ...] = ()
    #: The nodes that logged anything.
    hosts: tuple[str, ...] = ()
    nccl_version: str | None = None
    #: In ranks, which is GPUs.
    world_size: int | None = None
    #: The number of nodes on which it was raised, and why not on the others.
    vboost: str | None = None
    #: Nodes with their GPUs.
    described: tuple[Node, ...] = ()
    #: What the trainer logs before its first step.
    steps: int | None = None
    #: Of them, those before the checkpoint from which the trainer continues. None if unknown.
    resumed_steps: int | None = None
    #: In samples, from there too.
    gbs: int | None = None
    #: In tokens, from there too.
    seq_length: int | None = None
    #: ``CPU`` if the ranks found no GPU.
    device: str | None = None
    warnings: tuple[str, ...] = ()
    links: Links = Links()
    #: The names of the GPUs of nccl-tests, each once.
    gpus: tuple[str, ...] = ()
    #: The collective of nccl-tests, such as ``all_reduce``.
    operation: str = ""
    #: Each once.
    stragglers: tuple[Straggler, ...] = ()
    #: Of one GPU in bytes, from lines of their own.
    peak_memory: float | None = None

    @property
    def nodes(self) -> int | None:
        """The number of nodes that logged anything, None without any."""
        return len(self.hosts) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class MlPerf:
    """One run of MLPerf Training by its own lines; None or empty for what the log omits."""

    #: Milliseconds since 1970.
    start_ms: float | None = None
    stop_ms: float | None = None
    #: ``success`` or ``aborted``, empty until it ends.
    status: str = ""
    #: Trained from start to stop.
    samples: float | None = None
    #: The throughputs that were logged before it ended.
    rates: tuple[float, ...] = ()
    #: Such as ``llama2_70b_lora``.
    benchmark: str = ""

    @property
    def seconds(self) -> float | None:
        """The time to train."""
        if self.start_ms is None or self.stop_ms is None or self.stop_ms <= self.start_ms:
            return None
        return (self.stop_ms - self.start_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTable:
    """A table of nccl-tests."""

    #: Pairs of a message size in bytes and its bus bandwidth in GB/s, the best of both places, and
    #: of all types and operations.
    busbw: tuple[tuple[int, float], ...] = ()
    #: The message sizes with wrong values.
    wrong: tuple[int, ...] = ()
    #: Its end is in the log.
    ended: bool = False
    #: The operation reduces values.
    reduces: bool = False
    #: The bus bandwidth of the largest message by its algorithm bandwidth, None if that is 0.
    factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The last attempt of a log."""

    steps: tuple[Step, ...] = ()
    #: The last iteration that the log announces, from 0.
    last: int | None = None
    #: The number of the first step in windows, which use the numbers of the log (1 for Megatron).
    first: int = 0
    #: How often the iterations started again, 0 without a step.
    attempts: int = 0
    #: The steps of earlier attempts from whose checkpoint it continues, in their order.
    resumed: tuple[Step, ...] = ()
    #: The byte of the file at which the line of its first step begins, 0 for the first attempt.
    begins: int = 0
    #: The trainer logged that it finished.
    ended: bool = False
    checkpoints: tuple[CheckpointEvent, ...] = ()
    environment: Environment = Environment()
    #: The program of the lines (``NeMo 2``), None for a plugin's own.
    framework: str | None = None
    #: Global batch in samples, of the last step.
    gbs: int | None = None
    #: Pairs of an iteration and the batch from there on, more than one if the batch changes.
    batches: tuple[tuple[int, int], ...] = ()
    #: Of one GPU in bytes, the highest of all steps.
    peak_memory: float | None = None
    #: None without lines of MLPerf.
    mlperf: MlPerf | None = None
    #: The last one of nccl-tests, None without any.
    nccl_table: NcclTable | None = None
    #: What a suite of benchmarks reports, not of single steps: by metric, one value for each rank,
    #: run and node, in the suite's unit. None for a log of no suite.
    figures: Mapping[str, tuple[float, ...]] | None = None
    #: Pairs of an iteration and the byte of the log at which its line begins.
    offsets: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)
    #: Why the run failed although its program ended without an error, None if it did not: ``3 of
    #: 200 requests failed``.
    failed: str | None = None
    #: Why its values are no measurement, None if they are one: ``wrong values in 2 tables``.
    invalid: str | None = None
    #: The first line with the needle of a plugin's spec, quoted, and why it is no step. Empty if
    #: the log has a step.
    unread: str = ""

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
        """Return True if the log has its last step, or any step if it announces no last one."""
        if not self.steps:
            return False
        return self.last is None or self.steps[-1].iteration + self.steps[-1].span > self.last

    @property
    def has_nan(self) -> bool:
        """Return True if a step's loss is not a number."""
        return any(step.loss is not None and step.loss != step.loss for step in self.steps)

    @property
    def has_nan_gradient(self) -> bool:
        """Return True if a step's gradient norm is not a number."""
        return any(
            step.grad_norm is not None and step.grad_norm != step.grad_norm for step in self.steps
        )
