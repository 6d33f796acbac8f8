# SPDX-License-Identifier: Apache-2.0
"""`llmb-run explain`: how one run's figures and its verdict are computed, or why it failed."""

import re
from pathlib import Path

import click

from llmb.builtin.torch import torch_pretrain
from llmb.cli import options
from llmb.cli.choice import Choice, price_option
from llmb.cli.compare import baseline_instead
from llmb.cli.context import CliContext, completed, pass_context
from llmb.cli.judging import judged, results_of, states_of
from llmb.cli.reading import flops_of, opened_run, peak_of, spec_of
from llmb.contract.formats import ParseSpec
from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.contract.rows import Row, find_row
from llmb.contract.window import parse_window
from llmb.core import console
from llmb.core.tables import escape, output_width
from llmb.judge.explain import WIDTH, Subject, explain
from llmb.judge.export import Baseline
from llmb.judge.judge import pool_key
from llmb.judge.reference import References
from llmb.kit.seen_state import last_seen
from llmb.measure.failure_causes import Cause
from llmb.measure.find_logs import log_of
from llmb.measure.result import Result
from llmb.measure.result_notes import REFUSED_KIND, cause_of_end
from llmb.measure.run_result import with_cost
from llmb.plan.images import recorded_digest
from llmb.plan.published import Figure
from llmb.run import store
from llmb.run.sessions import session_of

UNKNOWN_CAUSE = "unknown"
_LOOK = "llmb-run jobs logs RUN shows the training log, --batch the output of the script"


@click.command("explain")
@click.argument("run", metavar="[ARCHIVE] RUN", nargs=-1, required=True)
@options.window_option
@options.baseline_option
@options.reference_option
@price_option
@options.read_option
@pass_context
def command(
    context: CliContext,
    run: tuple[str, ...],
    window: str | None,
    baseline: str | None,
    reference: str | None,
    price: float | None,
) -> None:
    """Explain the figures of RUN, or why it failed and how to fix it."""
    name = opened_run(context, run)
    choice = Choice(window=parse_window(window) if window is not None else None, price=price)
    against = baseline_instead(context, baseline, reference, choice)
    print_explanation(context, name, choice, reference, against)


def cause_of(result: Result) -> Cause:
    """The cause of a failed run: from its logs or its scheduler, else UNKNOWN_CAUSE."""
    return result.cause or Cause(
        kind=UNKNOWN_CAUSE, line=result.reason or "nothing in the logs", advice=_LOOK
    )


def print_explanation(
    context: CliContext,
    name: str,
    choice: Choice,
    reference: str | None,
    baseline: Baseline | None,
) -> None:
    """Print the explanation of the run ``name``.

    Runs of the ``baseline`` count as repeats of each other only.
    """
    runs = context.runs()
    (run,) = store.find_runs((name,), runs)
    accepted = (
        {result.identity.run for result in baseline.results} if baseline is not None else set()
    )
    key, is_accepted = run.job.settings.key, run.id in accepted
    repeats = [
        candidate
        for candidate in runs
        if candidate.job.settings.key == key
        and (candidate.id in accepted) == is_accepted
        and session_of(candidate).id == session_of(run).id
    ]
    price = choice.price or context.config.price_per_gpu_hour
    results = [
        with_cost(result, price)
        for result in results_of(context, repeats, states_of(context, repeats), choice.window)
    ]
    results = judged(context, results, reference, baseline, runs)
    figures = context.figures([run.job.workload]) if baseline is None else ()
    subject = _subject(context, run, results, References(figures, reference))
    lines = explain(subject).splitlines()
    lines += [
        f"{'plugins':{WIDTH}}{source} changed {', '.join(names)}"
        for source, names in run.launch.changed_by.items()
    ]
    width = output_width()
    wrapped = (console.wrap_line(escape(line), width, WIDTH) for line in lines)
    console.echo(completed("\n".join(wrapped)), coloured=True, links=[log_of(run)])


def _subject(
    context: CliContext, run: RunRecord, results: list[Result], references: References
) -> Subject:
    (subject,) = (result for result in results if result.identity.run == run.id)
    spec = spec_of(context, run)
    cause, fix = _cause(run, subject) if subject.is_failure else ("", "")
    if not subject.is_failure and not (state := last_seen(run)).is_end:
        fix = _filled_in(state.fix, run)  # of its scheduler's reason for waiting
    return Subject(
        result=subject,
        job=run.job,
        figure=figure_of(subject, references),
        cause=cause,
        fix=context.advice(fix),
        peak_tflops=peak_of(context, run.job),
        row=row_of(context, run.job),
        digest=None if run.job.image is None else recorded_digest(run.job.image, context.config),
        repeats=[
            repeat
            for repeat in results
            if repeat.verdict.ratio is not None and pool_key(repeat) == pool_key(subject)
        ],
        tflops_note=tflops_note_of(spec),
        log_note=_log_note(log_of(run), is_open=subject.is_open),
        flops=flops_of(context, run.job),
        origin=str(run.origin or ""),
        program=torch_pretrain.name_of(run.launch.program),
    )


def tflops_note_of(spec: ParseSpec) -> str:
    """Return why the framework's own TFLOPS are wrong, empty if they are right."""
    return "" if spec.tflops_valid else spec.tflops_note or "wrong for this model"


def figure_of(result: Result, references: References) -> Figure | None:
    """The published figure that a judged result is compared with."""
    configuration, reference = result.identity.configuration, result.verdict.reference
    if reference is None or configuration is None:
        return None
    figures, _ = references.find(configuration, result.metrics)
    compared = [figure for figure in figures if figure.metric.name == reference.metric]
    return next(iter([*compared, *figures]), None)


def row_of(context: CliContext, job: Job) -> Row | None:
    """The row of the workload's table for this job's GPUs and batch, or None without one."""
    workload = context.workloads.get(job.workload)
    framework = workload.frameworks.get(job.framework) if workload is not None else None
    if workload is None or job.model_size not in workload.sizes:
        return None
    if framework is not None and job.release is not None:
        rows = framework.rows_for(workload).get(job.model_size, {}).get(job.release, ())
        gpu, strong = job.rows_of or job.gpu_type, bool(job.switches.strong_scaling)
        return find_row(rows, gpu, job.dtype, job.scale, strong=strong)
    fitting = (
        row
        for row in workload.sizes[job.model_size].rows
        if row.fits(job.gpu_type, job.dtype) and job.scale in row.scales.counts
    )
    batch = job.training.gbs if job.training is not None else None
    return next((row for row in fitting if row.batch(job.scale) == batch), None)


def _log_note(log: Path, *, is_open: bool) -> str:
    yet = " yet" if is_open else ""
    try:
        return f" (empty{yet})" if log.stat().st_size == 0 else ""
    except OSError:
        return f" (does not exist{yet})"


def _filled_in(fix: str, run: RunRecord) -> str:
    """The fix with the names of this run, so that its commands can be pasted."""
    names = {"RUN": run.id, "JOB": run.scheduler_id or "JOB", "WORKLOAD": run.job.workload}
    return re.sub(rf"\b({'|'.join(names)})\b", lambda match: names[match[1]], fix)


def _kept_options(run: RunRecord) -> str:
    """The scheduler's options that a retry keeps, and for which it would be refused again."""
    words = " ".join(
        options.slurm_arg_in_words(name, value) for name, value in run.launch.slurm_args.items()
    )
    return f", which keeps {words} unless you override it" if words else ""


def _cause(run: RunRecord, result: Result) -> tuple[str, str]:
    """The cause of a failed run, and the fix."""
    cause, state = cause_of(result), store.seen_state(run)
    fix = _filled_in(cause.fix, run)
    if cause.kind == REFUSED_KIND:
        fix = f"{fix}; then llmb-run jobs retry {run.id}{_kept_options(run)}"
    in_status = result.cause is None or (state is not None and result.cause == cause_of_end(state))
    return (cause.kind if in_status else str(cause)), fix
