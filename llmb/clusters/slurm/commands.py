# SPDX-License-Identifier: Apache-2.0
"""Calls Slurm's commands in an environment that is built and not inherited, each with a bounded time."""

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from llmb.errors import LlmbError
from llmb.system import shell
from llmb.system.shell import Completed

# All that sbatch is told of the place: nothing of an allocation that llmb-run may itself be in.
BASE_VARIABLES = ("PATH", "HOME", "USER", "LANG", "SLURM_CONF")
ASK_SECONDS = 20.0
SUBMIT_SECONDS = 180.0  # a busy controller makes sbatch wait and try again by itself
_ARGUMENT = 100_000  # characters; Linux takes 131072 for one word
_SILENT = re.compile(
    r"Unable to contact slurm controller|[Ss]ocket timed out|Connection (?:refused|timed out|reset)|Zero Bytes were"
    r"|Communication connection failure|Transport endpoint|Slurm temporarily unable|[Mm]unge (?:encode|decode) failed"
    r"|failed to open persistent connection|Problem talking to the database|No route to host|Backup controller"
    r"|Slurm backup controller in standby mode|slurmdbd connection|Unexpected message received"
)


class SilentError(LlmbError):
    """Slurm did not answer: nothing is known, and asking again may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Slurm's commands as one user calls them from ``environ``; ``ask_seconds`` bounds each question."""

    environ: Mapping[str, str]
    passed: tuple[str, ...] = ()
    ask_seconds: float = ASK_SECONDS

    def ask(self, argv: Sequence[str]) -> str:
        """What a command that only asks prints. Raises SilentError, LlmbError where it refuses the question."""
        return _answer(self.run(argv, timeout=self.ask_seconds))

    def run(self, argv: Sequence[str], *, timeout: float, variables: Mapping[str, str] | None = None) -> Completed:
        """Run a command to its end. Raises SilentError after ``timeout`` seconds, LlmbError where there is none.

        ``variables``: what a submission adds to the environment.
        """
        try:
            # Seconds since the epoch, in every version and time zone.
            times = {"SLURM_TIME_FORMAT": "%s"} if variables is None else {}
            return shell.run(argv, env={**self.environment(), **times, **(variables or {})}, timeout=timeout)
        except shell.TimedOutError as error:
            raise SilentError(error.message, hint=_WAIT) from error
        except LlmbError as error:
            hint = "run llmb-run on a login node of the cluster, with Slurm's commands on PATH"
            raise LlmbError(error.message, hint=hint) from error

    def environment(self) -> dict[str, str]:
        """The base variables, and those that the configuration passes on."""
        user = _user()
        known = {"HOME": user.pw_dir, "USER": user.pw_name, "LANG": "C.UTF-8"} if user is not None else {}
        given = {name: self.environ[name] for name in (*BASE_VARIABLES, *self.passed) if name in self.environ}
        return {**known, **given}


_NO_SLURM = "this machine is not part of a Slurm cluster: run on a login node; --dry-run needs none"
_WAIT = "scontrol ping says whether slurmctld is up; ask again later"


def _answer(done: Completed) -> str:
    if done.code == 0:
        return done.out
    if is_silence(done.err):
        raise SilentError(f"Slurm does not answer: {last_line(done.err)}", hint=_WAIT)
    told = last_line(done.err) or f"exit code {done.code}"
    raise LlmbError(f"{done.argv[0]}: {told}", hint=_NO_SLURM if "configuration source" in told else None)


def is_silence(text: str) -> bool:
    """Whether an error of Slurm's says that it was not heard, and not that it said no."""
    return _SILENT.search(text) is not None


def last_line(text: str) -> str:
    """The last line of an error that says something, without the program's name."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("Try ")]
    return re.sub(r"^s[a-z]+: (?:(?:error|fatal): )?", "", lines[-1]) if lines else ""


def portions(words: Sequence[str]) -> Iterator[str]:
    """``words`` joined by commas, in as few arguments as the system takes."""
    held: list[str] = []
    length = 0
    for word in words:
        if held and length + len(word) > _ARGUMENT:
            yield ",".join(held)
            held, length = [], 0
        held.append(word)
        length += len(word) + 1
    if held:
        yield ",".join(held)


@cache
def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:  # a container may not know its user
        return None
