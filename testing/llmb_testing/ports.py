# SPDX-License-Identifier: Apache-2.0
"""TCP ports of loopback that a program listens on later: a job's first rank, or the daemons of a
test cluster.
"""

import contextlib
import random
import socket

from llmb.errors import LlmbError

# above the ports that ranks use as MASTER_PORT, below those that the system assigns
_PORTS = range(30000, 32700)
_TRIES = 50
_NAME = "\0llmb-slurm-{}"  # the zero byte makes it the name of an abstract socket


def hold_port() -> socket.socket:
    """Reserve a loopback port until the socket is closed: the system gives it to no program that
    asks for any port.

    A program that asks for this number can listen on it with SO_REUSEADDR, as torch's store does,
    because the reserving socket never listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def number_of(held: socket.socket) -> int:
    """Return the port number that a socket holds."""
    return int(held.getsockname()[1])


class Ports:
    """``count`` consecutive loopback ports from ``first`` that no other test cluster gets until
    ``close``.

    A daemon listens seconds after its port was chosen, so two clusters that start together could
    choose the same one. An abstract socket named after the port claims it. The system removes the
    claim when the process ends. Raises LlmbError if no such ports are free.
    """

    def __init__(self, count: int) -> None:
        for first in random.SystemRandom().sample(range(_PORTS.start, _PORTS.stop - count), _TRIES):
            self._claims: list[socket.socket] = []
            if all(self._claim(port) and _is_free(port) for port in range(first, first + count)):
                self.first = first
                return
            self.close()
        raise LlmbError(
            f"ports: no {count} consecutive free ones from {_PORTS.start} to {_PORTS.stop}",
            code="ports-in-use",
        )

    def close(self) -> None:
        """Release the ports."""
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
