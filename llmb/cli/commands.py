# SPDX-License-Identifier: Apache-2.0
"""The commands that llmb-run itself brings, as a plugin: they come through the same hook as anyone else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def llmb_commands() -> list[click.Command]:
    """llmb's own commands; each imports what it works with only when it runs."""
    from llmb.cli import baseline, compare, config, explain, jobs, list_, parse, plugins, report, results
    from llmb.cli.submit import single, submit_all

    return [
        list_.command,
        single.command,
        submit_all.command,
        submit_all.bulk,
        jobs.group,
        results.command,
        parse.command,
        compare.command,
        explain.command,
        report.command,
        baseline.group,
        plugins.group,
        config.command,
    ]
