# SPDX-License-Identifier: Apache-2.0
"""What every step of an installation is: a value with an identity, what it costs, and how it is carried out."""

from __future__ import annotations

import abc
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from llmb.errors import Fault
from llmb.text import typed

if TYPE_CHECKING:
    from llmb_installer.execution.runner import Runner

Facts = dict[str, Any]


class Progress(Protocol):
    """Where a step says how far it is. Each call raises StoppedError once the user has interrupted."""

    def total(self, bytes: int) -> None:
        """How many bytes there are to fetch or write altogether."""

    def advance(self, bytes: int) -> None:
        """So many more of them are done."""

    def say(self, text: str) -> None:
        """What it is doing now, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where and how a step is carried out; nothing of it changes what comes out.

    ``log`` is the step's own file; ``stop`` is set when the user has interrupted.
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
    """Bytes to fetch, and bytes it takes on the disk; None where nobody can say, ``rough`` where they are a guess.

    A guess of the disk is on the low side: what does not fit it cannot fit.
    """

    fetch: int | None = None
    disk: int | None = None
    rough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(abc.ABC):
    """One thing to install for ``workloads``, carried out after the steps with the keys ``after``."""

    kind: ClassVar[str]
    workloads: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What names it among the steps of its kind."""

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """What the plan says of it."""

    @property
    @abc.abstractmethod
    def path(self) -> Path | None:
        """What it makes on the disk; None when it makes nothing there."""

    @property
    def key(self) -> str:
        """What names it in the record."""
        return f"{self.kind} {self.name}"

    @property
    def digest(self) -> str:
        """Equal for equal content, whoever needs it."""
        return digest_of(self)

    def is_whole(self, facts: Facts) -> bool:
        """Whether nothing is missing of what it made, by a look at every file; starts no process."""
        return True

    @abc.abstractmethod
    def check(self, context: Context) -> Estimate:
        """What it will cost. Raises LlmbError for what is known beforehand to stand in its way; changes nothing."""

    @abc.abstractmethod
    def build(self, context: Context) -> Facts:
        """Carry it out, also over what an earlier attempt left; its facts for the record. Raises LlmbError."""


def digest_of(step: Step) -> str:
    """The sha256 of all that a step says, but for whom it is and when its turn comes."""
    content = json.dumps(typed.to_data(replace(step, workloads=(), after=())), sort_keys=True)
    return hashlib.sha256(f"{step.kind} {content}".encode()).hexdigest()


class Kind(Protocol):
    """What the module of each kind of step knows of one that the record holds: its name and its facts."""

    def is_there(self, name: str, facts: Facts, install: Path) -> bool:
        """Whether what it made is still there, by a glance: no process, no reading of contents."""

    def verify(self, name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
        """What is missing or changed, without its place; ``deep`` reads all contents. Raises LlmbError."""

    def remove(self, name: str, facts: Facts, install: Path) -> None:
        """Take it away. Raises LlmbError."""

    def describe(self, name: str, facts: Facts) -> str:
        """What it is, in one line."""
