# SPDX-License-Identifier: Apache-2.0
"""What sacct, squeue and scontrol say of jobs: the questions, and their answers as values."""

import pwd
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.clusters.slurm.commands import Client, portions
from llmb.errors import LlmbError
from llmb.runs.state import ENDS, KNOWN, WAITING, JobState

_NO_REASON = frozenset({"", "None", "NonZeroExitCode", "(null)", "N/A", "JobLaunchFailure(null)"})
# Why a job waited: accounting keeps it beyond the job's start, and its end.
_WAITED = re.compile(
    r"Priority|Resources|Dependency$|Licenses|BeginTime|Reservation|ReqNodeNotAvail|Nodes_required|Partition|JobHeld"
    r"|Assoc|QOS|Max\w+PerAccount|Cleaning|Prolog|BurstBuffer|JobArrayTaskLimit|RequeueHold|WaitingForScheduling"
)

_LAST_SIGNAL = 64  # 125 is Slurm's own word for a job that was out of memory


def state_word(text: str) -> str:
    """The state that Slurm's ``text`` means: ``CANCELLED by 1000``, ``OUT_OF_ME+`` and the like. Unknown ones stay."""
    first = re.split(r"[ ,]", text.strip(), maxsplit=1)[0].upper()
    if not first.endswith("+"):
        return first
    cut = first[:-1]
    meant = [cut] if cut in KNOWN else [state for state in KNOWN if state.startswith(cut)]
    return meant[0] if len(meant) == 1 else first


def wait_reason(text: str, told: str) -> str:
    """Why, in words: who cancelled it as the state's ``text`` says, else what Slurm has ``told``."""
    if match := re.fullmatch(r"CANCELLED by (\d+)", text.strip()):
        return f"cancelled by {_user_name(int(match[1]))}"
    is_stale = state_word(text) not in WAITING and _WAITED.match(told) is not None
    return "" if told in _NO_REASON or is_stale else told


def read_exit_code(text: str) -> int | None:
    """The exit code in ``code:signal``, as a shell gives it; None where there is none."""
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


_LIMITS = "a limit of your account or QOS: it starts as others end; sacctmgr show assoc user=$USER has the limits"
_AGAIN = "llmb-run jobs cancel RUN, then llmb-run jobs retry RUN"
# Waiting for its turn or for nodes in use (Priority, Resources, ...) needs no word.
_MEANINGS = (
    (r"JobHeldAdmin", "an administrator holds it, and only an administrator can release it"),
    (r"JobHeld|JobHoldMaxRequeue|requeued held|RequeueHold", "it is held: scontrol release JOB lets it go"),
    (r"InvalidAccount|InvalidQOS", f"its account or QOS is no longer one of yours: {_AGAIN} --slurm-arg KEY=VALUE"),
    (r"Assoc|QOS|Max\w+Per(Account|User)", _LIMITS),
    (r"PartitionDown|PartitionInactive", "the partition is down: it starts when its administrator has set it up again"),
    (r"PartitionTimeLimit", f"the partition allows less time: {_AGAIN} --time-limit HH:MM:SS"),
    (r"PartitionNodeLimit|PartitionConfig", "the partition gives a job fewer nodes: name another, or a smaller scale"),
    (r"ReqNodeNotAvail.*Reserved", "nodes are reserved for others, or for maintenance: scontrol show reservation"),
    (r"ReqNodeNotAvail|Nodes required for job are DOWN|NodeDown", "nodes are out of service: sinfo -R says why"),
    (r"BadConstraints", f"no node has what it asks for: {_AGAIN} --slurm-arg KEY=VALUE"),
    (r"Licenses", "licenses are in use: scontrol show licenses"),
    (r"Reservation", "its reservation has not begun or has ended: scontrol show reservation"),
    (
        r"DependencyNeverSatisfied",
        f"what it waits for has failed, so it never starts: {_AGAIN} --slurm-arg dependency=null",
    ),
    (r"Dependency", "it waits for another job, as --slurm-arg dependency asked: scontrol show job JOB"),
    (r"BeginTime", "it starts later: as --slurm-arg begin asked, or since it was requeued"),
    (r"launch failure|JobLaunchFailure", "its node could not start it: scontrol release JOB, once the node is well"),
)


def meaning(reason: str) -> str:
    """What to know of a job that waits for ``reason``; empty where there is nothing to do but to wait."""
    return next((text for pattern, text in _MEANINGS if re.search(pattern, reason)), "")


_ACCT = "JobIDRaw,State,ExitCode,Start,End,Reason,JobName"
_QUEUE = "%i|%T|%r|%S|%e|%j"
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|there is no program 'sacct'", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job as Slurm shows it."""

    job_id: str
    name: str
    state: JobState


def accounted(client: Client, *, ids: Sequence[str] = (), names: Sequence[str] = (), within: float = 0.0) -> list[Row]:
    """The jobs of ``ids``, or those of ``names`` of the last ``within`` seconds, as accounting has them.

    Raises LlmbError, SilentError where the accounting does not answer.
    """
    how = ["sacct", "--noheader", "--parsable2", "--allocations", f"--format={_ACCT}"]
    after = [f"--starttime=now-{int(within) + 1}seconds"] if names else []
    asked = [*(f"--jobs={part}" for part in portions(ids)), *(f"--name={part}" for part in portions(names))]
    return [row for one in asked for row in read_accounting(client.ask([*how, *after, one]))]


def queued(client: Client, *, ids: Sequence[str] = (), names: Sequence[str] = ()) -> list[Row]:
    """The jobs of ``ids`` or of ``names`` that the controller still knows, ended ones too. As ``accounted`` raises."""
    how = ["squeue", "--noheader", "--states=all", f"--format={_QUEUE}"]
    asked = [*(f"--jobs={part}" for part in portions(ids)), *(f"--name={part}" for part in portions(names))]
    return [row for one in asked for row in read_queue(_known(client, [*how, one]))]


def _known(client: Client, argv: Sequence[str]) -> str:
    try:
        return client.ask(argv)
    except LlmbError as error:
        if "Invalid job id" in error.message:  # one alone that is not known; of several, squeue leaves such out
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
        raise LlmbError("scontrol show config does not name the cluster", hint="ask again later")
    return match[1]


def read_accounting(text: str) -> Iterator[Row]:
    """The rows of sacct's answer."""
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7:
            job_id, said, code, start, end, reason, name = fields
            yield Row(job_id=job_id, name=name, state=_state(said, reason, start, end, code))


def read_queue(text: str) -> Iterator[Row]:
    """The rows of squeue's answer."""
    for line in text.splitlines():
        fields = line.split("|", 5)
        if len(fields) == 6:
            job_id, said, reason, start, end, name = fields
            yield Row(job_id=job_id, name=name, state=_state(said, reason, start, end, ""))


def _state(said: str, told: str, start: str, end: str, code: str) -> JobState:
    word = state_word(said)
    is_end, reason = word in ENDS, wait_reason(said, told)
    return JobState(
        state=word,
        reason=reason,
        exit_code=read_exit_code(code) if is_end else None,
        started=epoch_seconds(start) if word not in WAITING else None,  # of a waiting job it is a forecast
        ended=epoch_seconds(end) if is_end else None,
        fix=meaning(reason) if word in WAITING else "",
    )
