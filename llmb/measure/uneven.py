# SPDX-License-Identifier: Apache-2.0
"""Compare the nodes of one run: their GPUs, and what was measured on each of them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from llmb.contract.samples import Node, Telemetry
from llmb.core.grouping import grouped
from llmb.core.values import dataclass
from llmb.measure import statistics

SM_CLOCK, POWER_LIMIT, GPU, DRIVER = "SM clock", "power limit", "GPU", "driver"
SLOWED, ECC = "slowed by", "uncorrected ECC errors"
# The reasons for lower clocks that cost time, in words.
SLOWING = {
    "hw_thermal": "heat (hardware)",
    "sw_thermal": "heat (driver)",
    "hw_power_brake": "the power brake",
    "hw_slowdown": "the hardware",
    "sw_power_cap": "the power cap",
}
_ANY_HARDWARE, _POWER_CAP = "hw_slowdown", "sw_power_cap"
_MORE_PRECISE = {"hw_thermal", "hw_power_brake"}  # hw_slowdown is set with each of them
LONG = 0.1  # a share of the time
_MORE_CAPPED = 0.25  # the share of the time by which the power cap of a node is longer than usual
CLOCKS_DIFFER = 0.035  # a fraction by which measured clocks of healthy nodes may differ
_LEAST_TO_DEVIATE = 5  # nodes
_MOST_HOSTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Nodes of one run whose ``condition`` has another ``value`` than most nodes have."""

    condition: str
    value: str
    usual: str  #: the value of most nodes
    hosts: tuple[str, ...]  #: at most 4 of these ``nodes``
    nodes: int
    others: int  #: nodes with the usual value

    @property
    def text(self) -> str:
        """``SM clock 1395 MHz under load on node0003 (7 nodes have 1980 MHz)``."""
        further = (
            f" and {self.nodes - len(self.hosts)} more" if self.nodes > len(self.hosts) else ""
        )
        usual_nodes = f"{self.others} nodes have" if self.others > 1 else "1 node has"
        return (
            f"{self.condition} {in_words(self.condition, self.value)} on"
            f" {', '.join(self.hosts)}{further} ({usual_nodes} {self.usual})"
        )


def in_words(condition: str, value: str) -> str:
    """Return a value for people. A clock without a load says nothing."""
    return f"{value} under load" if condition == SM_CLOCK else value


def megahertz(value: float | None) -> str:
    """Return a clock for people, empty if it is unknown."""
    return f"{value:g} MHz" if value else ""


def watts(value: float | None) -> str:
    """Return a power limit for people, empty if it is unknown."""
    return f"{value:g} W" if value else ""


def percent(share: float) -> str:
    """Return a share of the time for people."""
    return f"{100 * share:.0f} %"


_OF_NODE: dict[str, Callable[[Node], str]] = {
    POWER_LIMIT: lambda node: watts(node.power_limit_w),
    GPU: lambda node: node.gpu or "",
    DRIVER: lambda node: node.driver or "",
}


def uneven_nodes(nodes: Sequence[Node]) -> tuple[Uneven, ...]:
    """Return each value of a condition that only some of the ``nodes`` have, the rarest first.

    Measured values come before the values that a node has always.
    """
    constant = (
        uneven for name, value in _OF_NODE.items() for uneven in _uneven(name, nodes, value)
    )
    return (*_low_clocks(nodes), *_slowed(nodes), *_errors(nodes), *constant)


def _uneven(
    condition: str, nodes: Sequence[Node], value_of: Callable[[Node], str]
) -> Iterator[Uneven]:
    values = {node.host: value for node in nodes if (value := value_of(node))}
    hosts = grouped((value, host) for host, value in sorted(values.items()))
    # Usual is the most frequent value, of equally frequent ones the higher.
    *rare, usual = sorted(hosts, key=lambda value: (len(hosts[value]), _rank(value))) or [""]
    for value in rare:
        compared = len(hosts[value]) + len(hosts[usual])
        yield _measured(condition, value, usual, hosts[value], compared)


def _rank(value: str) -> tuple[float, str]:
    number = value.split()[0]
    return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, value)


def _low_clocks(nodes: Sequence[Node]) -> Iterator[Uneven]:
    """Yield the nodes whose clock under load is far below that of most nodes.

    It is the rule for single steps, with a higher floor: clocks of healthy GPUs at their power
    limit differ by some percent. Few nodes do not tell how much they deviate.
    """
    clocks = {node.host: clock for node in nodes if (clock := busy_clock(node.telemetry))}
    if len(clocks) < 2:
        return
    usual = upper_median(clocks.values())
    limit = CLOCKS_DIFFER * usual
    if len(clocks) >= _LEAST_TO_DEVIATE:
        deviation = statistics.usual_deviation([clock - usual for clock in clocks.values()])
        limit = max(limit, statistics.OUTLIER_DEVIATIONS * deviation)
    low = {host: clock for host, clock in clocks.items() if clock < usual - limit}
    hosts = sorted(low, key=lambda host: (low[host], host))
    if hosts:
        yield _measured(SM_CLOCK, megahertz(low[hosts[0]]), megahertz(usual), hosts, len(clocks))


def _slowed(nodes: Sequence[Node]) -> Iterator[Uneven]:
    """Yield the nodes whose clocks were lowered for a reason that most nodes do not have.

    A power cap is what training does to a GPU, so only the difference between nodes tells.
    """
    shares = {
        node.host: node.telemetry.throttle
        for node in nodes
        if node.telemetry is not None and node.telemetry.throttle is not None
    }
    if len(shares) < 2:
        return
    for reason, words in SLOWING.items():
        parts = {host: throttle.get(reason, 0.0) for host, throttle in shares.items()}
        usual = _lower_median(parts.values())
        hosts = [
            host
            for host, part in parts.items()
            if part >= usual + (_MORE_CAPPED if reason == _POWER_CAP else LONG)
            and not (reason == _ANY_HARDWARE and _MORE_PRECISE & shares[host].keys())
        ]
        hosts.sort(key=lambda host: (-parts[host], host))
        if hosts:
            value = f"{words} {percent(parts[hosts[0]])} of the time"
            yield _measured(SLOWED, value, percent(usual), hosts, len(parts))


def _errors(nodes: Sequence[Node]) -> Iterator[Uneven]:
    """Yield the nodes with new ECC errors that could not be corrected."""
    counts = {
        node.host: node.telemetry.ecc_uncorrected
        for node in nodes
        if node.telemetry is not None and node.telemetry.ecc_uncorrected is not None
    }
    hosts = sorted((host for host in counts if counts[host]), key=lambda host: -counts[host])
    if 0 < len(hosts) < len(counts):
        yield _measured(ECC, str(counts[hosts[0]]), "0", hosts, len(counts))


def _measured(
    condition: str, value: str, usual: str, hosts: Sequence[str], measured: int
) -> Uneven:
    """Return one value for all ``hosts`` that differ, that of the first, which is the worst.

    ``measured``: how many hosts are compared, these included.
    """
    return Uneven(
        condition=condition,
        value=value,
        usual=usual,
        hosts=tuple(hosts[:_MOST_HOSTS]),
        nodes=len(hosts),
        others=measured - len(hosts),
    )


def upper_median(values: Iterable[float]) -> float:
    """Return the median, of two the higher one."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _lower_median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def busy_clock(telemetry: Telemetry | None) -> float | None:
    """Return the median of the SM clock in MHz under load, None if it was not sampled."""
    clock = None if telemetry is None else telemetry.sm_clock_mhz
    return None if clock is None else clock.median


def slowing_reasons(throttle: Mapping[str, float]) -> tuple[str, ...]:
    """Return, in words, for what the clocks were low for long.

    A power cap is no reason: a GPU that trains reaches its power limit.
    """
    return tuple(
        words
        for name, words in SLOWING.items()
        if throttle.get(name, 0.0) >= LONG
        and name != _POWER_CAP
        and not (name == _ANY_HARDWARE and _MORE_PRECISE & throttle.keys())
    )
