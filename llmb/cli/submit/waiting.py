# SPDX-License-Identifier: Apache-2.0
"""The end of a submission with `--wait`: follows its jobs, then prints their results.

Imported by commands that wait: others need neither views nor verdicts.
"""

from collections.abc import Sequence
from typing import Any

from llmb.cli import progress
from llmb.cli.choice import sessions_of
from llmb.cli.context import CliContext, say
from llmb.cli.judging import judged, results_of, states_of
from llmb.cli.results import comparable_baseline, print_report
from llmb.cli.submit.options import SubmitOptions
from llmb.contract.record import RunRecord
from llmb.run.backlog import Backlog


def follow_and_report(
    context: CliContext,
    runs: Sequence[RunRecord],
    done: Sequence[RunRecord],
    options: SubmitOptions,
    backlog: Backlog[Any],
) -> int:
    """Follow ``runs`` to their ends, and print their results and those of the runs ``done`` before.

    The jobs of ``backlog`` are submitted as others end. Returns the exit code of the verdicts.
    """
    followed, _ = progress.follow(context, runs, options.retries, backlog)
    if backlog.count:
        say(f"{backlog.count} were not submitted: {backlog.command}")
    ended = [*done, *followed]
    results = results_of(context, ended, states_of(context, ended))
    # Earlier runs show what is unusual about these.
    results = judged(context, results, runs=context.runs())
    code = print_report(
        results,
        options.fmt,
        full_names=False,
        baseline=comparable_baseline(context, results),
        sessions=sessions_of(ended),
    )
    if options.ab is not None:
        say("Compare B with A: llmb-run compare")
    return code
