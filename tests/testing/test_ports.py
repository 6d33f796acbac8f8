# SPDX-License-Identifier: Apache-2.0
"""A port that is held is its program's alone, whenever that comes to listen on it."""

import socket

import pytest

from llmb_testing.ports import hold_port, number_of


def test_nobody_else_takes_a_port_that_is_held() -> None:
    with hold_port() as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", number_of(held)))


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0")])
def test_its_program_listens_on_it_meanwhile(family: socket.AddressFamily, address: str) -> None:
    with hold_port() as held, socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, number_of(held)))
        server.listen()
        with socket.create_connection(("127.0.0.1", number_of(held))) as client:
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
