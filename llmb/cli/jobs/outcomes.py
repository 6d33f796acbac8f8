# SPDX-License-Identifier: Apache-2.0
"""What runs measured and their verdicts, for a list: from kept summaries, with few logs read."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmb.cli.context import Context
from llmb.cli.reading import flops_of, peaks_of, result_of
from llmb.cli.results import judged
from llmb.results import summary
from llmb.results.result import Result
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState

READ = 16  # logs that a list reads at most; `results` reads them all
FIELDS = ("metric", "value", "unit", "ratio", "verdict")


def outcomes(
    context: Context, runs: Sequence[RunRecord], states: Mapping[str, JobState], most: int | None = None
) -> tuple[dict[str, Result], int]:
    """The judged results of those ``runs`` that have ended, by their ids, and how many of them were not read.

    The logs of the newest runs without a current summary are read (``most``, READ where None) and kept.
    """
    most = READ if most is None else most
    peaks = peaks_of(context, runs)
    found: dict[str, Result] = {}
    unread: list[RunRecord] = []
    for run in runs:
        state, peak = states[run.id], peaks[run.job.gpu_type, run.job.dtype]
        if not state.is_end or state.is_refused:
            continue
        kept = summary.load(run)
        if kept is not None and state.is_final and kept.is_current(run, peak, flops_of(context, run.job)):
            found[run.id] = kept.result_of(run)
        else:
            unread.append(run)
    for run in unread[max(0, len(unread) - most) :]:
        found[run.id] = result_of(context, run, states[run.id], peaks[run.job.gpu_type, run.job.dtype], None)
    results = judged(context, list(found.values()))
    return dict(zip(found, results, strict=True)), max(0, len(unread) - most)


def outcome_data(result: Result | None) -> dict[str, Any]:
    """The values of FIELDS: the headline metric, its mean and unit, the ratio to the reference, and the verdict."""
    own = result.metrics.value if result is not None else None
    if result is None:
        return dict.fromkeys(FIELDS)
    return {
        "metric": result.metrics.headline if own is not None else None,
        "value": own and own.mean,
        "unit": own and own.unit,
        "ratio": result.verdict.ratio,
        "verdict": result.verdict.word,
    }
