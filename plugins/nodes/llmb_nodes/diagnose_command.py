# SPDX-License-Identifier: Apache-2.0
"""``llmb-run nodes diagnose``: find the fault that only shows between nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from llmb_nodes.commands import (
    FAILED,
    follow,
    format_option,
    how_words,
    number_of_nodes,
    passed_options,
    per_node,
    print_object,
    submit_words,
)

if TYPE_CHECKING:
    from llmb import api
    from llmb_nodes.diagnosis import DiagnosisCost, DiagnosisReport

_QUICK, _USUAL = "0.5", "5"  # seconds of a test


@click.command("diagnose")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--nodelist", metavar="NODES", help="Test these nodes: n[1-16] (Slurm).")
@click.option("--nodes", "count", type=click.IntRange(min=1), help="Test any N nodes.")
@click.option("--quick", is_flag=True, help="Half a second for each test instead of 5.")
@click.option(
    "--expect",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GB/S",
    help="Bus bandwidth that a healthy group reaches: tells whether all nodes are slow.",
)
@click.option(
    "--path",
    type=click.Choice(["all", "network", "both"]),
    default="all",
    show_default=True,
    help="network: without NVLink between nodes. both: first with it, then without.",
)
@click.option("--dry-run", "-d", is_flag=True, help="Show rounds, GPU hours and the job.")
@passed_options
@format_option
@click.pass_obj
def diagnose(
    context: api.CommandContext,
    /,
    run_name: str | None,
    nodelist: str | None,
    count: int | None,
    *,
    quick: bool,
    expect: float | None,
    path: str,
    dry_run: bool,
    fmt: str,
    **passed: str | None,
) -> int:
    """Find the node, pair or switch that slows communication.

    Groups of nodes run an all-reduce at the same time, round after round. Slow groups are halved
    with nodes that are known to be good. RUN: test the nodes of this run. The exit code is 3 if a
    fault is confirmed that fails, hangs, or is below --expect.
    """
    from llmb import api
    from llmb_nodes import diagnosis

    if run_name is not None:
        nodelist = _nodes_of_run(context, run_name, nodelist)
    number = number_of_nodes(context, nodelist, count)
    _check_number(number)
    seconds = _QUICK if quick else _USUAL
    words = submit_words(context, diagnosis.SIZE, number, nodelist, passed)
    words += ["--set", f"seconds={seconds}", "--set", f"path={path}"]
    words += ["--set", f"expect={expect:g}"] if expect is not None else []
    if passed["time_limit"] is None:
        limit = diagnosis.time_limit(number, diagnosis.PATHS[path], float(seconds))
        words += ["--time-limit", limit]
    if dry_run:
        estimate = diagnosis.estimate(
            number, per_node(context, passed), diagnosis.PATHS[path], float(seconds)
        )
        gpu_type = passed["gpu_type"] or context.config.gpu_type
        return _preview(context, estimate, words, fmt, unit=f"{api.processor([gpu_type])} hours")
    code, text = context.call([*words, *how_words(dry_run, fmt)])
    if code != 0:
        return code
    run_id = json.loads(text)[0]["id"]
    follow(context, run_id)
    return _show(context, run_id, fmt)


def _nodes_of_run(context: api.CommandContext, name: str, nodelist: str | None) -> str:
    """Return the list of nodes that a run had. Raises UsageError."""
    from llmb import api
    from llmb_nodes.history import nodes_of_job

    if nodelist is not None:
        message = f"--nodelist and the run {name} both name nodes"
        raise api.UsageError(message, hint="omit one", code="option-conflict", key="--nodelist")
    nodes = nodes_of_job(context.runs((name,))[0])
    if not nodes:
        raise api.UsageError(
            f"the nodes of {name} are not known",
            hint="--nodelist n[1-16]",
            code="nodes-missing",
            value=name,
        )
    return nodes


def _check_number(number: int) -> None:
    from llmb import api
    from llmb_nodes.diagnosis import FEWEST

    if number < FEWEST:
        raise api.UsageError(
            f"{number} nodes are too few to diagnose; {FEWEST} are the least",
            hint="add nodes of the same kind, or llmb-run nodes check for each by itself",
            code="nodes-too-few",
            value=str(number),
        )


def _preview(
    context: api.CommandContext,
    plan: DiagnosisCost,
    words: Sequence[str],
    fmt: str,
    *,
    unit: str,
) -> int:
    """Print the estimate, and in a table also the job. ``unit``: GPU hours or CPU hours."""
    from llmb import api

    code, job = context.call([*words, *how_words(dry_run=True, fmt="table")])
    if code != 0:
        return code
    if fmt == "json":
        print_object(plan.as_data())
        return 0
    rows = [
        {
            "nodes": name,
            "rounds": rounds,
            "minutes": round(plan.minutes(rounds), 1),
            unit: round(plan.gpu_hours(rounds), 2),
        }
        for name, rounds in (("all healthy", plan.healthy), ("one fault, at most", plan.one_fault))
    ]
    columns = [api.Column(key=key, right=key != "nodes") for key in rows[0]]
    click.echo(api.render_table(columns, rows, fmt), nl=False)
    if fmt == "table":
        click.echo(f"groups of {plan.group} of {plan.nodes} nodes; hangs and noise take longer")
        click.echo(job, nl=False)
    return 0


def _show(context: api.CommandContext, run_id: str, fmt: str) -> int:
    from llmb import api
    from llmb_nodes import diagnosis, words

    run = context.runs((run_id,))[0]
    report = diagnosis.read(run)
    if report is None:
        raise api.LlmbError(
            f"the diagnosis has no results: {run.name} wrote none",
            hint=f"llmb-run explain {run.id}",
            code="diagnosis-empty",
            value=run.id,
        )
    _print(report, fmt)
    findings = report.diagnosis.findings if report.diagnosis is not None else ()
    return FAILED if any(diagnosis.word_of(finding) == words.FAULT for finding in findings) else 0


def _print(report: DiagnosisReport, fmt: str) -> None:
    from llmb import api
    from llmb_nodes import diagnosis

    if fmt == "json":
        print_object(diagnosis.as_data(report))
        return
    findings = report.diagnosis.findings if report.diagnosis is not None else ()
    rows = [
        {
            "nodes": api.fold_nodes(finding.nodes),
            "fault": finding.kind,
            "word": diagnosis.word_of(finding),
            "reason": diagnosis.reason_of(finding, report.plan),
        }
        for finding in findings
    ]
    columns = [
        *(api.Column(key=key, whole=True) for key in ("nodes", "fault", "word")),
        api.Column(key="reason"),
    ]
    if rows or fmt == "csv":
        click.echo(api.render_table(columns, rows, fmt), nl=False)
    if fmt != "table":
        return
    if not rows and report.diagnosis is not None:
        tests = sum(map(len, report.rounds))
        click.echo(f"no fault between the nodes: {tests} tests in {len(report.rounds)} rounds")
    for note in diagnosis.notes_of(report):
        api.say(f"note: {note}")
    if suspects := {name for name, _ in diagnosis.accusations(report)}:
        names = api.fold_nodes(sorted(suspects))
        api.say(f"avoid them in later jobs: --exclude {names}, or @suspects")
