# SPDX-License-Identifier: Apache-2.0
"""The contract of installation steps: a value with an identity, its cost, and how to build it."""

import abc
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from llmb.errors import Fault
from llmb.system import console
from llmb.text import typed
from llmb_installer.execution.runner import Runner

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
class Context:
    """Where and how a step is built; nothing in it changes the result.

    ``log`` is the step's own file; ``stop`` is set when the user interrupted.
    """

    install: Path
    environ: Mapping[str, str]
    home: Path
    log: Path
    progress: Progress
    runner: Runner
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes to fetch and bytes on disk; None where unknown, ``rough`` where they are a guess.

    A guess is a lower bound: with less space the step is sure to fail.
    """

    fetch: int | None = None
    disk: int | None = None
    rough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(abc.ABC):
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
        """Whether no file that it made is missing; starts no process."""
        return True

    @abc.abstractmethod
    def check(self, context: Context) -> Estimate:
        """Estimate its cost; changes nothing. Raises LlmbError for what is known to prevent it."""

    @abc.abstractmethod
    def build(self, context: Context) -> Facts:
        """Build it, also over the remains of an earlier attempt; its facts for the record. Raises LlmbError."""


def digest_of(step: Step) -> str:
    """The sha256 of a step's fields except ``workloads`` and ``after``."""
    content = json.dumps(typed.to_data(replace(step, workloads=(), after=())), sort_keys=True)
    return hashlib.sha256(f"{step.kind} {content}".encode()).hexdigest()


class Kind(Protocol):
    """The functions of a module of a kind of step, on the name and facts that the record holds."""

    def is_there(self, name: str, facts: Facts, install: Path) -> bool:
        """Whether its result exists, by a quick look: no process, no reading of contents."""

    def verify(self, name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
        """What is missing or changed; ``deep`` reads all contents. Raises LlmbError."""

    def remove(self, name: str, facts: Facts, install: Path) -> None:
        """Delete its result. Raises LlmbError."""

    def describe(self, name: str, facts: Facts) -> str:
        """Its result in one line."""
