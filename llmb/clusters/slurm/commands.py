# SPDX-License-Identifier: Apache-2.0
"""Runs Slurm's commands in an environment of our making, each within a time limit, and asks which options they have."""

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from llmb.clusters.slurm.container import PYXIS, PYXIS_OPTIONS
from llmb.config import ClusterConfig
from llmb.config.slurm import NO_MPI, PMIX, SlurmConfig
from llmb.errors import LlmbError
from llmb.system import shell

# All that sbatch inherits: nothing of an allocation that llmb-run itself may be running in.
BASE_VARIABLES = ("PATH", "HOME", "USER", "LANG", "SLURM_CONF")
ASK_SECONDS = 20.0
SUBMIT_SECONDS = 180.0  # sbatch itself retries while the controller is busy
_HELP_SECONDS = 60.0  # help asks no controller: only a busy machine is slow, and a script without the answer may fail
_MAX_ARGUMENT = 100_000  # characters; Linux takes 131072 in one argument
_SILENT = re.compile(
    r"Unable to contact slurm controller|[Ss]ocket timed out|Connection (?:refused|timed out|reset)|Zero Bytes were"
    r"|Communication connection failure|Transport endpoint|Slurm temporarily unable|[Mm]unge (?:encode|decode) failed"
    r"|failed to open persistent connection|Problem talking to the database|No route to host|Backup controller"
    r"|Slurm backup controller in standby mode|slurmdbd connection|Unexpected message received"
)
# Answers of Slurm's commands that program flow depends on, each with the code of its error.
MISSING, NO_CLUSTER, NO_ACCOUNTING, UNKNOWN_JOB = "slurm-missing", "slurm-no-cluster", "no-accounting", "job-unknown"
_ANSWERS = {
    "configuration source": NO_CLUSTER,
    "accounting storage is disabled": NO_ACCOUNTING,
    "invalid job id": UNKNOWN_JOB,
}
_HINTS = {NO_CLUSTER: "this machine is not part of a Slurm cluster: run on a login node; --dry-run needs no cluster"}
_WAIT = "scontrol ping shows whether slurmctld is up; try again later"


class SilentError(LlmbError):
    """Slurm did not answer: nothing is known, and asking again may help."""


def silent(message: str) -> SilentError:
    """The error that Slurm did not answer."""
    return SilentError(message, hint=_WAIT, code="slurm-silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Runs Slurm's commands as one user, with variables from ``environ``; ``ask_seconds`` limits each question."""

    environ: Mapping[str, str]
    passed: tuple[str, ...] = ()
    ask_seconds: float = ASK_SECONDS

    def ask(self, argv: Sequence[str]) -> str:
        """The output of a command that only asks. Raises SilentError, LlmbError where it fails."""
        done = self.run(argv, timeout=self.ask_seconds)
        if done.code == 0:
            return done.out
        if is_silence(done.err):
            raise silent(f"Slurm does not answer: {last_line(done.err)}")
        answer = last_line(done.err) or f"exit code {done.code}"
        code = next((code for text, code in _ANSWERS.items() if text in done.err.lower()), "slurm-failed")
        raise LlmbError(f"{done.argv[0]}: {answer}", hint=_HINTS.get(code), code=code, key=done.argv[0], value=answer)

    def run(
        self, argv: Sequence[str], *, timeout: float, variables: Mapping[str, str] | None = None
    ) -> shell.Completed:
        """Run a command to its end. Raises SilentError after ``timeout`` seconds, LlmbError where it cannot start.

        ``variables``: what a submission adds to the environment.
        """
        try:
            # Seconds since the epoch, in every version and time zone.
            times = {"SLURM_TIME_FORMAT": "%s"} if variables is None else {}
            return shell.run(argv, env={**self.environment(), **times, **(variables or {})}, timeout=timeout)
        except shell.TimedOutError as error:
            raise silent(error.message) from error
        except LlmbError as error:
            hint = "run llmb-run on a login node of the cluster, with Slurm's commands on PATH"
            raise LlmbError(error.message, hint=hint, code=MISSING, key=argv[0]) from error

    def environment(self) -> dict[str, str]:
        """The base variables, and those that the configuration passes on."""
        user = _user()
        known = {"HOME": user.pw_dir, "USER": user.pw_name, "LANG": "C.UTF-8"} if user is not None else {}
        given = {name: self.environ[name] for name in (*BASE_VARIABLES, *self.passed) if name in self.environ}
        return {**known, **given}


def is_silence(text: str) -> bool:
    """Whether an error output of Slurm's means that it got no answer, and not that the answer was no."""
    return _SILENT.search(text) is not None


def last_line(text: str) -> str:
    """The last informative line of an error output, without the program's name."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("Try ")]
    return re.sub(r"^s[a-z]+: (?:(?:error|fatal): )?", "", lines[-1]) if lines else ""


def portions(words: Sequence[str]) -> Iterator[str]:
    """``words`` joined by commas, in as few arguments as the system takes."""
    held: list[str] = []
    length = 0
    for word in words:
        if held and length + len(word) > _MAX_ARGUMENT:
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


def has_segment(client: Client, config: ClusterConfig) -> bool:
    """Whether sbatch has ``--segment``; asked only where a job could use it. True where there is no sbatch."""
    slurm = config.slurm
    given = slurm is not None and (slurm.segment or "segment" in {*slurm.gpu.given, *slurm.cpu.given})
    if not given and not any(config.gpu(name).gpus_per_node == 4 for name in (config.gpu_type, *config.gpu_types)):
        return True
    shown = help_of(client, "sbatch")
    return shown is None or "--segment" in shown


def lacking(client: Client, config: ClusterConfig) -> frozenset[str]:
    """Those of PYXIS_OPTIONS, and PMIX, that this srun does not have. Empty where srun cannot be asked."""
    slurm = config.slurm or SlurmConfig()
    shown = help_of(client, "srun") if slurm.container == PYXIS else None
    if shown is None or "--container-image" not in shown:  # without any pyxis, nothing is known of its options
        return frozenset()
    found = {name for name in PYXIS_OPTIONS if name.removeprefix("no-") not in shown}
    kinds = mpi_kinds(client) if slurm.mpi is None else None
    return frozenset(found if kinds is None or PMIX in kinds else {*found, PMIX})


def mpi_fault(client: Client, kind: str) -> str | None:
    """Why srun cannot take ``kind`` for ``--mpi``; None where it can, or cannot be asked."""
    kinds = mpi_kinds(client)
    if kinds is not None and kind not in (*kinds, NO_MPI):
        return f"has no MPI plugin '{kind}'"
    try:  # a listed plugin may lack its library
        done = client.run(["srun", f"--mpi={kind}", "--ntasks=1", "--test-only", "true"], timeout=client.ask_seconds)
    except LlmbError:
        return None
    refused = done.code != 0 and "Invalid MPI type" in done.err
    return f"cannot load its MPI plugin '{kind}'" if refused else None


def mpi_kinds(client: Client) -> list[str] | None:
    """The values that srun takes for ``--mpi``; None where it cannot be asked."""
    shown = _plain(client, ["srun", "--mpi=list"])
    return None if shown is None else shown.replace(",", " ").split()


def help_of(client: Client, program: str) -> str | None:
    """The help of one of Slurm's commands; None where it cannot be run."""
    return _plain(client, [program, "--help"])


def _plain(client: Client, argv: Sequence[str]) -> str | None:
    """The output of a command that asks no controller."""
    try:
        done = client.run(argv, timeout=_HELP_SECONDS)
    except LlmbError:
        return None
    return done.out + done.err if done.code == 0 else None
