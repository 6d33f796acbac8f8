# SPDX-License-Identifier: Apache-2.0
"""The partitions of a cluster with their nodes and GPUs, as one call of sinfo tells them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmb.clusters.slurm.client import Client

_FORMAT = "%P|%a|%l|%s|%D|%T|%G|%N|%E"
# In service, or soon by itself: unknown are all nodes of a controller that has just started.
_IN_SERVICE = frozenset(
    {"allocated", "blocked", "completing", "idle", "maint", "mixed", "planned", "powered_down", "powering_down",
     "powering_up", "reserved", "reboot_issued", "reboot_requested", "unknown"}
)  # fmt: skip
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
        """Whether jobs start on them, now or when other jobs have ended."""
        not_answering = self.state.endswith("*")
        return self.state.rstrip("*~#!%$@^+-") in _IN_SERVICE and not not_answering

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
                name=name, is_default=shown.endswith("*"), available=available, time_limit=seconds(limit),
                max_nodes=_most(size), nodes=[],
            ),
        )  # fmt: skip
        gpus: dict[str, int] = {}
        for kind, number in _GPUS.findall(gres):
            gpus[kind] = gpus.get(kind, 0) + int(number)
        partition.nodes.append(Nodes(count=int(count), names=names, state=state, gpus=gpus, reason=reason))
    return found


def seconds(limit: str) -> int | None:
    """A time limit in seconds, in any form that Slurm takes: ``30``, ``30:00``, ``2:00:00``, ``1-12``, ``1-12:30:00``.

    None for one without end, or of no such form.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit, re.ASCII)
    if match is None:
        return None
    days, *rest = match.groups()
    given = [int(part) for part in rest if part is not None]
    if days is not None or len(given) == 3:  # hours come first
        hours, minutes, left = [*given, 0, 0][:3]
    else:
        hours, minutes, left = 0, *[*given, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + left


def _most(size: str) -> int | None:
    last = size.rpartition("-")[2]
    return int(last) if last.isdecimal() else None
