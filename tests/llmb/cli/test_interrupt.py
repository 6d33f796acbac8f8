# SPDX-License-Identifier: Apache-2.0
"""Test of Ctrl-C while plugins are still being loaded: as short an end as in a command, and no
traceback.
"""

import signal
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NoReturn

import click
import pytest

from llmb.cli import app, progress


def test_ctrl_c_before_a_command_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "load", interrupted)
    with pytest.raises(SystemExit) as left:
        app.main(["list"])
    assert (left.value.code, capsys.readouterr().err) == (130, "interrupted\n")


HANGS = """
import sys, time
from llmb.core.parallel import held_interrupts, run_bounded
def work(_):
    print("ready", flush=True)  # in its thread: the main one may be interrupted nowhere within a print of its own
    time.sleep(600)
with held_interrupts(lambda: print("first", flush=True)) as came:
    run_bounded(iter(range(9)), work, lambda _: True, workers=1, stop=came)
"""


def test_a_second_ctrl_c_ends_at_once_also_while_a_submission_hangs() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "first\n"
    assert process.poll() is None  # what is under way is waited for
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)  # the work would take 600 s
    assert err.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(("count", "names"), [(2, " r0 r1"), (6, " --session day --session night")])
def test_the_command_after_stopping_cancels_these_runs_alone(
    count: int, names: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others may have runs in the same install directory, which `--all` would cancel."""
    runs: list[Any] = [
        SimpleNamespace(id=f"r{number}", session=SimpleNamespace(id="night" if number else "day"))
        for number in range(count)
    ]

    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    context: Any = SimpleNamespace(need_cluster=lambda: None, is_called=False)
    show = SimpleNamespace(round=None, retried=None, trouble=None, submitted=None)
    monkeypatch.setattr(progress, "_display", lambda *_: nullcontext(show))
    monkeypatch.setattr(progress, "wait", interrupted)
    with pytest.raises(click.exceptions.Exit):
        progress.follow(context, runs)
    printed = capsys.readouterr().err
    assert f"Watch again: llmb-run jobs wait{names}\n" in printed
    assert f"Cancel: llmb-run jobs cancel{names}\n" in printed
    context.is_called = True  # by a plugin's command, which has a line of its own
    with pytest.raises(click.exceptions.Exit):
        progress.follow(context, runs)
    assert capsys.readouterr().err == ""
