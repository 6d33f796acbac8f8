# SPDX-License-Identifier: Apache-2.0
"""Ports for a cluster's daemons: free ones, claimed so that no other cluster takes them before they are in use."""

import contextlib
import random
import socket

from llmb.errors import LlmbError

_PORTS = range(30000, 32700)  # above those of the ranks' meeting points, below the system's own
_TRIES = 50
_NAME = "\0llmb-slurm-{}"  # of an abstract socket, as its first character says


class Ports:
    """``count`` ports of loopback in a row, from ``first``, that no other cluster of this machine gets until ``close``.

    A daemon listens seconds after its port was chosen, so that two clusters that start at a time could choose the same.
    So each port is claimed by an abstract socket with its number, which the system forgets with the process.
    Raises LlmbError where there are none.
    """

    def __init__(self, count: int) -> None:
        for first in random.SystemRandom().sample(range(_PORTS.start, _PORTS.stop - count), _TRIES):
            self._claims: list[socket.socket] = []
            if all(self._claim(port) and _is_free(port) for port in range(first, first + count)):
                self.first = first
                return
            self.close()
        raise LlmbError(f"no {count} free ports in a row from {_PORTS.start} to {_PORTS.stop}")

    def close(self) -> None:
        """Let others have the ports."""
        while self._claims:
            self._claims.pop().close()

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        self._claims.append(claim)
        with contextlib.suppress(OSError):
            claim.bind(_NAME.format(port))
            return True
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
