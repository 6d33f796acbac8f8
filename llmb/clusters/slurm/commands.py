# SPDX-License-Identifier: Apache-2.0
"""Runs Slurm's commands in a clean environment, each within a time limit; reads their answers about jobs."""

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from llmb.clusters.advice import advice
from llmb.errors import LlmbError
from llmb.runs.state import ENDS, KNOWN, WAITING, JobState
from llmb.system import shell

# All that sbatch inherits: nothing of an allocation that llmb-run itself may be running in.
BASE_VARIABLES = ("PATH", "HOME", "USER", "LANG", "SLURM_CONF")
ASK_SECONDS = 20.0
SUBMIT_SECONDS = 180.0  # sbatch itself retries while the controller is busy
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


_ACCT = "JobIDRaw,State,ExitCode,Start,End,Reason,NodeList,JobName"
_QUEUE = "%i|%T|%r|%S|%e|%N|%j"
_NO_NODES = frozenset({"None assigned", "(null)", "N/A"})
_NO_REASON = frozenset({"", "None", "NonZeroExitCode", "(null)", "N/A", "JobLaunchFailure(null)"})
# Why a job waited: accounting keeps it beyond the job's start, and its end.
_WAITED = re.compile(
    r"Priority|Resources|Dependency$|Licenses|BeginTime|Reservation|ReqNodeNotAvail|Nodes_required|Partition|JobHeld"
    r"|Assoc|QOS|Max\w+PerAccount|Cleaning|Prolog|BurstBuffer|JobArrayTaskLimit|RequeueHold|WaitingForScheduling"
)
_LAST_SIGNAL = 64  # Slurm itself uses 125 for a job that was out of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job as Slurm shows it."""

    job_id: str
    name: str
    state: JobState


def accounted(client: Client, *, ids: Sequence[str] = (), names: Sequence[str] = (), within: float = 0.0) -> list[Row]:
    """The jobs of ``ids``, or those of ``names`` of the last ``within`` seconds, from accounting.

    Raises LlmbError, SilentError where the accounting does not answer.
    """
    how = ["sacct", "--noheader", "--parsable2", "--allocations", f"--format={_ACCT}"]
    after = [f"--starttime=now-{int(within) + 1}seconds"] if names else []
    return [row for one in _asked(ids, names) for row in read_accounting(client.ask([*how, *after, one]))]


def queued(client: Client, *, ids: Sequence[str] = (), names: Sequence[str] = ()) -> list[Row]:
    """The jobs of ``ids`` or of ``names`` that the controller knows, also ended ones. Raises like ``accounted``."""
    how = ["squeue", "--noheader", "--states=all", f"--format={_QUEUE}"]
    return [row for one in _asked(ids, names) for row in read_queue(_known(client, [*how, one]))]


def _asked(ids: Sequence[str], names: Sequence[str]) -> list[str]:
    return [*(f"--jobs={part}" for part in portions(ids)), *(f"--name={part}" for part in portions(names))]


def _known(client: Client, argv: Sequence[str]) -> str:
    try:
        return client.ask(argv)
    except LlmbError as error:
        if error.code == UNKNOWN_JOB:  # a single unknown job is an error; of several, squeue omits the unknown ones
            return ""
        raise


def exit_code(client: Client, job_id: str) -> int | None:
    """The exit code of a job that the controller still knows. Raises SilentError."""
    shown = _known(client, ["scontrol", "--oneliner", "show", "job", job_id])
    match = re.search(r"\bExitCode=(\d+:\d+)", shown)
    return read_exit_code(match[1]) if match else None


def cluster_name(client: Client) -> str:
    """The cluster's name in its configuration. Raises LlmbError, SilentError."""
    match = re.search(r"^ClusterName\s*=\s*(\S+)", client.ask(["scontrol", "show", "config"]), re.MULTILINE)
    if match is None:
        raise LlmbError("scontrol show config does not name the cluster", hint="try again later")
    return match[1]


def read_accounting(text: str) -> Iterator[Row]:
    """The rows of sacct's answer."""
    for line in text.splitlines():
        fields = line.split("|", 7)
        if len(fields) == 8:
            job_id, shown, code, start, end, reason, nodes, name = fields
            yield Row(job_id=job_id, name=name, state=_state(shown, reason, start, end, code, nodes))


def read_queue(text: str) -> Iterator[Row]:
    """The rows of squeue's answer."""
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7:
            job_id, shown, reason, start, end, nodes, name = fields
            yield Row(job_id=job_id, name=name, state=_state(shown, reason, start, end, "", nodes))


def _state(shown: str, reason: str, start: str, end: str, code: str, nodes: str) -> JobState:
    word, why = state_word(shown), reason_of(shown, reason)
    is_end = word in ENDS
    return JobState(
        state=word,
        reason=why,
        exit_code=read_exit_code(code) if is_end else None,
        started=epoch_seconds(start) if word not in WAITING else None,  # of a waiting job it is a forecast
        ended=epoch_seconds(end) if is_end else None,
        fix=advice("slurm_waiting", why) if word in WAITING else "",
        nodes="" if nodes in _NO_NODES else nodes,
    )


def state_word(shown: str) -> str:
    """The state that Slurm means by ``CANCELLED by 1000``, ``OUT_OF_ME+`` and the like. Unknown states stay."""
    first = re.split(r"[ ,]", shown.strip(), maxsplit=1)[0].upper()
    if not first.endswith("+"):
        return first
    cut = first[:-1]
    meant = [cut] if cut in KNOWN else [state for state in KNOWN if state.startswith(cut)]
    return meant[0] if len(meant) == 1 else first


def reason_of(shown: str, reason: str) -> str:
    """Why the job waits or ended: who cancelled it by the state ``shown``, else Slurm's ``reason`` unless outdated."""
    if match := re.fullmatch(r"CANCELLED by (\d+)", shown.strip()):
        return f"cancelled by {_user_name(int(match[1]))}"
    is_stale = state_word(shown) not in WAITING and _WAITED.match(reason) is not None
    return "" if reason in _NO_REASON or is_stale else reason


def read_exit_code(text: str) -> int | None:
    """The exit code of ``code:signal`` as a shell would give it; None where there is none."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[2]) > _LAST_SIGNAL:
        return None
    return 128 + int(match[2]) if int(match[2]) else int(match[1])


def epoch_seconds(text: str) -> float | None:
    """Seconds since the epoch; None for a time that has not come."""
    return float(text) if text.isdecimal() and int(text) > 0 else None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
