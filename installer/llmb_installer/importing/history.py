# SPDX-License-Identifier: Apache-2.0
"""Reads the history of jobs that exemplar-performance keeps since release 26.05."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote


def states_in(folder: Path) -> dict[str, str]:
    """Slurm's last known state of each job by its id, from the history that releases since 26.05 keep.

    The database is opened read-only, and without the files that SQLite makes beside one.
    """
    path = folder / ".llmb" / "jobs.sqlite3"
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as history:
            rows = history.execute("SELECT job_id, slurm_state FROM jobs WHERE slurm_state IS NOT NULL").fetchall()
    except sqlite3.Error:  # damaged, or of a later version: the logs are enough
        return {}
    return {str(job): str(state).split()[0].upper() for job, state in rows if str(state).strip()}
