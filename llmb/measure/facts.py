# SPDX-License-Identifier: Apache-2.0
"""Facts in a log besides steps: network, GPUs, memory, uneven nodes, reasons for an invalid run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from llmb.contract.samples import Node, Samples, Straggler, Telemetry
from llmb.contract.window import Window, batches_in, steps_in
from llmb.core.scan import plain
from llmb.core.values import dataclass
from llmb.measure.fabric import Fabric, fabric_of
from llmb.measure.log_lines import RATE_ROUNDING, ROUNDED
from llmb.measure.uneven import Uneven, busy_clock, slowing_reasons, uneven_nodes

NCCL, NETWORK, NODE, WARNING = "NCCL", "network", "node", "warning"
STRAGGLER = "straggler"
STEPS = "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCause:
    """A ``condition`` that may explain a verdict."""

    condition: str
    value: str
    usual: str  #: the value in other runs or on other nodes
    runs: tuple[str, ...] = ()  #: the runs of the configuration that have the value
    nodes: tuple[str, ...] = ()  #: the nodes that have it, if not all of a run
    text: str = ""  #: the same for people

    def __str__(self) -> str:
        return self.text


SOCKET = "Socket"
PROFILED = "profiled: a profiler costs time"
TRACED = "ran with an NCCL trace, which costs time"
DETECTED = "ran with a straggler detector, which costs time"
ON_CPU = "the log says that it ran on a CPU"
LOSS_NAN = "the loss is not a number"
GRADIENT_NAN = "the gradient norm is not a number"
INCOMPLETE = "the window is not complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The content of a log besides its steps. A field is None or empty if the log omits it."""

    framework: str | None = None
    nccl_version: str | None = None
    networks: tuple[str, ...] = ()  #: as NCCL names them: ``IB``, ``Socket``
    nodes: int | None = None  #: the number of ``hosts`` that logged anything
    peak_memory_bytes: float | None = None  #: of one GPU
    checkpoints: tuple[CheckpointTime, ...] = ()  #: each save and load
    hosts: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()  #: each once
    gpu_models: tuple[str, ...] = ()  #: each once
    max_sm_clock_mhz: float | None = None  #: the board's maximum, the lowest of all GPUs
    sm_clock_mhz: float | None = None  #: the median under load, of the slowest GPU
    #: In words, the reasons for which the clocks of a GPU were low for long. None if unknown.
    slowed_by: tuple[str, ...] | None = None
    ecc_uncorrected: int | None = None  #: new ones of all nodes during the run
    power_limit_w: float | None = None  #: the lowest of all GPUs
    vboost: str | None = None  #: the number of nodes that raised it, and why others did not
    uneven: tuple[Uneven, ...] = ()  #: conditions in which nodes differ
    device: str | None = None  #: ``CPU`` if its ranks found no GPU
    warnings: tuple[str, ...] = ()  #: of llmb's program, each once
    fabric: Fabric | None = None  #: as NCCL and nccl-tests log it
    #: Ranks that a straggler detector warned of, and the slowest of each of its measures.
    stragglers: tuple[Straggler, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node of a run. A field is None if neither the log nor the node's telemetry has it."""

    name: str
    gpus: int | None = None
    gpu: str | None = None  #: its GPUs' model
    driver: str | None = None
    max_sm_clock_mhz: float | None = None  #: the board's maximum, of the lowest GPU
    power_limit_w: float | None = None  #: of the lowest GPU
    telemetry: Telemetry | None = None  #: what was sampled during the run


def node_facts(nodes: Iterable[Node]) -> tuple[NodeFacts, ...]:
    """Return the ``nodes`` of a run, sorted by their names."""
    return tuple(
        NodeFacts(
            name=node.host,
            gpus=node.gpus,
            gpu=node.gpu,
            driver=node.driver,
            max_sm_clock_mhz=node.max_sm_clock_mhz,
            power_limit_w=node.power_limit_w,
            telemetry=node.telemetry,
        )
        for node in sorted(nodes, key=lambda node: node.host)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTime:
    """One ``save`` or ``load`` in seconds, and how many ``ranks`` logged it."""

    kind: str
    iteration: int | None
    ranks: int
    rank0_seconds: float | None
    max_seconds: float | None


def facts_of(samples: Samples, nodes: Sequence[Node] = ()) -> LogFacts:
    """Return the content of a log, with what is known of its ``nodes``."""
    environment = samples.environment
    nodes = nodes or environment.described
    measured = [node.telemetry for node in nodes if node.telemetry is not None]
    clocks = [clock for telemetry in measured if (clock := busy_clock(telemetry))]
    throttles = [item.throttle for item in measured if item.throttle is not None]
    counts = (item.ecc_uncorrected for item in measured)
    errors = [count for count in counts if count is not None]
    slowing = dict.fromkeys(words for shares in throttles for words in slowing_reasons(shares))
    return LogFacts(
        framework=samples.framework,
        nccl_version=environment.nccl_version,
        networks=environment.networks,
        nodes=environment.nodes,
        peak_memory_bytes=samples.peak_memory or environment.peak_memory,
        checkpoints=tuple(
            CheckpointTime(
                kind=event.kind,
                iteration=event.iteration,
                ranks=len(event.ranks),
                rank0_seconds=event.rank0_seconds,
                max_seconds=event.max_seconds,
            )
            for event in samples.checkpoints
        ),
        hosts=tuple(sorted(environment.hosts)),
        drivers=_distinct(node.driver for node in nodes),
        gpu_models=_distinct(node.gpu for node in nodes),
        max_sm_clock_mhz=min(filter(None, (node.max_sm_clock_mhz for node in nodes)), default=None),
        sm_clock_mhz=min(clocks, default=None),
        slowed_by=tuple(slowing) if throttles else None,
        ecc_uncorrected=sum(errors) if errors else None,
        power_limit_w=min(filter(None, (node.power_limit_w for node in nodes)), default=None),
        vboost=environment.vboost,
        uneven=uneven_nodes(nodes),
        device=environment.device,
        warnings=environment.warnings,
        fabric=fabric_of(samples),
        stragglers=environment.stragglers,
    )


def _distinct(words: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({word for word in words if word}))


def invalid_because(
    samples: Samples, window: Window | None, nodes: int | None = None, declared: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the reasons why the measurement is invalid.

    ``nodes`` is the job's number, None if only the log can tell. A loss or gradient that is not a
    number spoils all weights, at any step, and so does an infinite loss that is not before the
    window. A ``declared`` metric spoils only the window, and so does a skipped step: fp16 skips its
    first ones, while it looks for the scale of the loss. NCCL's ``Socket`` between nodes is TCP,
    which is reported to cost a fifth of the throughput.
    """
    reasons = []
    steps = [] if window is None else steps_in(samples, window)
    begin = math.inf if window is None else window.first - samples.first
    if (
        samples.has_nan
        or any(step.fault == "nan" for step in samples.steps)
        or any(math.isinf(step.loss or 0.0) for step in samples.steps if step.iteration >= begin)
    ):
        reasons.append(LOSS_NAN)
    if samples.has_nan_gradient:
        reasons.append(GRADIENT_NAN)
    skipped = [str(step.iteration + samples.first) for step in steps if step.fault == "skipped"]
    if skipped:
        further = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        reasons.append(f"the program skipped iterations of the window ({skipped[0]}{further})")
    rounded = [step.step_time for step in steps if step.fault == ROUNDED]
    if rounded:
        reasons.append(
            f"the step time is uncertain by {100 * RATE_ROUNDING * rounded[0]:.1f} %: the number of"
            " steps follows only from train_steps_per_second, which has three decimals; log the"
            " Trainer's progress bar too"
        )
    if samples.invalid:
        reasons.append(plain(samples.invalid))
    for name in declared:
        if any(math.isnan(step.values.get(name, 0.0)) for step in steps):
            reasons.append(f"{name} is not a number")
    several = max(nodes or 1, samples.environment.nodes or 1) > 1
    if several and any(network.startswith(SOCKET) for network in samples.environment.networks):
        reasons.append("ran over TCP: NCCL logged 'Using network Socket'")
    return tuple(reasons)


def batch_change(samples: Samples, window: Window | None, batch: int | None) -> str:
    """Return why a run whose batch changes has no rates in ``window``, empty if it has.

    ``batch`` is the configuration's, None if unknown.
    """
    if window is None or len(samples.batches) < 2:
        return ""
    batches = batches_in(samples, window)
    if len(batches) > 1:
        sizes = f"{', '.join(map(str, batches[:-1]))} and {batches[-1]}"
        # a line for several steps may have steps of two batches
        changed = next(step for step in samples.steps if step.iteration >= samples.batches[-1][0])
        begin = changed.iteration + (changed.span > 1) + samples.first
        end_of_run = samples.steps[-1].iteration + samples.first
        last = window.last if begin < window.last else end_of_run
        return (
            f"the batch changes in the window {window} ({sizes} samples), so it has no rates:"
            f" measure steps of a single batch, as with --window {begin}-{last}"
        )
    if batches and batch is not None and batches[0] != batch:
        return f"the batch in the window {window} is {batches[0]}, and the configuration's {batch}"
    return ""
