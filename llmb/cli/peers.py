# SPDX-License-Identifier: Apache-2.0
"""Other runs of the same install directory, with which a command compares the conditions of its own."""

from collections.abc import Sequence

from llmb.cli.context import Context
from llmb.results import summary
from llmb.results.result import Result

MOST = 200  # the latest ones


def kept_results(context: Context, own: Sequence[Result]) -> list[Result]:
    """The kept results, not judged, of the latest runs of this install directory that are not among ``own``.

    Empty where ``own`` are logs or another cluster's runs. Only summaries are read, never a log.
    """
    names = {result.identity.run for result in own}
    runs = context.every or ()
    if all(run.id not in names for run in runs):
        return []
    others = sorted((run for run in runs if run.id not in names), key=lambda run: -run.created)[:MOST]
    return [kept.result_of(run) for run in others if (kept := summary.load(run)) is not None]
