# SPDX-License-Identifier: Apache-2.0
"""Tests of waiting for nodes of unknown state, with rows as sinfo has printed them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.builtin.slurm.commands import Client
from llmb.builtin.slurm.partitions import NodeWait, read, unknown_nodes

ROW = "gpu*|up|infinite|1-infinite|2|{}|gpu:h100:8|n[1-2]|none"
OTHER = "cpu|up|infinite|1-infinite|1|unknown|(null)|c1|none"
NEW = f"{ROW.format('unknown')}\n{OTHER}"


@pytest.mark.parametrize("state", ["unknown", "unknown*"])
def test_unknown_nodes_of_a_partition_are_in_service(state: str) -> None:
    """A fault that they are out of service would be believed too soon."""
    found = read(ROW.format(state))
    assert [nodes.in_service for nodes in found["gpu"].nodes] == [True]
    assert unknown_nodes(found, ["gpu", "nowhere"]) == "n[1-2]"


def test_the_wait_ends_once_the_nodes_asked_for_are_known(
    tmp_path: Path, wording: Callable[..., None]
) -> None:
    """Those of other partitions are not waited for; the time it took is gone for the rest of the
    command.
    """
    answers = tmp_path / "answers"
    answers.mkdir()
    for number, state in enumerate(["unknown", "unknown*", "idle"]):
        (answers / str(number)).write_text(f"{ROW.format(state)}\n{OTHER}\n")
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f'#!/bin/sh\ncd {answers} && set -- * && cat "$1" && rm "$1"\n')
    sinfo.chmod(0o755)
    announced: list[str] = []
    patience = NodeWait(announce=announced.append, pause=0.01, left=100)
    found = patience.wait(Client(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}), read(NEW), ["gpu"])
    assert [nodes.state for nodes in found["gpu"].nodes] == ["idle"]
    assert [*answers.iterdir()] == []
    (note,) = announced
    wording("submit-all", note)
    assert patience.left < 100


def test_nothing_is_asked_when_no_time_is_left() -> None:
    patience = NodeWait(announce=pytest.fail, left=0)
    found = read(NEW)
    assert patience.wait(Client(environ={"PATH": "/nowhere"}), found, ["gpu"]) is found


def test_known_nodes_are_not_waited_for() -> None:
    found = read(ROW.format("idle"))
    assert (
        NodeWait(announce=pytest.fail).wait(Client(environ={"PATH": "/nowhere"}), found, ["gpu"])
        is found
    )
