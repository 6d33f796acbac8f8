# SPDX-License-Identifier: Apache-2.0
"""Runs of different software are no repeats, and what differs between them is listed."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import pytest

from llmb.contract import record
from llmb.contract.record import RunRecord
from llmb.contract.software import Software

Command = Callable[..., "subprocess.CompletedProcess[str]"]
OLD = Software(
    plugin="llmb-nemotron4:nemotron4",
    plugin_version="1.0",
    program_sha256="a" * 64,
    image_digest="sha256:" + "b" * 64,
    environment_lock="c" * 64,
    framework="nemo",
)


class HandMade(Protocol):
    """The fixture of conftest.py."""

    def measured(self, run_id: str, seconds: float, *where: Any, **how: Any) -> RunRecord: ...


@pytest.fixture
def write(install: HandMade) -> Callable[[str, Software | None], None]:
    """Writes a run with this software in its record."""

    def run(run_id: str, software: Software | None) -> None:
        made = install.measured(run_id, 2.746)
        record.save(replace(made, software=software))

    return run


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"plugin_version": "1.1"}, "plugin_version 1.0, not 1.1"),
    ({"plugin": "other:nemotron4"}, "plugin llmb-nemotron4:nemotron4, not other:nemotron4"),
    ({"program_sha256": "d" * 64}, f"program_sha256 {'a' * 19}, not {'d' * 19}"),
    (
        {"image_digest": "sha256:" + "d" * 64},
        f"image_digest sha256:{'b' * 12}, not sha256:{'d' * 12}",
    ),
    ({"environment_lock": None}, f"environment_lock {'c' * 19}, unset in the reference"),
]


@pytest.mark.parametrize(("change", "differs"), CHANGES)
def test_other_software_is_no_repeat_and_is_listed(
    change: dict[str, Any], differs: str, write: Any, run: Command
) -> None:
    write("a1", OLD)
    write("a2", OLD)
    write("b1", replace(OLD, **change))
    write("n1", None)
    results = json.loads(run("results", "--format", "json").stdout)["results"]
    repeats = {row["run"]: row["repeats"] for row in results}
    assert repeats == {"a1": 2, "a2": 2, "b1": 1, "n1": 1}
    by_run = {row["run"]: row["configuration"]["software"] for row in results}
    assert by_run["n1"] is None
    assert by_run["a1"]["plugin_version"] == "1.0"
    (row,) = json.loads(run("compare", "a1", "b1", "--format", "json").stdout)["comparisons"]
    assert row["differences"] == [differs]
    assert row["ratio"] == 1.0
    (row,) = json.loads(run("compare", "a1", "n1", "--format", "json").stdout)["comparisons"]
    assert row["differences"] == []
