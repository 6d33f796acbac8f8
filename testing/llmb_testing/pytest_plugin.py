# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin of llmb-testing: runs the contract tests case by case, and lends an install
directory.

pytest loads it in every project of this environment, so it imports nothing of llmb before it is
used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llmb_testing.machine import Machine


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case of a contract: its class method ``llmb_cases`` lists them."""
    cases = getattr(metafunc.cls, "llmb_cases", None)
    if cases is not None and "llmb_case" in metafunc.fixturenames:
        metafunc.parametrize("llmb_case", cases(), ids=str)


@pytest.fixture
def llmb_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """An install directory of the cluster type ``local`` for CPUs, and llmb-run on it."""
    from llmb_testing.machine import Machine

    folder = tmp_path / "install"
    monkeypatch.setenv("LLMB_INSTALL", str(folder))
    monkeypatch.setenv("LLMB_STATE_DIR", str(tmp_path / "state"))  # a queue of its own
    return Machine.create(folder)
