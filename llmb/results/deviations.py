# SPDX-License-Identifier: Apache-2.0
"""Where nodes of a run, or runs, differ from the others: what may explain a verdict. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmb.logs.samples import Node

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
        """``SM clock 1395 MHz on node0003, 1980 MHz on the other 7 nodes``."""
        more = f" and {self.nodes - len(self.hosts)} more" if self.nodes > len(self.hosts) else ""
        rest = f"the other {self.others} nodes" if self.others > 1 else "the other node"
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
    """The conditions in which some of the ``nodes`` differ from most of them, the rarest value of each."""
    return tuple(own for name, value in _OF_NODE.items() if (own := _uneven(name, nodes, value)) is not None)


def _uneven(condition: str, nodes: Sequence[Node], value_of: Callable[[Node], str]) -> Uneven | None:
    values = {node.host: value for node in nodes if (value := value_of(node))}
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return None
    (usual, others), (value, number) = counts[0], counts[-1]
    if number == others:  # half of them: neither value is the usual one, the higher is named so
        usual, value = sorted((usual, value), key=_rank, reverse=True)
    hosts = sorted(host for host, own in values.items() if own == value)
    return Uneven(
        condition=condition, value=value, usual=usual, hosts=tuple(hosts[:_MOST_HOSTS]), nodes=number, others=others
    )


def _rank(value: str) -> tuple[float, str]:
    number = value.split()[0]
    return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, value)
