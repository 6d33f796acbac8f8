# SPDX-License-Identifier: Apache-2.0
"""Tests that what was measured stays measured when the plugin that read it is gone, fails or reads
it no more.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord
from llmb.contract.samples import Samples, Step
from llmb.contract.state import FAILED, JobState
from llmb.errors import PluginError
from llmb.measure import summary
from llmb.plugins.loaded import Plugins

Wording = Callable[..., None]

LOG = "".join(f"turn {n} of 49 lasted: {2.5 if n > 9 else 9}\n" for n in range(50))
OWN = ParseSpec(
    needle="lasted", iteration=r"turn (?P<i>\d+) of (?P<last>\d+)", keys={"step_time": "lasted"}
)
WHOLE = Samples(
    steps=tuple(Step(iteration=n, step_time=2.5) for n in range(50)), last=49, attempts=1
)
Parse = Callable[..., ParseSpec | None]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[[Parse], None]:
    """What the plugin answers from now on."""
    return lambda parse: monkeypatch.setattr(Plugins, "parse", parse)


@pytest.fixture
def done(install: Any) -> RunRecord:
    run: RunRecord = install.run("a1", install.job("nemotron4_15b", "bf16", 16), LOG)
    return run


def one(run: Callable[..., Any], *words: object) -> dict[str, Any]:
    (found,) = json.loads(run("results", "--format", "json", *words).stdout)["results"]
    return dict(found)


def fail(*_: object) -> None:
    raise PluginError("plugin x:y failed in llmb_parse: KeyError: 'z'")


@pytest.mark.parametrize("answer", [OWN, ParseSpec(samples=WHOLE)], ids=["a spec", "samples"])
def test_a_plugin_that_is_gone_or_broken_takes_no_figure_with_it(
    answer: ParseSpec,
    done: RunRecord,
    run: Callable[..., Any],
    say: Callable[[Parse], None],
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    say(lambda *_: answer)
    before = one(run)
    assert (before["status"], before["time_mean_seconds"]) == ("Success", pytest.approx(2.5))
    say(fail)
    assert one(run) == before
    say(lambda *_: replace(OWN, needle="no such line"))
    now = one(run)
    assert (now["status"], now["time_mean_seconds"]) == ("Success", pytest.approx(2.5))
    if answer.samples is None:
        wording("results", str(now["reason"]))
    monkeypatch.setattr(Plugins, "workloads", lambda _: {})
    gone = one(run)
    measured = [
        key
        for key in before
        if key.startswith(("time_", "tokens_", "model_", "stat", "window", "mfu"))
    ]
    assert {key: gone[key] for key in measured} == {key: before[key] for key in measured}
    retried = run("jobs", "retry", "--failed")
    assert retried.returncode == 0
    wording("jobs-retry", retried.stderr)
    kept = summary.load(done)
    assert kept is not None
    assert kept.log_reader.spec == answer


@pytest.mark.parametrize("why", ["gone", "fails"])
def test_what_only_its_plugin_could_read_is_unknown_and_not_retried(
    why: str,
    done: RunRecord,
    run: Callable[..., Any],
    say: Callable[[Parse], None],
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    if why == "gone":
        monkeypatch.setattr(Plugins, "workloads", lambda _: {})
    else:
        say(fail)
    found = one(run)
    assert found["status"] == "Unknown"
    wording("results", found["reason"])
    assert run("results").returncode == 1
    wording("results", run("jobs", "retry", "--failed").stderr)
    named = run("jobs", "retry", done.id)
    assert (named.returncode, "nothing was submitted" in named.stdout + named.stderr) == (2, False)


def test_a_run_that_its_scheduler_calls_failed_has_failed_whatever_its_plugin(
    install: Any, run: Callable[..., Any], say: Callable[[Parse], None]
) -> None:
    install.run(
        "a1",
        install.job("nemotron4_15b", "bf16", 16),
        "nothing\n",
        JobState(state=FAILED, exit_code=1),
    )
    say(fail)
    assert one(run)["status"] == "Failed"


@pytest.mark.parametrize(
    "words", [("results",), ("report",), ("compare",), ("compare", "--scaling")], ids=" ".join
)
def test_results_that_cannot_be_read_end_with_1(
    words: tuple[str, ...], done: RunRecord, run: Callable[..., Any], say: Callable[[Parse], None]
) -> None:
    """The exit code of the documentation: 1 where a plugin fails, 3 where a run failed too; 0 if it
    was read before.
    """
    say(fail)
    assert run(*words).returncode == 1
    say(lambda *_: OWN)
    assert run(*words).returncode == 0
    say(fail)
    assert run(*words).returncode == 0


def test_a_failed_run_matters_more_than_a_log_that_cannot_be_read(
    done: RunRecord, install: Any, run: Callable[..., Any], say: Callable[[Parse], None]
) -> None:
    install.run("b2", install.job("nemotron4_15b", "fp8", 16), LOG, JobState(state=FAILED))
    say(fail)
    assert run("results").returncode == 3
    assert run("results", "a1").returncode == 1


def test_a_log_in_another_unit_cannot_be_read(
    done: RunRecord, run: Callable[..., Any], say: Callable[[Parse], None]
) -> None:
    done.log.write_text(LOG.replace("\n", " ms\n"))
    say(lambda *_: replace(OWN, source="x:y"))
    found = run("results", "--format", "json")
    (result,) = json.loads(found.stdout)["results"]
    assert (found.returncode, result["status"]) == (1, "Unknown")
    for word in ("x:y", "step_time", "ms"):
        assert word in result["reason"]
    say(lambda *_: replace(OWN, units={"step_time": "ms"}))
    assert one(run)["time_mean_seconds"] == pytest.approx(2.5e-3)
