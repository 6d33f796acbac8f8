# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a real terminal for the questions, and a real Slurm to detect."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from llmb_testing.slurm import Shape, SlurmKit, missing_packages

# Only the questions: the answers are written to a file, and nothing is fetched.
_TALK = """\
import os, sys
import click
from pathlib import Path
from llmb.builtin.plugins import builtin_plugins
from llmb.errors import LlmbError, describe
from llmb.plugins.loader import load_plugins
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import to_yaml
from llmb_installer.detect.detected import detect
from llmb_installer.gather import read_layers
from llmb_installer.wizard.conversation import ask

plugins = load_plugins(builtin_plugins())
file = Path(sys.argv[1]) if len(sys.argv) > 1 else None

def show(document):
    if document.data.get("cluster_name") == "impossible":
        raise LlmbError("this cannot be installed", hint="choose another name")
    print("THE PLAN")

try:
    asked = ask(read_layers(file), detect(os.environ, Path.cwd()), plugins, show, os.environ)
except LlmbError as error:
    sys.exit(describe(error))
except click.exceptions.Exit as end:
    sys.exit(end.exit_code)
Path("answers.yaml").write_text(to_yaml(read_answers(asked.document, workloads=plugins.workloads())))
print("AGREED", asked.action, *asked.workloads)
"""
ENTER, DOWN = "\r", "\x1b[B"
# The line under the cursor to its end, behind which comes a code of the terminal: a part of it may
# arrive first.
_POINTED = r"» (?:\x1b\[[\d;]*[mC])*([^\r\n\x1b]+)[\r\n\x1b]"


class Terminal:
    """A program in a terminal, with a user who waits for texts and presses keys."""

    def __init__(
        self, argv: list[str], environ: dict[str, str], folder: Path, columns: int
    ) -> None:
        self.child = pexpect.spawn(
            argv[0],
            argv[1:],
            env=environ,
            cwd=str(folder),
            encoding="utf-8",
            timeout=200,
            dimensions=(60, columns),
        )
        self.folder = folder

    def reads(self, text: str, *keys: str) -> Terminal:
        """Wait for ``text``, then press ``keys``."""
        self.child.expect_exact(text)
        for key in keys:
            self.child.send(key)
        return self

    def chooses(self, text: str, choice: str) -> Terminal:
        """Wait for the question ``text`` and its list, move to the line with ``choice``, and press
        Enter.
        """
        self.child.expect_exact(text)
        for _ in range(40):
            self.child.expect(_POINTED)
            shown = self.child.match
            assert isinstance(shown, re.Match)
            if choice in shown[1]:
                self.child.send(ENTER)
                return self
            self.child.send(DOWN)
        raise AssertionError(f"there is no choice {choice}")

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert self.child.exitstatus is not None, (
            f"signal {self.child.signalstatus} ended it: {self.child.before}"
        )
        return self.child.exitstatus


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path, home: Path) -> Iterator[Open]:
    """Opens terminals in an empty folder; ``columns`` is their width, other keywords are
    variables.
    """
    opened: list[Terminal] = []
    folder = tmp_path / "work"
    folder.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])

    def open_terminal(*argv: str | Path, **variables: str) -> Terminal:
        # Without it, keys that are typed before the terminal answers a query of prompt_toolkit are
        # lost.
        columns = int(variables.pop("columns", "220"))
        environ = {
            "PATH": path,
            "HOME": str(home),
            "TERM": "xterm",
            "NO_COLOR": "1",  # tests compare words
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **variables,
        }
        opened.append(Terminal([str(word) for word in argv], environ, folder, columns))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.child.close(force=True)


@pytest.fixture
def talk(terminal: Open, tmp_path: Path) -> Open:
    """Starts only the questions, with an answers file if given."""
    script = tmp_path / "talk.py"
    script.write_text(_TALK)

    def begin(*files: Path, **variables: str) -> Terminal:
        return terminal(sys.executable, script, *files, **variables)

    return begin


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmKit]:
    """Two nodes with accounting."""
    if missing := missing_packages(accounting=True):
        pytest.skip(
            f"no real Slurm here: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    with SlurmKit(Shape(nodes=2)) as kit:
        kit.run("sacctmgr", "--immediate", "add", "account", "second")
        kit.run("sacctmgr", "--immediate", "add", "user", kit.location.user, "account=second")
        yield kit
