# SPDX-License-Identifier: Apache-2.0
"""Jobs that are not in the scheduler's queue yet: their user, or the scheduler, limits its length.

They are submitted as jobs end, in their order, each exactly once: a run that a full queue turned
away is recorded, and is looked for before it is submitted again.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from llmb.contract.cluster import Cluster
from llmb.contract.record import RunRecord
from llmb.core import files
from llmb.errors import LlmbError
from llmb.kit.seen_state import last_seen
from llmb.run.polling import poll
from llmb.run.submission import Sent, SubmitResult

T = TypeVar("T")
OnResult = Callable[[SubmitResult], None]
_TRY_AGAIN = 30.0  # seconds until a full queue is tried again, though none of these jobs has ended


def open_runs(cluster: Cluster, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return those of this user's ``runs`` that are in the queue, waiting or running.

    Raises LlmbError if the cluster does not answer.
    """
    candidates = [
        run
        for run in runs
        if run.origin is None
        and files.owner(run.directory) in (None, os.getuid())
        and not last_seen(run).is_end
    ]
    states = poll(cluster, candidates) if candidates else {}
    return [run for run in candidates if not states[run.id].is_over]


@dataclass(slots=True, kw_only=True)
class Backlog(Generic[T]):
    """Jobs that wait for a free place in the queue: new ones, or the next attempts of runs."""

    cluster: Cluster
    #: Submits jobs in their order, up to a refusal, a full queue or Ctrl-C.
    send: Callable[[Sequence[T], OnResult], Sent[T]]
    #: Submits recorded runs, after a look for them, up to a full queue or Ctrl-C.
    resend: Callable[[Sequence[RunRecord], OnResult], tuple[list[SubmitResult], bool]]
    #: The most of this user's jobs in the queue, None without a limit.
    limit: int | None
    items: tuple[T, ...]
    #: The command that submits the rest later.
    command: str
    #: Recorded runs that come first: a full queue turned them away, or a submission was cut off.
    turned_away: tuple[RunRecord, ...] = ()
    #: This user's other jobs in the queue.
    others: Sequence[RunRecord] = ()
    #: The number of the list's own jobs that were in the queue before.
    under_way: int = 0
    #: Refused jobs.
    refused: int = 0
    #: True after a refusal or Ctrl-C: the rest is left to the user.
    is_stopped: bool = False
    interrupted: bool = False
    #: The answer of the scheduler if it had no place for the last job, else None.
    full: LlmbError | None = None
    #: When that was, and the number of these jobs that were in the queue.
    _tried: float = field(default=0.0, init=False)
    _in_queue: int = field(default=0, init=False)

    @property
    def count(self) -> int:
        """The number of jobs that are not in the queue."""
        return len(self.items) + len(self.turned_away)

    @property
    def is_due(self) -> bool:
        """Return True if jobs remain that are submitted as soon as there is a free place."""
        return bool(self.count) and not self.is_stopped

    @property
    def is_full(self) -> bool:
        """Return True if the scheduler had no place for the last job."""
        return self.full is not None

    def refill(self, in_queue: int, on_result: OnResult) -> list[SubmitResult]:
        """Submit as many jobs as there are free places, besides ``in_queue`` of these jobs.

        Calls ``on_result`` for each, and returns the results without those that the queue turned
        away. Raises LlmbError if the cluster does not answer.
        """
        if not self.is_due or not self._may_try(in_queue):
            return []
        places = self._places(in_queue)
        self.full = None
        results = self._send_again(places, on_result)
        places -= len(results)
        if places > 0 and self.items and not (self.is_full or self.is_stopped):
            results += self._send_new(places, on_result)
        if self.is_full:
            self._tried = time.monotonic()
            self._in_queue = in_queue + sum(result.error is None for result in results)
        return results

    def _may_try(self, in_queue: int) -> bool:
        """Return True unless the queue was full a moment ago and none of these jobs has ended."""
        is_recent = time.monotonic() - self._tried < _TRY_AGAIN
        return self.full is None or in_queue < self._in_queue or not is_recent

    def _places(self, in_queue: int) -> int:
        if self.limit is None:
            return self.count
        self.others = open_runs(self.cluster, self.others)
        return max(self.limit - in_queue - len(self.others), 0)

    def _send_again(self, places: int, on_result: OnResult) -> list[SubmitResult]:
        """Submit the runs that were turned away, up to the first that is turned away again."""
        runs = self.turned_away[:places]
        if not runs:
            return []
        results, self.interrupted = self.resend(runs, on_result)
        over = {result.run.id for result in results if not result.is_turned_away}
        self.turned_away = tuple(run for run in self.turned_away if run.id not in over)
        return self._counted(results)

    def _send_new(self, places: int, on_result: OnResult) -> list[SubmitResult]:
        items, later_items = self.items[:places], self.items[places:]
        sent = self.send(items, on_result)
        self.items, self.interrupted = (*sent.untried, *later_items), sent.interrupted
        self.turned_away += tuple(result.run for result in sent.results if result.is_turned_away)
        results = self._counted(sent.results)
        # Jobs of which a refusal keeps the others back are left to the user.
        self.is_stopped |= bool(sent.untried) and not self.is_full
        return results

    def _counted(self, results: Sequence[SubmitResult]) -> list[SubmitResult]:
        """Return ``results`` without those that the queue turned away, which it remembers."""
        self.full = next((result.error for result in results if result.is_turned_away), self.full)
        ended = [result for result in results if not result.is_turned_away]
        self.refused += sum(result.error is not None for result in ended)
        self.is_stopped |= self.interrupted
        return ended
