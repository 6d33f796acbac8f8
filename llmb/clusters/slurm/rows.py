# SPDX-License-Identifier: Apache-2.0
"""What sacct, squeue and scontrol say of jobs: the questions, and their answers as values."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.clusters.slurm import states, waiting
from llmb.clusters.slurm.commands import Client, portions
from llmb.errors import LlmbError
from llmb.runs.state import ENDS, WAITING, JobState

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
    return states.exit_code(match[1]) if match else None


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
    word = states.word(said)
    is_end, reason = word in ENDS, states.reason(said, told)
    return JobState(
        state=word,
        reason=reason,
        exit_code=states.exit_code(code) if is_end else None,
        started=states.seconds(start) if word not in WAITING else None,  # of a waiting job it is a forecast
        ended=states.seconds(end) if is_end else None,
        fix=waiting.meaning(reason) if word in WAITING else "",
    )
