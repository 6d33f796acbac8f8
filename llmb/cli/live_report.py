# SPDX-License-Identifier: Apache-2.0
"""The report on runs that are followed: a file that is written anew until they have ended."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from llmb.cli import report
from llmb.cli.context import CliContext, say
from llmb.cli.judging import results_of
from llmb.contract.record import RunRecord
from llmb.contract.state import JobState
from llmb.core import files
from llmb.errors import LlmbError
from llmb.kit.seen_state import last_seen
from llmb.run.follow import OnRound

EVERY = 30  # seconds from one version of the page to the next, and after which a browser reloads it
_PAUSES = 20  # a page that takes a second to write is written every 20 seconds at most


@contextmanager
def rewritten(context: CliContext, runs: Sequence[RunRecord], output: Path) -> Iterator[OnRound]:
    """Write the report on ``runs`` to ``output`` in each round that is due, and once at the end.

    The last version no longer reloads itself. Raises UsageError if ``output`` is no HTML file.
    """
    report.check_page(output)
    live = LiveReport(context, runs, output)
    say(
        f"{output}: the report, rewritten every {EVERY} s until the runs have ended. Open it in a"
        " browser, which reloads it",
        links=[output],
    )
    try:
        yield live
    finally:
        live.write(refresh=0)


class LiveReport:
    """Writes the page in rounds of polling, but seldom enough that a login node does not notice."""

    def __init__(
        self,
        context: CliContext,
        runs: Sequence[RunRecord],
        output: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.context, self.output, self.clock = context, output, clock
        self.runs = {run.id: run for run in runs}
        self.states = {run.id: last_seen(run) for run in runs}
        self.due = 0.0  # by the clock
        self.problem = ""  # the last one that was printed

    def __call__(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        self.runs |= {run.id: run for run in runs}  # a retried run is another attempt
        self.states |= states
        begin = self.clock()
        if begin >= self.due:
            self.write(refresh=EVERY)
            end = self.clock()
            self.due = max(begin + EVERY, end + _PAUSES * (end - begin))

    def write(self, *, refresh: int) -> None:
        """Write the page. A failure is printed once and never ends the wait."""
        runs = list(self.runs.values())
        try:
            results = results_of(self.context, runs, self.states)
            measured = [
                (run, self.states[run.id], result)
                for run, result in zip(runs, results, strict=True)
            ]
            text = report.page_on(self.context, measured, refresh=refresh)
            with files.output(self.output) as stream:
                stream.write(text.encode())
        except (LlmbError, OSError) as error:
            if str(error) != self.problem:
                say(f"warning: the report is not up to date: {error}")
            self.problem = str(error)
