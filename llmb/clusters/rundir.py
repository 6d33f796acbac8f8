# SPDX-License-Identifier: Apache-2.0
"""What a run's own folder says about it: its script writes the job's id first and the exit code last."""

from dataclasses import dataclass
from pathlib import Path

from llmb.clusters.bashscript import ENDED, SCHEDULER_ID
from llmb.runs.record import RunRecord

_TAIL = 16384  # bytes at the end of a log


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """What a run's script has written: the job that runs it, start, exit code and end; times in epoch seconds."""

    job_id: str | None = None
    started: float | None = None
    exit_code: int | None = None
    ended: float | None = None


def read(run: RunRecord) -> RunFiles:
    """What the script of the run's present attempt has written so far."""
    first = lines(run.place / SCHEDULER_ID)
    last = lines(run.place / ENDED)
    facts = dict(line.split(" ", 1) for line in [*first[1:], *last[1:]] if " " in line)
    return RunFiles(
        job_id=first[0] if first and first[0] else None,
        started=_number(facts.get("started")),
        exit_code=int(last[0]) if last and last[0].isdecimal() else None,
        ended=_number(facts.get("ended")),
    )


def lines(path: Path) -> list[str]:
    """The lines of a small file; empty where it does not exist yet."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def tail(path: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
