# SPDX-License-Identifier: Apache-2.0
"""Runs Slurm's commands in a clean environment, each within a time limit, and reads their answers
about jobs.
"""

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache

from llmb.contract.state import ENDS, KNOWN, WAITING, JobState
from llmb.core import console, shell
from llmb.core.scan import plain
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.kit.advice import advice

# All that sbatch inherits: nothing of an allocation that llmb-run itself may be running in.
BASE_VARIABLES = ("PATH", "HOME", "USER", "LANG", "SLURM_CONF")
ASK_SECONDS = 20.0
SUBMIT_SECONDS = 180.0  # sbatch itself retries while the controller is busy
# Seconds for sbatch's own further tries, which end between two of them: after 0, 1, 3 and 6 s.
_FULL_SECONDS = 4.5
_SILENT_SECONDS = 20.0  # of sbatch, after which a user hears why nothing happens
_OF_PROGRAM = frozenset({"--help", "--mpi=list"})  # questions about the program itself
_CLUSTER_LINE = re.compile(r"^CLUSTER: .*\n", re.MULTILINE)  # printed for -M
_MAX_ARGUMENT = 100_000  # characters; Linux takes 131072 in one argument
_SILENT = re.compile(
    r"Unable to contact slurm controller|[Ss]ocket timed out|Connection (?:refused|timed"
    r" out|reset)|Zero Bytes were"
    r"|Communication connection failure|Transport endpoint|Slurm temporarily unable|[Mm]unge"
    r" (?:encode|decode) failed"
    r"|failed to open persistent connection|Problem talking to the database|No route to host|Backup"
    r" controller"
    r"|Slurm backup controller in standby mode|slurmdbd connection|Unexpected message received"
)
# Answers of Slurm's commands that program flow depends on, each with the code of its error.
MISSING, NO_CLUSTER, NO_ACCOUNTING, UNKNOWN_JOB, DENIED = (
    "slurm-missing",
    "slurm-no-cluster",
    "no-accounting",
    "job-unknown",
    "slurm-denied",
)
_ANSWERS = {
    "configuration source": NO_CLUSTER,
    "accounting storage is disabled": NO_ACCOUNTING,
    "invalid job id": UNKNOWN_JOB,
    "access/permission denied": DENIED,  # PrivateData hides it from this user
}
_HINTS = {
    NO_CLUSTER: (
        "this machine is not part of a Slurm cluster: run on a login node; --dry-run needs no"
        " cluster"
    )
}
_WAIT = "scontrol ping shows whether slurmctld is up; try again later"


class SilentError(LlmbError):
    """Slurm did not answer: nothing is known, and asking again may help."""


def silent(message: str) -> SilentError:
    """The error that Slurm did not answer."""
    return SilentError(message, hint=_WAIT, code="slurm-silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Runs Slurm's commands as one user, with variables from ``environ``. ``ask_seconds`` limits
    each question.
    """

    environ: Mapping[str, str]
    passed: tuple[str, ...] = ()
    ask_seconds: float = ASK_SECONDS
    #: The cluster that the commands ask, None for that of this machine.
    cluster: str | None = None
    #: Answers of ``ask_once``.
    _known: dict[tuple[str, ...], str] = field(default_factory=dict, compare=False, repr=False)

    def ask_once(self, argv: Sequence[str]) -> str:
        """As ``ask``, for an answer that stays the same while a command of llmb runs."""
        if (key := tuple(argv)) not in self._known:
            self._known[key] = self.ask(argv)
        return self._known[key]

    def ask(self, argv: Sequence[str]) -> str:
        """The output of a command that only asks. Raises SilentError, LlmbError where it fails."""
        completed = self.run(argv, timeout=self.ask_seconds)
        if completed.code == 0:
            return completed.out if self.cluster is None else _CLUSTER_LINE.sub("", completed.out)
        if is_silence(completed.err):
            raise silent(f"Slurm does not answer: {last_line(completed.err)}")
        answer = last_line(completed.err) or f"exit code {completed.code}"
        code = next(
            (code for text, code in _ANSWERS.items() if text in completed.err.lower()),
            "slurm-failed",
        )
        raise LlmbError(
            f"{completed.argv[0]}: {answer}",
            hint=_HINTS.get(code),
            code=code,
            key=completed.argv[0],
            value=answer,
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        variables: Mapping[str, str] | None = None,
        watch: Callable[[str, float], bool] | None = None,
    ) -> shell.Completed:
        """Run a command to its end. Raises SilentError after ``timeout`` seconds, LlmbError where
        it cannot start.

        ``variables``: what a submission adds to the environment. ``watch`` as in ``shell.run``.
        """
        try:
            # Seconds since the epoch, in every version and time zone.
            times = {"SLURM_TIME_FORMAT": "%s"} if variables is None else {}
            return shell.run(
                self._of_cluster(argv),
                env={**self.environment(), **times, **(variables or {})},
                timeout=timeout,
                watch=watch,
            )
        except shell.TimedOutError as error:
            raise silent(error.message) from error
        except LlmbError as error:
            hint = "run llmb-run on a login node of the cluster, with Slurm's commands on PATH"
            raise LlmbError(error.message, hint=hint, code=MISSING, key=argv[0]) from error

    def submit(self, argv: Sequence[str], variables: Mapping[str, str]) -> shell.Completed:
        """Run sbatch to its end, or for _FULL_SECONDS once it reports that the queue is full.

        It would try again for two minutes. Raises like ``run``.
        """
        full_since: list[float] = []

        def watch(printed: str, seconds: float) -> bool:
            if _RETRIES.search(printed):
                if not full_since:
                    full_since.append(seconds)
                    console.warn_once(
                        "Slurm takes no more jobs now; sbatch tries again", kind="note"
                    )
                return seconds - full_since[0] > _FULL_SECONDS
            if seconds > _SILENT_SECONDS:
                console.warn_once("Slurm is slow to take a job; llmb waits for sbatch", kind="note")
            return False

        return self.run(argv, timeout=SUBMIT_SECONDS, variables=variables, watch=watch)

    def _of_cluster(self, argv: Sequence[str]) -> list[str]:
        """Add the cluster to a command, unless it asks no controller or has no such option."""
        program, *arguments = argv
        if self.cluster is None or program == "sacctmgr" or not _OF_PROGRAM.isdisjoint(arguments):
            return [*argv]
        return [program, "-M", self.cluster, *arguments]

    def environment(self) -> dict[str, str]:
        """The base variables, and those that the configuration passes on."""
        user = _user()
        passed = (
            {"HOME": user.pw_dir, "USER": user.pw_name, "LANG": "C.UTF-8"}
            if user is not None
            else {}
        )
        given = {
            name: self.environ[name]
            for name in (*BASE_VARIABLES, *self.passed)
            if name in self.environ
        }
        return {**passed, **given}


def is_silence(text: str) -> bool:
    """Return True if an error output of Slurm's means that it got no answer, and not that the
    answer was no.
    """
    return _SILENT.search(text) is not None


def last_line(text: str) -> str:
    """The last informative line of an error output, without the program's name."""
    lines = [
        line for line in map(str.strip, text.splitlines()) if line and not line.startswith("Try ")
    ]
    return re.sub(r"^s[a-z]+: (?:(?:error|fatal): )?", "", lines[-1]) if lines else ""


def refusal(text: str) -> str:
    """Every reason in an error output, the site's own words first: plugins of a site say what is
    wrong before sbatch says that it failed.
    """
    lines = lines_of(text)
    errors = [line for line in lines if line.startswith(_SBATCH_FAILED)]
    site = [line for line in lines if line not in errors]
    return "; ".join([*site, *(line.partition(": ")[2] for line in errors)][:_MOST_LINES])


def full_queue(text: str) -> str | None:
    """Return the limit that an error output names if the queue is full now, else None."""
    if (match := _SUBMIT_LIMIT.search(text)) is not None:
        return match[0]
    return "MaxJobCount" if _FULL.search(text) else None


def lines_of(text: str) -> list[str]:
    """The informative lines of an output, each once, without the program's name."""
    lines = (
        plain(_PROGRAM.sub("", line), 500)
        for line in map(str.strip, text.splitlines())
        if line and not line.startswith("Try ") and not _RETRIES.search(line)
    )
    return list(dict.fromkeys(line for line in lines if line))


_PROGRAM = re.compile(r"^s[a-z]+: (?:(?:error|fatal): )?")
_RETRIES = re.compile(r"sleeping and retrying")
_FULL = re.compile(
    r"sleeping and retrying|temporarily unable to accept job|Resource temporarily unavailable"
)
# The limits of the jobs that a user, an account or a QOS may have in the queue.
_SUBMIT_LIMIT = re.compile(r"\b(?:Assoc|QOS)(?:Max|Grp)SubmitJobs?\w*")
_SBATCH_FAILED = ("Batch job submission failed: ", "allocation failure: ")
_MOST_LINES = 8


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
    r"Priority|Resources|Dependency$|Licenses|BeginTime|Reservation|ReqNodeNotAvail"
    r"|Nodes_required|Partition|JobHeld|Assoc|QOS|Max\w+PerAccount|Cleaning|Prolog|BurstBuffer"
    r"|JobArrayTaskLimit|RequeueHold|WaitingForScheduling"
)
_LAST_SIGNAL = 64  # Slurm itself uses 125 for a job that was out of memory
#: Slurm's own code in the place of a signal: the node could not open the file of --output.
NO_OUTPUT = "0:53"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job as Slurm shows it."""

    job_id: str
    name: str
    state: JobState


def accounted(
    client: Client, *, ids: Sequence[str] = (), names: Sequence[str] = (), within: float = 0.0
) -> list[JobRow]:
    """The jobs of ``ids``, or those of ``names`` of the last ``within`` seconds, from accounting.

    Raises LlmbError, SilentError where the accounting does not answer.
    """
    command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--format={_ACCT}"]
    after = [f"--starttime=now-{int(within) + 1}seconds"] if names else []
    return [
        row
        for option in _job_options(ids, names)
        for row in read_accounting(client.ask([*command, *after, option]))
    ]


def queued(client: Client, *, ids: Sequence[str] = (), names: Sequence[str] = ()) -> list[JobRow]:
    """The jobs of ``ids`` or of ``names`` that the controller knows, also ended ones. Raises like
    ``accounted``.
    """
    command = ["squeue", "--noheader", "--states=all", f"--format={_QUEUE}"]
    return [
        row
        for option in _job_options(ids, names)
        for row in read_queue(_ask_of_jobs(client, [*command, option]))
    ]


def _job_options(ids: Sequence[str], names: Sequence[str]) -> list[str]:
    return [
        *(f"--jobs={part}" for part in portions(ids)),
        *(f"--name={part}" for part in portions(names)),
    ]


def _ask_of_jobs(client: Client, argv: Sequence[str]) -> str:
    try:
        return client.ask(argv)
    except LlmbError as error:
        # a single unknown job is an error; of several, squeue omits the unknown ones
        if error.code == UNKNOWN_JOB:
            return ""
        raise


def exit_code(client: Client, job_id: str) -> str:
    """The ``code:signal`` of a job that the controller still knows, else "". Raises SilentError."""
    shown = _ask_of_jobs(client, ["scontrol", "--oneliner", "show", "job", job_id])
    match = re.search(r"\bExitCode=(\d+:\d+)", shown)
    return match[1] if match else ""


def script_of(client: Client, job_id: str) -> str | None:
    """The batch script of a job that the controller still knows: nobody can change it. Raises
    SilentError.
    """
    shown = _ask_of_jobs(client, ["scontrol", "--oneliner", "show", "job", job_id])
    match = re.search(r"(?:^| )Command=(.*?)(?= [A-Z]\w+=|\s*$)", shown)
    return match[1] if match else None


def scripts(client: Client) -> Iterator[tuple[str, str]]:
    """The id and the batch script of each job of this user that the controller knows. Raises
    LlmbError, SilentError.
    """
    shown = client.ask(["squeue", "--noheader", "--me", "--states=all", "--format=%i|%o"])
    for line in shown.splitlines():
        job_id, _, script = line.partition("|")
        if job_id.isdecimal():
            yield job_id, script.strip()


def failed_nodes(client: Client, nodes: str) -> list[str]:
    """The nodes of a list that do not work now. Raises LlmbError, SilentError."""
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%T", f"--nodes={nodes}"]
    rows = (line.strip().partition("|") for line in client.ask(command).splitlines())
    return list(dict.fromkeys(node for node, _, state in rows if _BROKEN.search(state.lower())))


# `*`: the node does not respond. One that is only drained may be healthy.
_BROKEN = re.compile(r"^(?:down|fail|error|unknown|not_respond|power)|\*$")


def cluster_name(client: Client) -> str:
    """The cluster's name in its configuration. Raises LlmbError, SilentError."""
    match = re.search(
        r"^ClusterName\s*=\s*(\S+)", client.ask_once(["scontrol", "show", "config"]), re.MULTILINE
    )
    if match is None:
        raise LlmbError("scontrol show config does not name the cluster", hint="try again later")
    return match[1]


def read_accounting(text: str) -> Iterator[JobRow]:
    """The rows of sacct's answer."""
    for line in text.splitlines():
        fields = line.split("|", 7)
        if len(fields) == 8:
            job_id, shown, code, start, end, reason, nodes, name = fields
            yield JobRow(
                job_id=job_id, name=name, state=_state(shown, reason, start, end, code, nodes)
            )


def read_queue(text: str) -> Iterator[JobRow]:
    """The rows of squeue's answer."""
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7:
            job_id, shown, reason, start, end, nodes, name = fields
            yield JobRow(
                job_id=job_id, name=name, state=_state(shown, reason, start, end, "", nodes)
            )


def _state(shown: str, reason: str, start: str, end: str, code: str, nodes: str) -> JobState:
    word, cause = state_word(shown), reason_of(shown, reason)
    is_end = word in ENDS
    nodes = "" if nodes in _NO_NODES else nodes
    # of a waiting job it is a forecast, and of one that was cancelled before it began its end
    has_begun = word not in WAITING and not (start == end and not nodes)
    return JobState(
        state=word,
        reason=NO_OUTPUT if code == NO_OUTPUT else cause,
        exit_code=read_exit_code(code) if is_end else None,
        started=epoch_seconds(start) if has_begun else None,
        ended=epoch_seconds(end) if is_end else None,
        fix=advice("slurm_waiting", cause) if word in WAITING else "",
        nodes=nodes,
    )


def state_word(shown: str) -> str:
    """The state that Slurm means by ``CANCELLED by 1000``, ``OUT_OF_ME+`` and the like. Unknown
    states stay.
    """
    first = re.split(r"[ ,]", shown.strip(), maxsplit=1)[0].upper()
    if not first.endswith("+"):
        return first
    cut = first[:-1]
    states = [cut] if cut in KNOWN else [state for state in KNOWN if state.startswith(cut)]
    return states[0] if len(states) == 1 else first


def reason_of(shown: str, reason: str) -> str:
    """Return why the job waits or ended: who cancelled it by the state ``shown``, else Slurm's
    ``reason`` unless outdated.
    """
    if match := re.fullmatch(r"CANCELLED by (\d+)", shown.strip()):
        return f"cancelled by {_user_name(int(match[1]))}"
    is_stale = state_word(shown) not in WAITING and _WAITED.match(reason) is not None
    return "" if reason in _NO_REASON or is_stale else reason


def read_exit_code(text: str) -> int | None:
    """The exit code of ``code:signal`` as a shell would give it, or None where there is none."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if text == NO_OUTPUT or match is None or int(match[2]) > _LAST_SIGNAL:
        return None
    return 128 + int(match[2]) if int(match[2]) else int(match[1])


def epoch_seconds(text: str) -> float | None:
    """Seconds since the epoch, or None for a time that has not come."""
    return float(text) if text.isdecimal() and int(text) > 0 else None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
