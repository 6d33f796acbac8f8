# SPDX-License-Identifier: Apache-2.0
"""What sbatch answers to a submission: the job's id, a refusal, or something that leaves open which of the two. Pure.

A site's wrapper around sbatch may print notices of its own before the id, in place of it, or instead of an exit code.
"""

import re

from llmb.clusters.base import UnclearError
from llmb.clusters.slurm.commands import is_silence, last_line
from llmb.clusters.slurm.refused import hint_for
from llmb.errors import LlmbError
from llmb.system.shell import Completed

_NO_ROOM = "temporarily unable to accept job"
_FAILED = "Batch job submission failed: "
_ID = re.compile(r"^(?:Submitted batch job )?(\d{1,18})(?:;\S*| on cluster \S+)?$", re.ASCII)
_RECONCILE = "llmb-run jobs reconcile"
_SHOWN = 200  # characters of an answer that a message repeats


def job_id_of(done: Completed) -> str:
    """The id of the job that sbatch says it has submitted.

    Raises LlmbError for a refusal, UnclearError for every answer that does not say whether the job was taken: whoever
    gets that looks for the job by its name.
    """
    ids = {match[1] for line in done.out.splitlines() if (match := _ID.match(line.strip()))}
    if done.code == 0:
        if len(ids) == 1:
            return ids.pop()
        raise UnclearError(f"sbatch ended without {_what(ids)}{_quoted(done.out or done.err)}", hint=_RECONCILE)
    if _NO_ROOM in done.err:  # sbatch has tried again for minutes, and this may have been its last word
        message = "Slurm takes no more jobs at the moment: its queue is full (MaxJobCount)"
        raise UnclearError(message, hint=f"{_RECONCILE}, once jobs have ended")
    said = last_line(done.err).removeprefix(_FAILED)
    if is_silence(done.err):
        raise UnclearError(f"Slurm does not answer: {said}", hint=f"{_RECONCILE}, once it does")
    if ids or done.code < 0 or not (said or done.out.strip()):
        how = f"was killed by signal {-done.code}" if done.code < 0 else f"ended with exit code {done.code}"
        raise UnclearError(f"sbatch {how}{_quoted(done.out or done.err)}", hint=_RECONCILE)
    said = said or last_line(done.out)
    raise LlmbError(f"Slurm refused it: {said}", hint=hint_for(said))


def _what(ids: set[str]) -> str:
    return "a job id" if not ids else "one job id alone"


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return f"; it printed: {shown[:_SHOWN]}" if shown else " and printed nothing"
