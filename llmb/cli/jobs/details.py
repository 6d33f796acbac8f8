# SPDX-License-Identifier: Apache-2.0
"""One run: a page for people, data for programs, or the job script as it was submitted."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click
import yaml

from llmb.cli import options
from llmb.cli.choice import all_nodes
from llmb.cli.context import CliContext, completed, pass_context
from llmb.cli.jobs.runs_table import outcome_data, outcomes
from llmb.cli.judging import states_of
from llmb.cli.reading import opened_run
from llmb.cli.submit.preview import job_data
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, FAILED, JobState
from llmb.core import console, files, typed
from llmb.core.node_lists import fold
from llmb.core.secrets import is_secret_name
from llmb.core.tables import ANY_WIDTH, escape, output_width, to_json
from llmb.core.times import clock, day_and_time, iso
from llmb.errors import LlmbError
from llmb.judge.value import bounds_of, ratio_in_digits
from llmb.measure.find_logs import log_of
from llmb.measure.result import Result
from llmb.run import store
from llmb.show.results_table import figure

_WIDEST, _LABEL = 100, 12  # characters of a line, and of the labels before it
_TRAINING = ("tp", "pp", "cp", "vp", "ep", "etp", "dp", "mbs", "gbs", "ga")
_UNUSUAL = ("ep", "etp")  # shown where they are above 1


@click.command("show")
@click.argument("run", metavar="[ARCHIVE] RUN", nargs=-1, required=True)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="Output format.",
)
@click.option("--script", is_flag=True, help="Print the job script as it was submitted.")
@options.read_option
@pass_context
def show(context: CliContext, run: tuple[str, ...], fmt: str, script: bool) -> None:
    """Show one run: its job, state, result and files."""
    name = opened_run(context, run)
    if script:
        _show_script(context, name)
    else:
        _show(context, name, fmt)


def _show(context: CliContext, name: str, fmt: str) -> None:
    """Print one run: its job, state, result, files and environment."""
    all_runs = context.runs()
    (run,) = store.find_runs((name,), all_runs)
    key = run.job.settings.key
    repeats = [
        candidate for candidate in all_runs if candidate is run or candidate.job.settings.key == key
    ]
    states = states_of(context, repeats)  # a verdict is on all repeats
    state = states[run.id]
    results, _ = outcomes(context, repeats, states, all_runs, read_at_most=len(repeats))
    result = results.get(run.id)
    if fmt == "text":
        text = completed("\n".join(page(context, run, state, result)))
        console.echo(text, coloured=True, links=[run.directory])
        return
    data = _data(context, run, state, result)
    console.echo(
        to_json(data) if fmt == "json" else yaml.safe_dump(data, sort_keys=False), nl=False
    )


def _show_script(context: CliContext, name: str) -> None:
    """Print the job script of a run as it was submitted. Raises LlmbError if it cannot be read."""
    run = context.runs((name,))[0]
    if run.origin is not None:
        raise LlmbError(
            f"{run.id} is imported: llmb wrote no script for it",
            hint=f"look in {run.origin.folder}",
            code="run-imported",
            key=run.id,
        )
    try:
        console.echo(run.script.read_text(encoding="utf-8", errors="surrogateescape"), nl=False)
    except OSError as error:
        path = context.shown(run.script)
        raise LlmbError(
            f"the script of {run.id} cannot be read: {path}: {error.strerror}",
            hint="submit the same job with --dry-run --format json to see its script",
            code="script-unreadable",
            key=run.id,
            value=context.shown(run.script),
        ) from error


def _data(
    context: CliContext, run: RunRecord, state: JobState, result: Result | None
) -> dict[str, Any]:
    before = [
        {
            "scheduler_id": attempt.scheduler_id,
            "state": attempt.state.state,
            "reason": attempt.state.reason or None,
        }
        for attempt in run.history
    ]
    return {
        "id": run.id,
        "scheduler_id": run.scheduler_id,
        "attempt": run.attempt,
        "before": before,
        "state": state.state,
        "reason": _reason(state, result) or None,
        "fix": _fix(state, result) or None,
        "exit_code": state.exit_code,
        "submitted": iso(run.submitted_at),
        "started": iso(state.started),
        "ended": iso(state.ended),
        "nodes": list(all_nodes(run, state, result)),
        "directory": context.shown(run.directory),
        "log": context.shown(log_of(run)),
        "script": context.shown(run.script) if run.origin is None else None,
        "origin": typed.to_data(run.origin),
        "result": outcome_data(result),
        "job": job_data(run.job),
        "environment": dict(run.launch.environment),
    }


def page(
    context: CliContext, run: RunRecord, state: JobState, result: Result | None
) -> Iterator[str]:
    """The lines of the page for people, wrapped at the terminal's width. Paths are never broken."""
    yield from textwrap.wrap(escape(run.job.experiment_name), _width(), break_on_hyphens=False)
    for label, text in _facts(context, run, state, result):
        yield from _entry(label, text)
    if run.launch.environment:
        yield ""
        yield "Environment"
        for name, value in run.launch.environment.items():
            yield f"  {name}={'***' if is_secret_name(name) else escape(value)}"
    yield ""
    script = f"    script: llmb-run jobs show {run.id} --script" if run.origin is None else ""
    yield f"log: llmb-run jobs logs {run.id}{script}"
    if state.is_end:
        yield f"figures and causes: llmb-run explain {run.id}"


def _facts(
    context: CliContext, run: RunRecord, state: JobState, result: Result | None
) -> Iterator[tuple[str, str]]:
    """Labels and texts, grouped by empty labels."""
    attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
    yield (
        "id",
        run.id
        + attempt
        + (f", job {run.scheduler_id} of the scheduler" if run.scheduler_id else ""),
    )
    yield "imported", str(run.origin or "")
    yield (
        "state",
        state.state + _exit_code(state),
    )
    yield "reason", escape(_reason(state, result))
    yield "hint", escape(context.advice(_fix(state, result)))
    yield "result", _result(result)
    yield "times", _times(run, state)
    for number, earlier in enumerate(run.history, 1):
        yield (
            f"attempt {number}",
            ", ".join(filter(None, [earlier.state.state, escape(earlier.state.reason)])),
        )
    yield "", ""
    job = run.job
    yield (
        "job",
        f"{job.workload} {job.model_size}, {job.dtype}, {job.max_steps} steps, repeat {job.repeat}",
    )
    yield "nodes", fold(all_nodes(run, state, result))
    yield (
        "GPUs",
        (
            f"{job.scale} {job.gpu_type}: {job.nodes} x {job.gpus_per_node}, limit"
            f" {clock(job.time_limit)}"
        ),
    )
    yield "training", _training(run)
    yield "parameters", " ".join(f"{name}={value}" for name, value in job.parameters.items())
    yield "image", job.image or ""
    yield "", ""
    yield "folder", context.shown(run.directory)
    scripts = [("script", run.script)] if run.origin is None else []
    for label, path in (("log", log_of(run)), *scripts):
        missing = "" if files.exists(path) else " (missing)"
        yield label, f"{path.relative_to(run.directory)}{missing}"


def _exit_code(state: JobState) -> str:
    """The exit code for people. A zero beside TIMEOUT or CANCELLED is what the script ended with
    when it was stopped.
    """
    is_shown = state.exit_code or (state.exit_code == 0 and state.state in (COMPLETED, FAILED))
    return f", exit code {state.exit_code}" if is_shown else ""


def _reason(state: JobState, result: Result | None) -> str:
    """Return why the run is in its state: by the scheduler, else the cause in its log."""
    cause = None if result is None else result.cause
    return state.reason or ("" if cause is None else str(cause))


def _fix(state: JobState, result: Result | None) -> str:
    """Return what to do about ``_reason``."""
    cause = None if result is None or state.reason else result.cause
    return state.fix or ("" if cause is None else cause.fix)


def _result(result: Result | None) -> str:
    """The result in words: ``step_time 2.533 s, ratio 0.991 to release 25.04, PASS (n=1)``."""
    if result is None:
        return ""
    value, verdict = result.metrics.value, result.verdict
    parts = (
        [f"{result.metrics.headline} {figure(result.metrics.headline, value.mean, value.unit)}"]
        if value
        else []
    )
    if verdict.ratio is not None and verdict.reference is not None:
        ratio = ratio_in_digits(verdict.ratio, bounds_of(result))
        parts.append(f"ratio {ratio} to release {verdict.reference.release}")
    parts.append(
        f"{verdict.word} (n={verdict.repeats})"
        if verdict.repeats
        else verdict.word or result.status
    )
    return ", ".join(parts)


def _times(run: RunRecord, state: JobState) -> str:
    parts = [
        f"{label} {day_and_time(text)}"
        for label, text in (
            ("submitted", iso(run.submitted_at)),
            ("started", iso(state.started)),
            ("ended", iso(state.ended)),
        )
        if text is not None
    ]
    if state.started is not None and state.ended is not None:
        parts.append(f"ran {clock(state.ended - state.started)}")
    return ", ".join(parts)


def _training(run: RunRecord) -> str:
    """``tp 8, pp 8, ...`` of a job that trains a model."""
    training = run.job.training
    if training is None:
        return ""
    values: Mapping[str, int | None] = {name: getattr(training, name) for name in _TRAINING}
    words = [
        f"{name} {value}"
        for name, value in values.items()
        if value and not (name in _UNUSUAL and value == 1)
    ]
    return ", ".join([*words, f"sequence {training.seq_length}", f"{training.num_layers} layers"])


def _entry(label: str, text: str) -> list[str]:
    """The lines of one label and its text. Without a text, only an empty label has a line."""
    if not label:
        return [""]
    if not text:
        return []
    indent = " " * (_LABEL + 2)
    wrapper = textwrap.TextWrapper(
        _width(),
        initial_indent=f"  {label:{_LABEL}}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.wrap(text)


def _width() -> int:
    width = output_width()
    return 80 if width == ANY_WIDTH else min(width, _WIDEST)
