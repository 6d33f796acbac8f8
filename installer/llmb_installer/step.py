# SPDX-License-Identifier: Apache-2.0
"""The contract of installation steps: a value with an identity, its cost, and how to build it."""

import abc
import contextlib
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from llmb.core import console, files, shell, typed
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb_installer.execution.runner import Runner, end_of, fix_for, full_disk

Facts = dict[str, Any]


class Progress(Protocol):
    """Receives the progress of a step. Each call raises StoppedError once the user interrupted."""

    def total(self, bytes: int) -> None:
        """Set the total of bytes to fetch or write."""

    def advance(self, bytes: int) -> None:
        """Add finished bytes."""

    def say(self, text: str) -> None:
        """Show what the step is doing, in a few words."""


class Lines:
    """Progress as a line on standard error for each stage."""

    def total(self, bytes: int) -> None:
        """Show nothing."""

    def advance(self, bytes: int) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Print a line."""
        console.echo(text, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """The place and means of a build. Nothing in it changes the result.

    ``log`` is the step's own file. ``stop`` is set when the user interrupted.
    """

    install: Path
    environ: Mapping[str, str]
    home: Path
    log: Path
    progress: Progress
    runner: Runner
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Runs the programs of one step, all with the same environment."""

    context: BuildContext
    environ: Mapping[str, str] = field(repr=False)

    def run(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        """Run one program.

        ``on_output`` gets its output, while it runs, in parts. Raises LlmbError with ``name``
        failed, the end of its output, and the fix.
        """
        log = self.context.log
        files.create_text(log, "")  # with the mode of the install directory
        before = log.stat().st_size
        with log.open("rb") as printed_now:
            printed_now.seek(before)

            def tick() -> None:
                if on_output is not None and (part := printed_now.read()):
                    on_output(part)
                self.context.progress.advance(0)  # it is still running

            code = self.context.runner.run(
                argv, log, env=self.environ, cwd=cwd, stop=self.context.stop, tick=tick
            )
            tick()
        if code == 0:
            return
        printed = ""
        with contextlib.suppress(FileNotFoundError), log.open("rb") as stream:
            stream.seek(before)
            printed = end_of(stream.read().decode("utf-8", "replace"))
        ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        fix = full_disk(log.parent, self.environ) or fix_for(printed)
        raise LlmbError(
            f"{name} {ended}:\n{printed}",
            hint=f"{fix}; full output: {log}",
            code="program-failed",
            key=name,
        )

    def read(self, argv: Sequence[str]) -> shell.Completed:
        """Run one program that ends at once, whatever its exit code. Raises StoppedError."""
        return self.context.runner.read(argv, env=self.environ, stop=self.context.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Bytes to fetch and bytes on disk. None if unknown, ``rough`` for guesses.

    A guess is a lower bound: with less space the step is sure to fail.
    """

    fetch: int | None = None
    disk: int | None = None
    rough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallStep(abc.ABC):
    """One thing to install for ``workloads``, built after the steps with the keys ``after``."""

    kind: ClassVar[str]
    workloads: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A name that is unique among the steps of its kind."""

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """Its description in the plan."""

    @property
    @abc.abstractmethod
    def path(self) -> Path | None:
        """The file or folder that it makes, if any."""

    @property
    def key(self) -> str:
        """Its key in the record."""
        return f"{self.kind} {self.name}"

    @property
    def digest(self) -> str:
        """Identifies the content, whichever workloads need it."""
        return digest_of(self)

    def is_whole(self, facts: Facts) -> bool:
        """Return True if no file that it made is missing. Starts no process."""
        return True

    @abc.abstractmethod
    def check(self, context: BuildContext) -> StepCost:
        """Estimate its cost. Changes nothing. Raises LlmbError for what is known to prevent it."""

    @abc.abstractmethod
    def build(self, context: BuildContext) -> Facts:
        """Build it, also over the remains of an earlier attempt.

        Its facts for the record. Raises LlmbError.
        """


def digest_of(step: InstallStep) -> str:
    """The sha256 of a step's kind and fields, without ``workloads`` and ``after``."""
    content = typed.to_data(replace(step, workloads=(), after=()))
    text = f"{step.kind} {json.dumps(content, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()


class StepKind(Protocol):
    """The functions of a module of a kind of step, on the name and facts that the record holds."""

    def is_there(self, name: str, facts: Facts, install: Path) -> bool:
        """Return True if its result exists, by a quick look: no process, no reading of contents."""

    def verify(self, name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
        """Return what is missing or changed. ``deep`` reads all contents. Raises LlmbError."""

    def remove(self, name: str, facts: Facts, install: Path) -> None:
        """Delete its result. Raises LlmbError."""

    def describe(self, name: str, facts: Facts) -> str:
        """Its result in one line."""


def remove_folder(name: str, facts: Facts, install: Path) -> None:
    """Remove the folder of a step that made one: the function ``remove`` of its kind."""
    folder = Path(str(facts.get("folder")))
    if folder.exists():
        shutil.rmtree(folder)


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
