# SPDX-License-Identifier: Apache-2.0
"""Reads the history of jobs that newer releases of exemplar-performance keep."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

_MOST_JOBS = 1_000_000
_PATIENCE = 10.0  # seconds: the table may be a view without an end
_INSTRUCTIONS = 100_000  # of SQLite's machine between two looks at the clock


def read_states(folder: Path) -> dict[str, str]:
    """Return Slurm's last known state of each job by id, from the history of newer releases.

    The database is opened read-only, and without the files that SQLite makes beside one.
    """
    path = folder / ".llmb" / "jobs.sqlite3"
    if not path.is_file():
        return {}
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        ) as history:
            deadline = time.monotonic() + _PATIENCE
            history.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS)
            rows = history.execute(
                "SELECT job_id, slurm_state FROM jobs WHERE slurm_state IS NOT NULL LIMIT ?",
                (_MOST_JOBS,),
            ).fetchall()
    # damaged, endless, or of a later version: the logs are enough
    except (sqlite3.Error, UnicodeError):
        return {}
    return {str(job): str(state).split()[0].upper() for job, state in rows if str(state).strip()}
