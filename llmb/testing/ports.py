# SPDX-License-Identifier: Apache-2.0
"""TCP ports for programs that listen on them later, as the first rank of a job does."""

import socket


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
