# SPDX-License-Identifier: Apache-2.0
"""What a log contains besides steps: network, GPUs, memory; nodes that differ; what makes a run invalid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from llmb.logs.samples import Node, Samples
from llmb.stats.measure import Window, steps_in

SM_CLOCK, POWER_LIMIT, GPU, DRIVER = "SM clock", "power limit", "GPU", "driver"
NCCL, NETWORK, NODE = "NCCL", "network", "node"
_MOST_HOSTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Nodes of one run whose ``condition`` has another ``value`` than on most nodes, where it is ``usual``.

    ``hosts``: at most 4 of these ``nodes``; ``others``: the number of nodes with the usual value.
    """

    condition: str
    value: str
    usual: str
    hosts: tuple[str, ...]
    nodes: int
    others: int

    @property
    def text(self) -> str:
        """``SM clock 1395 MHz on node0003, 1980 MHz on 7 nodes``."""
        more = f" and {self.nodes - len(self.hosts)} more" if self.nodes > len(self.hosts) else ""
        rest = f"{self.others} nodes" if self.others > 1 else "1 node"
        return f"{self.condition} {self.value} on {', '.join(self.hosts)}{more}, {self.usual} on {rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCause:
    """A ``condition`` that may explain a verdict: it has this ``value``, in other runs or on other nodes ``usual``.

    ``runs``: the runs of the configuration that have it; ``nodes``: the nodes, where not all of a run have it;
    ``text``: the same for people.
    """

    condition: str
    value: str
    usual: str
    runs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    text: str = ""

    def __str__(self) -> str:
        return self.text


def megahertz(value: float | None) -> str:
    """A clock for people; empty where it is unknown."""
    return f"{value:g} MHz" if value else ""


def watts(value: float | None) -> str:
    """A power limit for people; empty where it is unknown."""
    return f"{value:g} W" if value else ""


_OF_NODE: dict[str, Callable[[Node], str]] = {
    SM_CLOCK: lambda node: megahertz(node.max_sm_clock_mhz),
    POWER_LIMIT: lambda node: watts(node.power_limit_w),
    GPU: lambda node: node.gpu or "",
    DRIVER: lambda node: node.driver or "",
}


def uneven_nodes(nodes: Sequence[Node]) -> tuple[Uneven, ...]:
    """Each value of a condition that only some of the ``nodes`` have, the rarest first."""
    return tuple(own for name, value in _OF_NODE.items() for own in _uneven(name, nodes, value))


def _uneven(condition: str, nodes: Sequence[Node], value_of: Callable[[Node], str]) -> Iterator[Uneven]:
    hosts: dict[str, list[str]] = {}
    for host, value in sorted({node.host: value for node in nodes if (value := value_of(node))}.items()):
        hosts.setdefault(value, []).append(host)
    # Usual is the most frequent value, of equally frequent ones the higher.
    *rare, usual = sorted(hosts, key=lambda value: (len(hosts[value]), _rank(value))) or [""]
    for value in rare:
        own = hosts[value]
        yield Uneven(
            condition=condition,
            value=value,
            usual=usual,
            hosts=tuple(own[:_MOST_HOSTS]),
            nodes=len(own),
            others=len(hosts[usual]),
        )


def _rank(value: str) -> tuple[float, str]:
    number = value.split()[0]
    return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, value)


SOCKET = "Socket"
PROFILED = "profiled: a profiler costs time"
TRACED = "ran with an NCCL trace, which costs time"
ON_CPU = "the log says that it ran on a CPU"
LOSS_NAN = "the loss is not a number"
GRADIENT_NAN = "the gradient norm is not a number"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a log says besides its steps; None or empty where it omits it.

    ``networks``: what NCCL uses (``IB``, ``Socket``); ``nodes``: the number of ``hosts`` that logged anything;
    ``drivers`` and ``gpu_models``: each once; ``max_sm_clock_mhz`` and ``power_limit_w``: the lowest of all GPUs;
    ``vboost``: on how many nodes it was raised, and why not on the others; ``peak_memory_bytes`` of one GPU;
    ``checkpoints``: each save and load, in seconds; ``uneven``: in what some of its nodes differ from the others;
    ``device``: ``CPU`` where its ranks found no GPU.
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
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTime:
    """One ``save`` or ``load`` in seconds, and how many ``ranks`` logged it."""

    kind: str
    iteration: int | None
    ranks: int
    rank0_seconds: float | None
    max_seconds: float | None


def facts_of(samples: Samples) -> LogFacts:
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
        device=environment.device,
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
