# SPDX-License-Identifier: Apache-2.0
"""Asks sacct, squeue and scontrol about jobs, and reads their answers as values."""

import pwd
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.clusters.slurm.commands import UNKNOWN_JOB, Client, portions
from llmb.errors import LlmbError
from llmb.runs.state import ENDS, KNOWN, WAITING, JobState

_ACCT = "JobIDRaw,State,ExitCode,Start,End,Reason,JobName"
_QUEUE = "%i|%T|%r|%S|%e|%j"
_NO_REASON = frozenset({"", "None", "NonZeroExitCode", "(null)", "N/A", "JobLaunchFailure(null)"})
# Why a job waited: accounting keeps it beyond the job's start, and its end.
_WAITED = re.compile(
    r"Priority|Resources|Dependency$|Licenses|BeginTime|Reservation|ReqNodeNotAvail|Nodes_required|Partition|JobHeld"
    r"|Assoc|QOS|Max\w+PerAccount|Cleaning|Prolog|BurstBuffer|JobArrayTaskLimit|RequeueHold|WaitingForScheduling"
)
_LAST_SIGNAL = 64  # Slurm itself uses 125 for a job that was out of memory
_LIMITS = "a limit of your account or QOS: it starts as others end; sacctmgr show assoc user=$USER lists the limits"
_AGAIN = "llmb-run jobs cancel RUN, then llmb-run jobs retry RUN"
# What to do about a reason for waiting. A job that waits for its turn or for busy nodes (Priority, Resources) needs no
# advice. The first row that fits counts.
_MEANINGS = (
    (r"JobHeldAdmin", "an administrator holds it, and only an administrator can release it"),
    (r"JobHeld|JobHoldMaxRequeue|requeued held|RequeueHold", "it is held: scontrol release JOB releases it"),
    (r"InvalidAccount|InvalidQOS", f"its account or QOS is no longer one of yours: {_AGAIN} --slurm-arg KEY=VALUE"),
    (r"Assoc|QOS|Max\w+Per(Account|User)", _LIMITS),
    (r"PartitionDown|PartitionInactive", "the partition is down: it starts when an administrator enables it again"),
    (r"PartitionTimeLimit", f"the partition allows less time: {_AGAIN} --time-limit HH:MM:SS"),
    (r"PartitionNodeLimit|PartitionConfig", "the partition gives a job fewer nodes: name another, or a smaller scale"),
    (r"ReqNodeNotAvail.*Reserved", "nodes are reserved for others, or for maintenance: scontrol show reservation"),
    (r"ReqNodeNotAvail|Nodes required for job are DOWN|NodeDown", "nodes are out of service: sinfo -R says why"),
    (r"BadConstraints", f"no node has what it asks for: {_AGAIN} --slurm-arg KEY=VALUE"),
    (r"Licenses", "licenses are in use: scontrol show licenses"),
    (r"Reservation", "its reservation has not begun or has ended: scontrol show reservation"),
    (
        r"DependencyNeverSatisfied",
        f"the job that it depends on has failed, so it never starts: {_AGAIN} --slurm-arg dependency=null",
    ),
    (r"Dependency", "it waits for another job, as --slurm-arg dependency asked: scontrol show job JOB"),
    (r"BeginTime", "it starts later: --slurm-arg begin asked for that, or it was requeued"),
    (r"launch failure|JobLaunchFailure", "its node could not start it: scontrol release JOB, once the node is well"),
)


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
        fields = line.split("|", 6)
        if len(fields) == 7:
            job_id, shown, code, start, end, reason, name = fields
            yield Row(job_id=job_id, name=name, state=_state(shown, reason, start, end, code))


def read_queue(text: str) -> Iterator[Row]:
    """The rows of squeue's answer."""
    for line in text.splitlines():
        fields = line.split("|", 5)
        if len(fields) == 6:
            job_id, shown, reason, start, end, name = fields
            yield Row(job_id=job_id, name=name, state=_state(shown, reason, start, end, ""))


def _state(shown: str, reason: str, start: str, end: str, code: str) -> JobState:
    word, why = state_word(shown), reason_of(shown, reason)
    is_end = word in ENDS
    return JobState(
        state=word,
        reason=why,
        exit_code=read_exit_code(code) if is_end else None,
        started=epoch_seconds(start) if word not in WAITING else None,  # of a waiting job it is a forecast
        ended=epoch_seconds(end) if is_end else None,
        fix=advice_for(why) if word in WAITING else "",
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


def advice_for(reason: str) -> str:
    """What to do about a job that waits for ``reason``; empty where waiting is all there is to do."""
    return next((text for pattern, text in _MEANINGS if re.search(pattern, reason)), "")


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
