# SPDX-License-Identifier: Apache-2.0
"""The partitions of a cluster with their nodes and GPUs, as one call of sinfo tells them."""

import re
from dataclasses import dataclass

from llmb.clusters.slurm.commands import Client
from llmb.config.slurm import seconds
from llmb.errors import LlmbError
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
