# SPDX-License-Identifier: Apache-2.0
"""The recipe on the command line of programs that run a training library, and how a log begins."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

from llmb_workloads.node import node_line
from llmb_workloads.world import Process


def recipe_path(arguments: list[str], usage: str) -> Path | None:
    """Return the recipe that the arguments name. For others, print ``usage`` and return None."""
    paths = [argument for argument in arguments if argument != "--print"]
    if len(paths) != 1 or paths[0].startswith("-"):
        print(usage, file=sys.stderr)
        return None
    return Path(paths[0])


def begin_log(process: Process, opening: Callable[[], str]) -> None:
    """Print the ``opening`` line on rank 0 and a line about each node, then write lines at once.

    A library prints steps to stdout and the end to stderr: one file would have them late and in
    the wrong order.
    """
    if process.rank == 0:
        print(opening(), flush=True)
    if process.local_rank == 0 and (line := node_line()) is not None:
        print(line, flush=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
