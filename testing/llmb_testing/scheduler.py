# SPDX-License-Identifier: Apache-2.0
"""A scheduler in a folder, for tests: takes jobs from several processes at once, and forgets and refuses as told.

It keeps every job that it was ever given, also a second one of the same name, as a real scheduler does: so a test sees
what was submitted twice. What it does is a Behaviour, a file that a test may rewrite at any time:

    scheduler = Scheduler(tmp_path)
    scheduler.behave(script={"*": ("PENDING", "NODE_FAIL"), "*-2": ("RUNNING", "COMPLETED")})
"""

import fnmatch
import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path

from llmb.errors import LlmbError
from llmb.runs.state import CANCELLED, COMPLETED, ENDS, PENDING, RUNNING
from llmb.system import files
from llmb.text import typed, yamlfile

GOOD = (PENDING, RUNNING, COMPLETED)
_JOBS, _BEHAVIOUR = "jobs", "behaviour.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What the scheduler does; patterns are fnmatch's, on names of jobs.

    ``script``: the states that jobs go through, one further with each query that names them, the last for ever; the
    longest pattern that fits counts, without one GOOD. ``refuse``: jobs that are not taken. ``silent``: jobs that are
    taken and whose submission gets no answer. ``down``: nothing is answered. ``before`` and ``after``, seconds: how
    long a submission takes until the job is there, and from then to the answer.
    """

    script: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refuse: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    down: bool = False
    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeJob:
    """A job that was taken: its number and name, where it writes, and its state."""

    number: int
    name: str
    folder: str
    states: tuple[str, ...]
    cancelled: bool = False

    @property
    def state(self) -> str:
        """The state now."""
        return CANCELLED if self.cancelled else self.states[0]


class DownError(LlmbError):
    """The scheduler does not answer."""


class SilentError(LlmbError):
    """The scheduler has taken the job and its answer was lost."""


class Scheduler:
    """The scheduler in ``folder``; any number of objects and processes may stand for the same one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def behave(self, behaviour: Behaviour) -> None:
        """Do as ``behaviour`` says from now on."""
        files.write_json(self.folder / _BEHAVIOUR, typed.to_data(behaviour))

    @property
    def behaviour(self) -> Behaviour:
        """What it does now."""
        path = self.folder / _BEHAVIOUR
        data = files.read_json(path)
        return typed.read(Behaviour, yamlfile.Document(name=str(path), data=data)) if data is not None else Behaviour()

    def submit(self, name: str, folder: Path) -> int:
        """Take a job; its number. Raises LlmbError for one it refuses, DownError, SilentError."""
        does = self._answering()
        if _fits(name, does.refuse):
            raise LlmbError(f"{name} is refused")
        time.sleep(does.before)
        job = self._add(name, folder, does)
        time.sleep(does.after)
        if _fits(name, does.silent):
            raise SilentError("no answer came")
        return job.number

    def jobs(self) -> list[FakeJob]:
        """Every job that was ever taken, by number. For tests: it answers also when it is down."""
        numbers = sorted(int(path.stem) for path in (self.folder / _JOBS).glob("[0-9]*.json"))
        return [self._read(number) for number in numbers]

    def query(self, numbers: list[int]) -> dict[int, FakeJob]:
        """These jobs as they are now; each is one state further for the next query. Raises DownError."""
        self._answering()
        found = {number: self._read(number) for number in numbers if self._path(number).exists()}
        for job in found.values():
            if len(job.states) > 1:
                self._write(job, states=job.states[1:])
        return found

    def find(self, name: str) -> int | None:
        """The number of the newest job of this name, None when there is none. Raises DownError."""
        self._answering()
        return next((job.number for job in reversed(self.jobs()) if job.name == name), None)

    def cancel(self, number: int) -> None:
        """End a job that has not ended. Raises DownError."""
        self._answering()
        job = self._read(number)
        if job.state not in ENDS:
            self._write(job, cancelled=True)

    def _answering(self) -> Behaviour:
        does = self.behaviour
        if does.down:
            raise DownError("the scheduler does not answer", hint="try again")
        return does

    def _add(self, name: str, folder: Path, does: Behaviour) -> FakeJob:
        fitting = sorted((pattern for pattern in does.script if fnmatch.fnmatch(name, pattern)), key=len)
        states = does.script[fitting[-1]] if fitting else GOOD
        for number in itertools.count(len(list((self.folder / _JOBS).glob("[0-9]*.json"))) + 1):
            job = FakeJob(number=number, name=name, folder=str(folder), states=states)
            if files.create_text(self._path(number), files.to_json(typed.to_data(job))):
                return job
        raise AssertionError("numbers do not end")

    def _path(self, number: int) -> Path:
        return self.folder / _JOBS / f"{number}.json"

    def _read(self, number: int) -> FakeJob:
        path = self._path(number)
        return typed.read(FakeJob, yamlfile.Document(name=str(path), data=files.read_json(path)))

    def _write(self, job: FakeJob, *, states: tuple[str, ...] | None = None, cancelled: bool = False) -> None:
        changed = FakeJob(
            number=job.number, name=job.name, folder=job.folder, states=states or job.states, cancelled=cancelled
        )
        files.write_json(self._path(job.number), typed.to_data(changed))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
