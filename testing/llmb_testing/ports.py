# SPDX-License-Identifier: Apache-2.0
"""TCP ports of loopback that a program listens on later: a job's first rank, or the daemons of a test cluster."""

import contextlib
import random
import socket

from llmb.errors import LlmbError

_PORTS = range(30000, 32700)  # above those of the ranks' meeting points, below the system's own
_TRIES = 50
_NAME = "\0llmb-slurm-{}"  # of an abstract socket, as its first character says


def hold_port() -> socket.socket:
    """A port of loopback, held until the socket is closed: nobody is given it who does not ask for it by number.

    Who does may listen on it meanwhile with SO_REUSEADDR, which torch's store sets, since this socket never listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def number_of(held: socket.socket) -> int:
    """The port that a socket holds."""
    return int(held.getsockname()[1])


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
