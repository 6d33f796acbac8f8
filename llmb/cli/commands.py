# SPDX-License-Identifier: Apache-2.0
"""llmb's own commands, as a plugin: they use the same hook as commands of other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def llmb_commands() -> list[click.Command]:
    """llmb's own commands; each imports what it needs when it runs."""
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
