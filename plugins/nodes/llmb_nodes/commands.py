# SPDX-License-Identifier: Apache-2.0
"""``llmb-run nodes``: check nodes, and show what is known of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from llmb import api
    from llmb_nodes.words import NodeReport

_INTERRUPTED = 130  # the exit code after Ctrl-C
FAILED = 3  # the exit code of a FAULT
#: Of every object in JSON. Grows when a field is removed or changes its meaning or type.
SCHEMA_VERSION = 1
_LISTED = 3  # checks that a hint names

format_option = click.option(
    "--format",
    "fmt",
    type=click.Choice(["table", "json", "csv", "md"]),
    default="table",
    show_default=True,
    help="Output format.",
)
# Options that are passed to `llmb-run submit`, with their metavar and help.
_PASSED = {
    "partition": ("NAME", "Partition of the job (Slurm)."),
    "account": ("NAME", "Account that the job is charged to (Slurm)."),
    "qos": ("NAME", "Quality of service (Slurm)."),
    "reservation": ("NAME", "Run in this reservation (Slurm)."),
    "exclude": ("NODES", "Not on these nodes (Slurm)."),
    "gpu-type": ("TYPE", "GPU type, on a cluster with several."),
    "gpus-per-node": ("N", "GPUs to measure on each node (default: all)."),
    "image": ("IMAGE", "Another image with torch."),
    "time-limit": ("HH:MM:SS", "Time limit of the job."),
    "session": ("NAME", "Name the session."),
}


def passed_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that are passed to ``submit``."""
    for name, (metavar, text) in reversed(_PASSED.items()):
        command = click.option(f"--{name}", metavar=metavar, help=text)(command)
    return command


@click.group("nodes")
def nodes() -> None:
    """Check nodes, and find the slow and the broken ones."""


@nodes.command("check")
@click.option("--nodelist", metavar="NODES", help="Check these nodes: n[1-4],n7 (Slurm).")
@click.option("--nodes", "count", type=click.IntRange(min=1), help="Check any N nodes.")
@click.option("--quick", is_flag=True, help="Half a second for each measure instead of 5.")
@click.option("--dry-run", "-d", is_flag=True, help="Show the job and submit nothing.")
@passed_options
@format_option
@click.pass_obj
def check(
    context: api.CommandContext,
    /,
    nodelist: str | None,
    count: int | None,
    *,
    quick: bool,
    dry_run: bool,
    fmt: str,
    **passed: str | None,
) -> int:
    """Ask and measure each node in one job.

    Nothing goes between the nodes. A node that is far below its peers is measured again before it
    is called SLOW. The exit code is 3 if a node is a FAULT.
    """
    number = number_of_nodes(context, nodelist, count)
    size = "quick" if quick else "check"
    words = submit_words(context, size, number, nodelist, passed)
    code, text = context.call([*words, *how_words(dry_run, fmt)], shown=dry_run)
    if dry_run or code != 0:
        return code
    run_id = json.loads(text)[0]["id"]
    follow(context, run_id)
    return _show_check(context, run_id, fmt)


def follow(context: api.CommandContext, run_id: str) -> None:
    """Wait for the end of a check or a diagnosis. Ctrl-C ends the command, not the job."""
    from llmb import api

    try:
        context.call(["jobs", "wait", run_id])
    except KeyboardInterrupt:
        api.say(
            f"Stopped watching. The job keeps running. Watch again: llmb-run jobs wait {run_id}."
            f" Cancel: llmb-run jobs cancel {run_id}"
        )
        raise click.exceptions.Exit(_INTERRUPTED) from None


def number_of_nodes(context: api.CommandContext, nodelist: str | None, count: int | None) -> int:
    """Return how many nodes to check. Raises UsageError if that is open."""
    from llmb import api

    if nodelist is not None and "@" not in nodelist:
        named = len(api.read_nodes(nodelist, "--nodelist"))
        if count is not None and count < named:
            message = f"--nodelist names {named} nodes, and --nodes {count}"
            raise api.UsageError(
                message, hint="omit --nodes", code="option-conflict", key="--nodes"
            )
        return count or named
    if count is not None:
        return count
    if context.config.traits.one_machine:
        return 1
    raise api.UsageError(
        "which nodes?",
        hint="--nodelist n[1-4], or --nodes N for any N nodes",
        code="nodes-missing",
        key="--nodes",
    )


def per_node(context: api.CommandContext, passed: Mapping[str, str | None]) -> int:
    """Return the GPUs of each node that take part. Raises UsageError."""
    from llmb import api

    gpus = passed["gpus_per_node"]
    of_a_node = context.config.gpu(passed["gpu_type"] or context.config.gpu_type).gpus_per_node
    if gpus is None:
        return of_a_node
    if not gpus.isdecimal() or not 0 < int(gpus) <= of_a_node:
        raise api.UsageError(
            f"--gpus-per-node must be a number of GPUs from 1 to {of_a_node}, not '{gpus}'",
            hint="omit it for all GPUs of each node",
            code="value-type",
            key="--gpus-per-node",
            value=gpus,
        )
    return int(gpus)


def submit_words(
    context: api.CommandContext,
    size: str,
    number: int,
    nodelist: str | None,
    passed: Mapping[str, str | None],
) -> list[str]:
    """Return the words of `llmb-run submit` for a check or a diagnosis of ``number`` nodes."""
    from llmb_nodes.history import WORKLOAD

    scale = number * per_node(context, passed)
    words = ["submit", "-w", WORKLOAD, "-s", size, "--scale", str(scale), "--no-telemetry"]
    words += ["--nodelist", nodelist] if nodelist is not None else []
    for name, value in passed.items():
        words += [f"--{name.replace('_', '-')}", value] if value is not None else []
    return words


def how_words(dry_run: bool, fmt: str) -> list[str]:
    """Return the words for a preview in the user's format, or for a submission read by llmb."""
    return ["--dry-run", "--format", fmt] if dry_run else ["--format", "json"]


def _show_check(context: api.CommandContext, run_id: str, fmt: str) -> int:
    from llmb import api
    from llmb_nodes import history, words

    run = context.runs((run_id,))[0]
    reports = history.read(run, is_complete=True)
    if not reports:
        raise api.LlmbError(
            f"the check has no values: no node of {run.name} wrote any",
            hint=f"llmb-run explain {run.id}",
            code="check-empty",
            value=run.id,
        )
    _print_nodes(reports, fmt)
    broken = [node.name for node in reports if node.word == words.FAULT]
    slow = [node.name for node in reports if node.word == words.SLOW]
    if fmt == "table":
        _advise(broken, slow, reports)
    return FAILED if broken else 0


def _advise(broken: Sequence[str], slow: Sequence[str], reports: Sequence[NodeReport]) -> None:
    from llmb import api

    for node in reports:
        for note in node.notes:
            api.say(f"note: {node.name}: {note}")
    for fix in dict.fromkeys(f"{node.name}: {fix}" for node in reports for fix in node.fixes):
        api.say(f"hint: {fix}")
    if suspects := [*broken, *slow]:
        api.say(
            f"avoid them in later jobs: --exclude {api.fold_nodes(suspects)}"
            " (or --exclude @suspects)"
        )
    known = {name for node in reports for name in (*node.facts, *node.measures)}
    absent: dict[str, list[str]] = {}
    for node in reports:
        for name, reason in node.absent.items():
            if name not in known:
                absent.setdefault(reason, []).append(name)
    for reason, names in absent.items():
        api.say(f"not asked ({reason}): {', '.join(dict.fromkeys(names))}")


def as_data(node: NodeReport) -> dict[str, Any]:
    """Return the object of a node in JSON, as docs/nodes.md describes it."""
    return {
        "name": node.name,
        "word": node.word,
        "reasons": [*node.reasons],
        "notes": [*node.notes],
        "fixes": [*node.fixes],
        "facts": dict(node.facts),
        "measures": {
            name: {
                "value": measure.value,
                "unit": measure.unit,
                "per_gpu": [*measure.per_gpu],
                "peers_median": measure.peers_median,
                "ratio": measure.ratio,
                "first": measure.first,
            }
            for name, measure in node.measures.items()
        },
        "absent": dict(node.absent),
    }


def print_object(data: Mapping[str, Any]) -> None:
    """Print an object as JSON with its ``schema_version``."""
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=2))


def _print_nodes(reports: Sequence[NodeReport], fmt: str) -> None:
    """Print one row for each node, worst first."""
    from llmb import api
    from llmb_nodes.words import number

    if fmt == "json":
        print_object({"nodes": [as_data(node) for node in reports]})
        return
    units = {name: measure.unit for node in reports for name, measure in node.measures.items()}
    columns = [
        api.Column(key="node", whole=True),
        api.Column(key="word", whole=True),
        *(
            api.Column(
                key=name,
                heading=f"{name.replace('_', ' ')} {unit}".strip(),
                right=True,
                optional=True,
                show=number,
            )
            for name, unit in units.items()
        ),
        api.Column(key="reasons"),
    ]
    rows = [
        {
            "node": node.name,
            "word": node.word,
            **{name: measure.value for name, measure in node.measures.items()},
            "reasons": "; ".join(node.reasons),
        }
        for node in reports
    ]
    click.echo(api.render_table(columns, rows, fmt), nl=False)


@nodes.command("show")
@click.argument("names", metavar="[NODE]...", nargs=-1)
@click.option("--check", "check_run", metavar="RUN", help="Show this check as `check` does.")
@format_option
@click.pass_obj
def show(
    context: api.CommandContext, names: tuple[str, ...], check_run: str | None, fmt: str
) -> int:
    """Show the newest check of each node, or every check of NODE."""
    from llmb import api
    from llmb_nodes import history

    if check_run is not None:
        _require_check(context, check_run)
        return _show_check(context, check_run, fmt)
    checks = history.checks_of(context.runs())
    node_names = {name for word in names for name in api.expand_nodes(word)}
    if names:
        pairs = [
            (check, node) for check in checks for node in check.nodes if node.name in node_names
        ]
        if unchecked := sorted(node_names - {node.name for _, node in pairs}):
            raise api.UsageError(
                f"no check knows {', '.join(unchecked)}",
                hint="llmb-run nodes show lists the nodes that were checked",
                code="node-unknown",
                value=unchecked[0],
            )
    else:
        pairs = sorted(history.latest(checks).values(), key=lambda pair: pair[1].name)
    _print_history(pairs, fmt)
    if fmt != "table":
        return 0
    if not pairs:
        api.say("no node was checked yet: llmb-run nodes check")
    if open_checks := [check.run.id for check in checks if history.is_open(check.run)]:
        newest = " ".join(open_checks[-_LISTED:])
        api.say(f"not ended when llmb last asked: {newest}. To wait: llmb-run jobs wait {newest}")
    return 0


def _require_check(context: api.CommandContext, name: str) -> None:
    """Raise UsageError for a run that is no check."""
    from llmb import api
    from llmb_nodes import history

    run = context.runs((name,))[0]
    if history.is_check(run):
        return
    newest = [check.run.id for check in history.checks_of(context.runs())[-_LISTED:]]
    hint = f"the newest checks are {', '.join(newest[::-1])}" if newest else "llmb-run nodes check"
    raise api.UsageError(
        f"{name} is not a check of nodes but a run of {run.job.workload}, size"
        f" {run.job.model_size}",
        hint=hint,
        code="run-no-check",
        key="--check",
        value=name,
    )


def _print_history(pairs: Sequence[tuple[Any, NodeReport]], fmt: str) -> None:
    from llmb import api

    rows = [
        {
            "node": node.name,
            "time": time.strftime("%Y-%m-%d %H:%M", time.localtime(check.time)),
            "word": node.word,
            "reasons": [*node.reasons],
            "notes": [*node.notes],
            "run": check.run.name,
            "measures": as_data(node)["measures"],
        }
        for check, node in pairs
    ]
    if fmt == "json":
        print_object({"nodes": rows})
        return
    shown = [{**row, "reasons": "; ".join([*row["reasons"], *row["notes"]])} for row in rows]
    columns = [
        *(api.Column(key=key, whole=True) for key in ("node", "time", "word")),
        api.Column(key="reasons"),
        api.Column(key="run", optional=True),
    ]
    if rows or fmt == "csv":
        click.echo(api.render_table(columns, shown, fmt), nl=False)
