# SPDX-License-Identifier: Apache-2.0
"""The command line `llmb-run`, built from the loaded plugins; llmb's own commands come through the same hook."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

# New objects between two searches for cycles: a command is over before it has made many, and at Python's own 700 the
# search takes a twelfth of a short one.
_YOUNG = 50_000


@hookimpl
def llmb_commands() -> list[click.Command]:
    """llmb's own commands; each module imports what it works with only when it runs."""
    from llmb.cli.commands import (
        baseline,
        compare,
        config,
        explain,
        jobs,
        list_,
        parse,
        plugins,
        report,
        results,
        single,
        submit_all,
    )

    return [
        list_.command, single.command, submit_all.command, submit_all.bulk, jobs.group, results.command, parse.command,
        compare.command, explain.command, report.command, baseline.group, plugins.group, config.command,
    ]  # fmt: skip


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run ``llmb-run`` and leave with its exit code."""
    gc.set_threshold(_YOUNG)
    try:
        from llmb.cli import app

        sys.exit(app.run(args))
    except KeyboardInterrupt:  # before a command has begun
        sys.stderr.write("interrupted\n")
        sys.exit(130)
