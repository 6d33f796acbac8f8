# SPDX-License-Identifier: Apache-2.0
"""``llmb-run nodes suspects``: the nodes that tests and past runs found, with the evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from llmb_nodes.commands import print_object

if TYPE_CHECKING:
    from llmb import api
    from llmb_nodes.suspects import Suspect


@click.command("suspects")
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["table", "json", "csv", "md"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.pass_obj
def suspects(context: api.CommandContext, /, fmt: str) -> int:
    """Show the nodes to avoid, with the evidence.

    `--exclude @suspects` avoids them. They are nodes that their newest check or diagnosis found
    SLOW or a FAULT, and nodes that slow runs of the newest 30 days have and fast runs do not. llmb
    drains no node.
    """
    from llmb import api
    from llmb_nodes import past_runs
    from llmb_nodes.suspects import find, unknown_now

    runs = context.runs()
    rows: list[past_runs.ResultRow] = []
    if runs:
        since = past_runs.first_day(runs)
        words = ["results", "--session", "all", "--since", since, "--exclude-cancelled"]
        rows = json.loads(context.call([*words, "--format", "json"])[1])["results"]
    listed = find(runs, rows)
    if fmt == "json":
        print_object({"nodes": [as_data(suspect) for suspect in listed]})
        return 0
    if listed or fmt == "csv":
        click.echo(
            api.render_table(_columns(), [_row(suspect) for suspect in listed], fmt), nl=False
        )
    if fmt == "table":
        _say_more(listed, len(past_runs.measured(runs, rows)))
        accused = {suspect.name for suspect in listed}
        if unknown := [name for name in unknown_now(runs) if name not in accused]:
            nodes = api.fold_nodes(unknown)
            api.say(
                f"UNKNOWN in the newest check, and no suspect: {nodes}. Check again: llmb-run nodes"
                f" check --nodelist {nodes}"
            )
    return 0


def _columns() -> list[api.Column]:
    from llmb import api

    return [
        api.Column(key="node", whole=True),
        api.Column(key="word", whole=True),
        api.Column(key="gpus_lost", heading="GPUs lost", right=True),
        api.Column(key="evidence"),
    ]


def _row(suspect: Suspect) -> dict[str, Any]:
    return {
        "node": suspect.name,
        "word": suspect.word or "by runs",
        "gpus_lost": None if suspect.runs is None else suspect.runs.gpus_lost,
        "evidence": "; ".join(suspect.evidence),
    }


def _say_more(listed: Sequence[Suspect], runs: int) -> None:
    """Print on standard error what the table is made of, and what to do with it."""
    from llmb import api

    measured = f"{runs} measured run{'' if runs == 1 else 's'} of the newest 30 days"
    if not listed:
        api.say(f"no suspects among the nodes of {measured}, checks and diagnoses")
        return
    api.say(f"from {measured} and the newest check and diagnosis of each node")
    if unknown := [suspect.name for suspect in listed if suspect.is_unknown_now]:
        api.say(
            f"UNKNOWN in the newest check: {api.fold_nodes(unknown)}. That does not acquit a node,"
            " so an earlier check counts."
        )
    api.say("avoid them in later jobs: --exclude @suspects")
    api.say("for an administrator: llmb-run report --page nodes")


def as_data(suspect: Suspect) -> dict[str, Any]:
    """Return the object of a suspect in JSON, as docs/nodes.md describes it."""
    runs = suspect.runs
    return {
        "name": suspect.name,
        "word": suspect.word or None,
        "evidence": [*suspect.evidence],
        "fixes": [*suspect.fixes],
        "check": suspect.run_of("check"),
        "diagnosis": suspect.run_of("diagnosis"),
        "runs": None
        if runs is None
        else {
            "nodes": [*runs.blame.nodes],
            "seen": runs.blame.total,
            "slow": runs.blame.slow,
            "others": runs.blame.total_without,
            "others_slow": runs.blame.slow_without,
            "chance": runs.blame.chance,
            "loss": runs.blame.loss,
            "gpus": runs.gpus,
            "gpus_lost": runs.gpus_lost,
            "slow_runs": [run for observation in runs.slow for run in observation.runs],
        },
    }
