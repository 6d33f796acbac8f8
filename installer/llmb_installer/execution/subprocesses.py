# SPDX-License-Identifier: Apache-2.0
"""Calls the programs of one step, their output in its log, and says of one that fails what it said and the fix."""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from llmb.errors import LlmbError
from llmb.system.shell import Completed
from llmb_installer.execution.fixes import end_of, fix_for, full_disk
from llmb_installer.execution.runner import Runner


class Place(Protocol):
    """The part of a step's Context that its programs need."""

    @property
    def log(self) -> Path:
        """Where their output goes."""

    @property
    def runner(self) -> Runner:
        """Where they run."""

    @property
    def stop(self) -> threading.Event:
        """Set when the user has interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The programs of one step, with the environment that they all have."""

    context: Place
    environ: Mapping[str, str] = field(repr=False)

    def run(self, what: str, argv: Sequence[str], *, cwd: Path | None = None) -> None:
        """Run one program. Raises LlmbError with ``what`` it was, the end of its output, and a fix."""
        log = self.context.log
        before = log.stat().st_size if log.exists() else 0
        code = self.context.runner.run(argv, log, env=self.environ, cwd=cwd, stop=self.context.stop)
        if code == 0:
            return
        told = ""
        with contextlib.suppress(FileNotFoundError), log.open("rb") as stream:
            stream.seek(before)
            told = end_of(stream.read().decode("utf-8", "replace"))
        ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        fix = full_disk(log.parent, self.environ) or fix_for(told)
        raise LlmbError(f"{what} {ended}:\n{told}", hint=f"{fix}; all of its output: {log}")

    def read(self, argv: Sequence[str]) -> Completed:
        """Run one program that answers at once, whatever its exit code."""
        return self.context.runner.read(argv, env=self.environ)
