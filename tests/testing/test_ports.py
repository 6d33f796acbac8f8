# SPDX-License-Identifier: Apache-2.0
"""Tests that a held port remains free for its program, whenever that listens on it."""

import socket

import pytest

from llmb_testing.ports import hold_port, number_of


def test_no_other_program_gets_a_held_port() -> None:
    with hold_port() as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", number_of(held)))


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0")]
)
def test_its_program_can_listen_on_it(family: socket.AddressFamily, address: str) -> None:
    with hold_port() as held, socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, number_of(held)))
        server.listen()
        with socket.create_connection(("127.0.0.1", number_of(held))) as client:
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
