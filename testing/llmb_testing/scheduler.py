# SPDX-License-Identifier: Apache-2.0
"""A scheduler for tests whose state is a folder: several processes can use it at once, and it can
refuse and fail.

It keeps every job it ever took, including a second one of the same name, as a real scheduler does,
so a test sees duplicate submissions. A test sets what it does, at any time, with a Behaviour:

    scheduler = Scheduler(tmp_path)
    scheduler.behave(Behaviour(script={"*": ("PENDING", "NODE_FAIL"), "*-2": ("RUNNING", "COMPLETED")}))
"""

import fnmatch
import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path

from llmb.contract.state import CANCELLED, COMPLETED, ENDS, PENDING, RUNNING
from llmb.core import files, locks, typed, yamlfile
from llmb.errors import LlmbError

GOOD = (PENDING, RUNNING, COMPLETED)
_PATIENCE = 30.0  # seconds for another submission
_JOBS, _BEHAVIOUR = "jobs", "behaviour.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The behaviour of a scheduler. Patterns are fnmatch patterns of job names.

    The longest matching pattern applies. The default is GOOD.
    """

    #: The states of a job, one per query that names it. The last one repeats.
    script: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Jobs that it rejects.
    refuse: tuple[str, ...] = ()
    #: The most jobs that wait or run in it, None without a limit.
    places: int | None = None
    #: Jobs that it takes without answering the submission.
    silent: tuple[str, ...] = ()
    #: It answers nothing.
    down: bool = False
    #: Seconds that a submission takes until the job exists, and from then until the answer.
    before: float = 0.0
    #: Seconds that a submission takes until the job exists, and from then until the answer.
    after: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeJob:
    """A job that the scheduler took: number, name, output folder, and the states it still goes
    through.
    """

    number: int
    name: str
    folder: str
    states: tuple[str, ...]
    cancelled: bool = False

    @property
    def state(self) -> str:
        """The current state."""
        return CANCELLED if self.cancelled else self.states[0]


class DownError(LlmbError):
    """The scheduler does not answer."""


class FullError(LlmbError):
    """The scheduler takes no more jobs until others end."""


class NoReplyError(LlmbError):
    """The scheduler took the job, but its answer was lost."""


class Scheduler:
    """The scheduler in ``folder``. Several objects and processes can use the same one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def behave(self, behaviour: Behaviour) -> None:
        """Follow ``behaviour`` from now on."""
        files.write_json(self.folder / _BEHAVIOUR, typed.to_data(behaviour))

    @property
    def behaviour(self) -> Behaviour:
        """The current behaviour."""
        path = self.folder / _BEHAVIOUR
        data = files.read_json(path)
        return (
            typed.read(Behaviour, yamlfile.Document(name=str(path), data=data))
            if data is not None
            else Behaviour()
        )

    def submit(self, name: str, folder: Path) -> int:
        """Take a job and return its number. Raises LlmbError if it refuses the job, DownError,
        FullError, NoReplyError.
        """
        does = self._require_up()
        if _matches(name, does.refuse):
            raise LlmbError(f"{name} is refused", code="job-refused", value=name)
        time.sleep(does.before)
        if does.places is None:
            job = self._add(name, folder, does)
        else:
            with locks.hold(self.folder, "places", wait=_PATIENCE):  # submissions run in parallel
                if sum(job.state not in ENDS for job in self.jobs()) >= does.places:
                    raise FullError("the scheduler has no free place", code="queue-full")
                job = self._add(name, folder, does)
        time.sleep(does.after)
        if _matches(name, does.silent):
            raise NoReplyError("the scheduler took the job, but its answer was lost")
        return job.number

    def jobs(self) -> list[FakeJob]:
        """Every job it ever took, by number. For tests: works also while the scheduler is down."""
        numbers = sorted(int(path.stem) for path in (self.folder / _JOBS).glob("[0-9]*.json"))
        return [self._read(number) for number in numbers]

    def query(self, numbers: list[int]) -> dict[int, FakeJob]:
        """Current values of these jobs. Each then advances by one state. Raises DownError."""
        self._require_up()
        jobs = {number: self._read(number) for number in numbers if self._path(number).exists()}
        for job in jobs.values():
            if len(job.states) > 1:
                self._write(job, states=job.states[1:])
        return jobs

    def find(self, name: str) -> int | None:
        """Return the number of the newest job of this name, or None. Raises DownError."""
        self._require_up()
        return next((job.number for job in reversed(self.jobs()) if job.name == name), None)

    def cancel(self, number: int) -> None:
        """Cancel a job that has not ended. Raises DownError."""
        self._require_up()
        job = self._read(number)
        if job.state not in ENDS:
            self._write(job, cancelled=True)

    def _require_up(self) -> Behaviour:
        does = self.behaviour
        if does.down:
            raise DownError(
                "the scheduler does not answer", hint="try again", code="scheduler-down"
            )
        return does

    def _add(self, name: str, folder: Path, does: Behaviour) -> FakeJob:
        matching = sorted(
            (pattern for pattern in does.script if fnmatch.fnmatch(name, pattern)), key=len
        )
        states = does.script[matching[-1]] if matching else GOOD
        for number in itertools.count(len(list((self.folder / _JOBS).glob("[0-9]*.json"))) + 1):
            job = FakeJob(number=number, name=name, folder=str(folder), states=states)
            if files.create_text(self._path(number), files.to_json(typed.to_data(job))):
                return job
        raise AssertionError("unreachable")

    def _path(self, number: int) -> Path:
        return self.folder / _JOBS / f"{number}.json"

    def _read(self, number: int) -> FakeJob:
        path = self._path(number)
        return typed.read(FakeJob, yamlfile.Document(name=str(path), data=files.read_json(path)))

    def _write(
        self, job: FakeJob, *, states: tuple[str, ...] | None = None, cancelled: bool = False
    ) -> None:
        changed = FakeJob(
            number=job.number,
            name=job.name,
            folder=job.folder,
            states=states or job.states,
            cancelled=cancelled,
        )
        files.write_json(self._path(job.number), typed.to_data(changed))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
