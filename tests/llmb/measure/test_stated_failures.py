# SPDX-License-Identifier: Apache-2.0
"""A plugin that reads logs itself can state that a run failed, or that its values are invalid."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord
from llmb.contract.samples import Samples, Step
from llmb.contract.state import RUNNING
from llmb.errors import KeyFaultError
from llmb.measure import summary
from llmb.plugins import answers
from llmb.plugins.loaded import Plugins

Command = Callable[..., "subprocess.CompletedProcess[str]"]
WHOLE = Samples(
    steps=tuple(Step(iteration=number, step_time=2.746) for number in range(50)), last=49
)
FAILED, WRONG = "3 of 200 requests failed", "2 of 9 message sizes have wrong values"


@pytest.fixture
def done(install: Any) -> RunRecord:
    """A run whose program ended without an error; its log has no line that llmb knows."""
    run: RunRecord = install.run("a1", install.job("nemotron4_15b", "bf16", 16), "done\n")
    return run


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Callable[[Samples], None]:
    """The plugin's answer from now on."""

    def answer(samples: Samples) -> None:
        monkeypatch.setattr(Plugins, "parse", lambda *_: ParseSpec(samples=samples))

    return answer


def one(run: Command) -> tuple[dict[str, Any], int]:
    printed = run("results", "--format", "json")
    (found,) = json.loads(printed.stdout)["results"]
    return dict(found), printed.returncode


@pytest.mark.parametrize("steps", [WHOLE.steps, WHOLE.steps[:20], ()])
def test_a_stated_failure_is_the_status_with_its_reason(
    steps: tuple[Step, ...], done: RunRecord, state: Any, run: Command, monkeypatch: Any
) -> None:
    state(replace(WHOLE, steps=steps, failed=FAILED))
    found, code = one(run)
    assert (found["status"], code) == ("Failed", 3)
    assert FAILED in found["reason"]
    assert (found["verdict"], found["ratio"]) == (None, None)
    assert FAILED in run("explain", "a1").stdout
    monkeypatch.setattr(Plugins, "workloads", lambda _: {})  # its plugin is removed
    kept, _ = one(run)
    assert (kept["status"], kept["reason"]) == (found["status"], found["reason"])
    assert summary.load(done) is not None


def test_stated_invalid_values_are_the_verdict(
    done: RunRecord, state: Any, install: Any, run: Command
) -> None:
    state(replace(WHOLE, invalid=WRONG + "\x1b[31m"))
    found, code = one(run)
    assert (found["status"], found["verdict"], code) == ("Success", "INVALID", 3)
    assert found["invalid"] == [WRONG]
    assert WRONG in found["verdict_reason"]
    assert (found["ratio"], found["repeats"]) == (None, None)


def test_a_run_that_has_not_ended_has_not_failed(install: Any, state: Any, run: Command) -> None:
    install.run("a1", install.job("nemotron4_15b", "bf16", 16), "done\n", RUNNING)
    state(replace(WHOLE, failed=FAILED))
    assert one(run)[0]["status"] in ("Running", "Pending")


def test_neither_is_the_default(done: RunRecord, state: Any, run: Command) -> None:
    state(WHOLE)
    found, code = one(run)
    assert (found["status"], found["verdict"], code) == ("Success", "PASS", 0)


@pytest.mark.parametrize("name", ["failed", "invalid"])
def test_a_reason_is_text(name: str) -> None:
    wrong: dict[str, Any] = {name: True}
    with pytest.raises(KeyFaultError, match=name):
        answers.check_samples(replace(WHOLE, **wrong), ())
