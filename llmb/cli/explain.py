# SPDX-License-Identifier: Apache-2.0
"""`llmb-run explain`: how one run's figures and its verdict are computed, or why it failed."""

import re
from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.compare import baseline_instead
from llmb.cli.context import Context, completed, pass_context
from llmb.cli.reading import flops_of, opened_run, peak_of, spec_of
from llmb.cli.results import Choice, judged, results_of
from llmb.config.images import recorded_digest
from llmb.failures import Cause
from llmb.results.description import configuration_of
from llmb.results.find import log_of
from llmb.results.reason import REFUSED_KIND, cause_of_end
from llmb.results.result import Result
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.stats.measure import Window, parse_window
from llmb.system import console
from llmb.text.tables import escape
from llmb.verdict.explain import WIDTH, Subject, explain
from llmb.verdict.export import Baseline
from llmb.verdict.judge import pool_key
from llmb.verdict.reference import References
from llmb.workload.bridge import table_of
from llmb.workload.published import Figure
from llmb.workload.rows import Row

UNKNOWN_CAUSE = "unknown"
_LOOK = "llmb-run jobs logs RUN shows the training log, --batch the output of the script"


@click.command("explain")
@click.argument("run", metavar="[ARCHIVE] RUN", nargs=-1, required=True)
@options.window_option
@options.baseline_option
@options.reference_option
@options.read_option
@pass_context
def command(
    context: Context, run: tuple[str, ...], window: str | None, baseline: str | None, reference: str | None
) -> None:
    """Explain the figures of RUN, or why it failed and how to fix it."""
    name = opened_run(context, run)
    choice = Choice(window=parse_window(window) if window is not None else None)
    against = baseline_instead(context, baseline, reference, choice)
    print_explanation(context, name, choice.window, reference, against)


def cause_of(result: Result) -> Cause:
    """The cause of a failed run: from its logs or its scheduler, else UNKNOWN_CAUSE."""
    return result.cause or Cause(kind=UNKNOWN_CAUSE, line=result.reason or "nothing in the logs", advice=_LOOK)


def print_explanation(
    context: Context, name: str, window: Window | None, reference: str | None, baseline: Baseline | None
) -> None:
    """Print the explanation of the run called ``name``; runs of the ``baseline`` are no repeats of other ones."""
    runs = context.runs()
    (run,) = store.find_runs((name,), runs)
    accepted = {result.identity.run for result in baseline.results} if baseline is not None else set()
    alike = [other for other in runs if configuration_of(other.job) == configuration_of(run.job)]
    alike = [other for other in alike if (other.id in accepted) == (run.id in accepted)]
    results = judged(context, results_of(context, alike, window), reference, baseline)
    figures = context.figures([run.job.workload]) if baseline is None else ()
    subject = _subject(context, run, results, References(figures, reference))
    lines = explain(subject).splitlines()
    lines += [f"{'plugins':{WIDTH}}{source} changed {', '.join(own)}" for source, own in run.launch.changed_by.items()]
    console.echo(completed("\n".join(escape(line) for line in lines)))


def _subject(context: Context, run: RunRecord, results: list[Result], references: References) -> Subject:
    (own,) = (result for result in results if result.identity.run == run.id)
    spec = spec_of(context, run)
    cause, fix = _cause(run, own) if own.is_failure else ("", "")
    if not own.is_failure and (state := store.seen_state(run)) is not None and not state.is_end:
        fix = _filled_in(state.fix, run)  # of its scheduler's reason for waiting
    return Subject(
        result=own,
        job=run.job,
        figure=figure_of(own, references),
        cause=cause,
        fix=context.advice(fix),
        peak_tflops=peak_of(context, run.job),
        row=row_of(context, run.job),
        digest=None if run.job.image is None else recorded_digest(run.job.image, context.config),
        repeats=[other for other in results if other.verdict.ratio is not None and pool_key(other) == pool_key(own)],
        tflops_note="" if spec.tflops_valid else spec.tflops_note or "wrong for this model",
        log_note=_log_note(log_of(run), is_open=own.is_open),
        flops=flops_of(context, run.job),
        origin=str(run.origin or ""),
    )


def figure_of(result: Result, references: References) -> Figure | None:
    """The published figure that a judged result is compared with."""
    own = result.identity.configuration
    if result.verdict.reference is None or own is None:
        return None
    return references.find(own, result.metrics)[0]


def row_of(context: Context, job: Job) -> Row | None:
    """The row of the workload's table for this job's GPUs and batch; None without one."""
    workload = context.workloads.get(job.workload)
    size = workload.sizes.get(job.model_size) if workload is not None else None
    if workload is not None and job.release is not None:
        own = table_of(workload).sizes.get(job.model_size)
        return own.row(job.release, job.rows_of or job.gpu_type, job.dtype, job.scale) if own is not None else None
    rows = [row for row in size.rows if row.fits(job.gpu_type, job.dtype)] if size is not None else []
    batch = job.training.gbs if job.training is not None else None
    return next((row for row in rows if job.scale in row.scales.counts and row.batch(job.scale) == batch), None)


def _log_note(log: Path, *, is_open: bool) -> str:
    yet = " yet" if is_open else ""
    try:
        return f" (empty{yet})" if log.stat().st_size == 0 else ""
    except OSError:
        return f" (does not exist{yet})"


def _filled_in(fix: str, run: RunRecord) -> str:
    """The fix with the names of this run, so that its commands can be pasted."""
    names = {"RUN": run.id, "JOB": run.scheduler_id or "JOB", "WORKLOAD": run.job.workload}
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], fix)


def _kept(run: RunRecord) -> str:
    """The scheduler's options from the command line, for which the next attempt would be refused again."""
    given = " ".join(options.slurm_arg_in_words(name, value) for name, value in run.launch.slurm_args.items())
    return f", which keeps {given} unless you override it" if given else ""


def _cause(run: RunRecord, result: Result) -> tuple[str, str]:
    """The cause of a failed run, and the fix."""
    found, state = cause_of(result), store.seen_state(run)
    fix = _filled_in(found.fix, run)
    if found.kind == REFUSED_KIND:
        fix = f"{fix}; then llmb-run jobs retry {run.id}{_kept(run)}"
    in_status = result.cause is None or (state is not None and result.cause == cause_of_end(state))
    return (found.kind if in_status else str(found)), fix
