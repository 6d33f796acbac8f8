# SPDX-License-Identifier: Apache-2.0
"""Gathers what the explanation of one run needs, its repeats and the published figures among it, and prints it."""

import re
from pathlib import Path

from llmb.cli.context import Context
from llmb.cli.explain.causes import cause_of
from llmb.cli.options import slurm_arg_in_words
from llmb.cli.results.judged import judged, results_of, spec_of
from llmb.config.images import recorded_digest
from llmb.results import Result
from llmb.results.configuration import of_job
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import REFUSED
from llmb.stats.measure import Window
from llmb.system import console
from llmb.text.tables import escape
from llmb.verdict import find_reference, pool_key
from llmb.verdict.explain import Told, explain
from llmb.workload.rows import Row


def print_explanation(context: Context, name: str, window: Window | None, reference: str | None) -> None:
    """Print the explanation of the run that ``name`` means."""
    runs = context.runs()
    (run,) = store.find_runs((name,), runs)
    alike = [other for other in runs if of_job(other.job) == of_job(run.job)]  # of others no log is read
    results = judged(context, results_of(context, alike, window), reference)
    told = _told(context, run, results, reference)
    console.echo("\n".join(escape(line) for line in explain(told).splitlines()))


def _told(context: Context, run: RunRecord, results: list[Result], reference: str | None) -> Told:
    (own,) = (result for result in results if result.run == run.id)
    figure = None
    if own.reference is not None and own.configuration is not None:
        figure, _ = find_reference(own.configuration, context.figures([run.job.workload]), reference)
    spec = spec_of(context, run)
    cause, fix = _cause(run, own) if own.is_failure else ("", _advice(run))
    return Told(
        result=own,
        job=run.job,
        figure=figure,
        cause=cause,
        fix=fix,
        peak_tflops=context.config.gpu(run.job.gpu_type).peak_tflops.get(run.job.dtype),
        row=row_of(context, run.job),
        digest=None if run.job.image is None else recorded_digest(run.job.image, context.config),
        repeats=[other for other in results if other.ratio is not None and pool_key(other) == pool_key(own)],
        tflops_note="" if spec.tflops_valid else spec.tflops_note or "they are wrong for this model",
        log_note=_log_note(own),
    )


def row_of(context: Context, job: Job) -> Row | None:
    """The row of the workload's table for this job's GPUs and batch, where the workload is installed and has one."""
    workload = context.workloads.get(job.workload)
    size = workload.sizes.get(job.model_size) if workload is not None else None
    rows = [row for row in size.rows if row.fits(job.gpu_type, job.dtype)] if size is not None else []
    return next((row for row in rows if job.scale in row.scales.counts and row.gbs.batch(job.scale) == job.gbs), None)


def _log_note(result: Result) -> str:
    yet = " yet" if result.is_open else ""
    try:
        return f" (empty{yet})" if Path(result.path).stat().st_size == 0 else ""
    except OSError:
        return f" (not there{yet})"


def _advice(run: RunRecord) -> str:
    """What to do about a run that has not ended, where its scheduler's word on why it waits says so."""
    state = store.seen_state(run)
    return "" if state is None or state.is_end else _filled_in(state.fix, run)


def _filled_in(fix: str, run: RunRecord) -> str:
    """The fix with the names of this very run, so that its commands can be copied."""
    names = {"RUN": run.id, "JOB": run.scheduler_id or "JOB", "WORKLOAD": run.job.workload}
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], fix)


def _kept(run: RunRecord) -> str:
    """What the next attempt of a run would be refused for again, where the command line gave it."""
    given = " ".join(slurm_arg_in_words(name, value) for name, value in run.launch.slurm_args.items())
    return f", which keeps {given} unless it is given anew" if given else ""


def _cause(run: RunRecord, result: Result) -> tuple[str, str]:
    found = cause_of(result)
    fix = _filled_in(found.fix, run)
    if (result.reason or "").startswith(REFUSED):
        fix = f"{fix}; then llmb-run jobs retry {run.id}{_kept(run)}"
    # What the scheduler alone says of the end is in the status already.
    return (found.kind if (result.reason or "").startswith(found.line) else str(found)), fix
