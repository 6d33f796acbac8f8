# SPDX-License-Identifier: Apache-2.0
"""Tests of Ctrl-C while a command starts: from our first line on it ends the command, and nothing
is printed.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

COUNT = int(os.environ.get("LLMB_TEST_KILLS", "4"))
# As the script that pip writes, but that it tells when its first line has come.
SCRIPT = """
import os, sys
os.write(1, b"here")
from {module} import main
sys.exit(main())
"""


@pytest.mark.fault("start")
@pytest.mark.parametrize("words", [("--version",), ("jobs", "list", "--install", "nowhere")])
@pytest.mark.parametrize("module", ["llmb.cli.entry", "llmb_installer.entry"])
def test_ctrl_c_at_any_moment_of_a_start_prints_no_traceback(
    module: str, words: tuple[str, ...], tmp_path: Path, seen: Callable[..., None]
) -> None:
    chance = random.Random(f"{module} {words}")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(module=module))
    began = 0.0
    for number in range(COUNT + 1):
        with subprocess.Popen(
            [sys.executable, script, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.read(4) == b"here"
            here = time.monotonic()
            if number:  # the first one tells how long a start takes
                # The few first milliseconds, in which llmb.cli.entry itself is found, are the
                # importing Python's.
                time.sleep(0.005 + chance.uniform(0, began))
                process.send_signal(signal.SIGINT)
            _, printed = process.communicate()
        began = began or time.monotonic() - here
        seen(tried=number > 0, tracebacks=printed.count(b"Traceback"))
        assert b"Traceback" not in printed, printed.decode()
        if number:
            assert process.returncode in (-signal.SIGINT, 130, 0, 1, 2), printed.decode()


def test_a_command_that_runs_hears_ctrl_c_as_its_own(tmp_path: Path) -> None:
    """Before, Ctrl-C ends the process; within, it is an exception that the command handles; after,
    as before.
    """
    code = """
import signal
from llmb.cli import entry
print(signal.getsignal(signal.SIGINT) == signal.SIG_DFL)
entry.begin(lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler))
print(signal.getsignal(signal.SIGINT) == signal.SIG_DFL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3
    unheard = "from llmb.cli import entry\ndef main(): raise KeyboardInterrupt\nentry.begin(main)"
    done = subprocess.run(
        [sys.executable, "-c", unheard], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")
    argv = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 3  # under nohup nobody hears it
