# SPDX-License-Identifier: Apache-2.0
"""An install directory of the cluster type ``local`` for CPUs, and llmb-run on it, within the
test's process.
"""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

from llmb.cli import app, commands
from llmb.core import files
from llmb_testing.contract_support import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended: its exit code and what it printed."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``folder``: the install directory, which the variable LLMB_INSTALL must name."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Machine":
        """An empty install directory in ``folder``, which can run programs that need no
        environment.
        """
        files.write_text(
            folder / "cluster_config.yaml",
            "schema_version: 2\ncluster_type: local\ngpu_type: cpu\n",
        )
        return cls(folder=folder)

    def run(self, *words: object, plugin: str) -> Done:
        """Run ``llmb-run WORDS`` with the plugin whose package is ``plugin``, and llmb's own."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.run([str(word) for word in words], load(plugin, ("commands", commands)))
        return Done(code=code, stdout=out.getvalue(), stderr=err.getvalue())
