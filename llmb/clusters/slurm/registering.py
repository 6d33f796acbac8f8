# SPDX-License-Identifier: Apache-2.0
"""Waits for nodes whose state Slurm does not know yet, as after a restart of its controller."""

import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.partitions import Partition, partitions
from llmb.errors import Fault

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
