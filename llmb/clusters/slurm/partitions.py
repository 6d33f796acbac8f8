# SPDX-License-Identifier: Apache-2.0
"""The partitions of a cluster with their nodes and GPUs, as one call of sinfo tells them."""

import re
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from llmb.clusters.slurm.commands import Client
from llmb.config.slurm import seconds
from llmb.errors import Fault, LlmbError
from llmb.logs.scan import plain

_FORMAT = "%P|%a|%l|%s|%D|%T|%G|%N|%E"
# In service, or soon by itself.
_IN_SERVICE = frozenset(
    {
        "allocated",
        "blocked",
        "completing",
        "idle",
        "maint",
        "mixed",
        "planned",
        "powered_down",
        "powering_down",
        "powering_up",
        "reserved",
        "reboot_issued",
        "reboot_requested",
    }
)
_GPUS = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)(?=[,(]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes of one kind and state: how many, their names, GPUs of each by type, and why they are out of service."""

    count: int
    names: str
    state: str
    gpus: dict[str, int]
    reason: str

    @property
    def in_service(self) -> bool:
        """Whether jobs start on them, now, when other jobs have ended, or when the controller has heard of them."""
        not_answering = self.state.endswith("*")
        return self.is_unknown or (self._base in _IN_SERVICE and not not_answering)

    @property
    def is_unknown(self) -> bool:
        """Whether the controller has not heard of them since it started, and so does not know their state."""
        return self._base == "unknown"

    @property
    def _base(self) -> str:
        return self.state.rstrip("*~#!%$@^+-")

    def gpus_of(self, wanted: str | None) -> int:
        """The GPUs of the type ``wanted`` on each, of all types where None."""
        return sum(self.gpus.values()) if wanted is None else self.gpus.get(wanted, 0)


@dataclass(slots=True, kw_only=True)
class Partition:
    """A partition; ``time_limit`` in seconds and ``max_nodes`` of one job, None without a limit."""

    name: str
    is_default: bool
    available: str
    time_limit: int | None
    max_nodes: int | None
    nodes: list[Nodes]


def partitions(client: Client) -> dict[str, Partition]:
    """Every partition by its name. Raises LlmbError, SilentError."""
    return read(client.ask(["sinfo", "--noheader", "--all", f"--format={_FORMAT}"]))


def read(text: str) -> dict[str, Partition]:
    """The partitions in sinfo's answer."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        fields = line.split("|", 8)
        if len(fields) != 9:
            continue
        shown, available, limit, size, count, state, gres, names, reason = fields
        name = shown.rstrip("*")
        partition = found.setdefault(
            name,
            Partition(
                name=name,
                is_default=shown.endswith("*"),
                available=available,
                time_limit=seconds(limit),
                max_nodes=_most(size),
                nodes=[],
            ),
        )
        gpus: dict[str, int] = {}
        try:
            for kind, number in _GPUS.findall(gres):
                gpus[kind] = gpus.get(kind, 0) + int(number)
            nodes = Nodes(count=int(count), names=names, state=state, gpus=gpus, reason=reason)
        except ValueError as error:
            hint = "see what it prints: sinfo --all; a wrapper of the site may have changed it"
            raise LlmbError(f"the answer of sinfo is not understood: {plain(line)}", hint=hint) from error
        partition.nodes.append(nodes)
    return found


def _most(size: str) -> int | None:
    last = size.rpartition("-")[2]
    return int(last) if last.isdecimal() else None


SECONDS = 60.0


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True, kw_only=True)
class Registering:
    """Waits for nodes to register, ``left`` seconds at most in one command, and asks Slurm each ``pause`` seconds.

    ``announce`` prints that it waits.
    """

    left: float = SECONDS
    pause: float = 1.0
    announce: Callable[[str], None] = _print

    def wait(self, client: Client, found: Mapping[str, Partition], names: Collection[str]) -> Mapping[str, Partition]:
        """The partitions once Slurm knows all nodes of ``names``, or when no time is left. Raises LlmbError."""
        unknown = unknown_nodes(found, names)
        if unknown and self.left > 0:
            self.announce(f"note: waiting up to {self.left:.0f} s until Slurm knows the state of nodes {unknown}")
        while unknown and self.left > 0:
            start = time.monotonic()
            time.sleep(min(self.pause, self.left))
            found = partitions(client)
            unknown = unknown_nodes(found, names)
            self.left -= time.monotonic() - start
        return found


def unknown_nodes(found: Mapping[str, Partition], names: Collection[str]) -> str:
    """The nodes of unknown state in the partitions ``names``, as Slurm writes them; empty where there are none."""
    shown = [nodes.names for name in names if name in found for nodes in found[name].nodes if nodes.is_unknown]
    return ",".join(dict.fromkeys(shown))


def fault(unknown: str) -> Fault:
    """What to report when the wait was in vain."""
    return Fault(
        message=f"Slurm does not know the state of nodes {unknown} yet",
        hint="its controller may have just started: try again later; --no-preflight submits all the same",
    )
