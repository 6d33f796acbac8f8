# SPDX-License-Identifier: Apache-2.0
"""Settles a run whose runner is gone: what it has left running is ended, and how it ended is written down."""

from pathlib import Path

from llmb.clusters.local import journal
from llmb.clusters.local.journal import End, Journal, end_now
from llmb.clusters.local.ranks import sweep
from llmb.errors import LlmbError
from llmb.runs.state import CANCELLED, FAILED, LOST

RESTARTED = "this machine was restarted while it ran"
KILLED = "its runner was killed"


def is_abandoned(seen: Journal) -> bool:
    """Whether the run has no end and nobody left who would write one. Only to be asked on the host it ran on."""
    return seen.end is None and not (seen.runner is not None and seen.runner.is_alive())


def settle(directory: Path, seen: Journal) -> End:
    """The end of an abandoned run, which stands from now on.

    Where it cannot be written (another user's run, a full disk), it is told all the same.
    """
    again = journal.read(directory)  # its runner may have written the end just before it went
    if again is not None and again.end is not None:
        return again.end
    end = _end_of(directory, seen)
    try:
        return journal.conclude(directory, seen.id, end)
    except LlmbError:
        return end


def _end_of(directory: Path, seen: Journal) -> End:
    if seen.runner is not None and not seen.runner.is_of_this_boot:
        return end_now(LOST, RESTARTED)
    sweep(seen.id)
    if cancelled := journal.cancelled_by(directory):
        return end_now(CANCELLED, cancelled)
    return end_now(FAILED, KILLED)
