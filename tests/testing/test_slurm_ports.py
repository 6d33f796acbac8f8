# SPDX-License-Identifier: Apache-2.0
"""Tests that two test clusters which start at the same time never choose the same ports."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from llmb.errors import LlmbError
from llmb_testing import ports
from llmb_testing.ports import Ports


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[range]:
    """Few ports to choose from: at most two groups of three."""
    first = Ports(8)  # claimed under another name, so that no other process takes them
    monkeypatch.setattr(ports, "_PORTS", range(first.first, first.first + 8))
    monkeypatch.setattr(ports, "_TRIES", 5)
    monkeypatch.setattr(ports, "_NAME", "\0llmb-test-{}")
    yield ports._PORTS
    first.close()


def rows() -> Iterator[Ports]:
    with contextlib.suppress(LlmbError):
        while True:
            yield Ports(3)


def test_no_port_is_given_twice_before_anybody_listens(few: range) -> None:
    held = [*rows()]
    given = [port for one in held for port in range(one.first, one.first + 3)]
    assert 3 <= len(given) == len({*given}) <= 6
    assert {*given} <= {*few}
    for one in held:
        one.close()
    again = Ports(3)
    assert again.first in few
    again.close()


def test_a_port_that_another_program_listens_on_is_not_given(few: range) -> None:
    with socket.socket() as other:
        # the port is free while the system still remembers a connection that ended
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", few[4]))
        other.listen()
        held = [*rows()]
        assert all(few[4] not in range(one.first, one.first + 3) for one in held)
        assert held
    for one in held:
        one.close()
