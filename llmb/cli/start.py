# SPDX-License-Identifier: Apache-2.0
"""Runs one command line of `llmb-run` and leaves with its exit code."""

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

# New objects between two searches for cycles: a command is over before it has made many, and at Python's own 700 the
# search takes a twelfth of a short one.
_YOUNG = 50_000


def run(args: Sequence[str] | None = None) -> NoReturn:
    """Run one command line (``sys.argv`` where None) and leave with its exit code."""
    gc.set_threshold(_YOUNG)
    try:
        from llmb.system import edge

        edge.prepare()
        from llmb.cli import app

        sys.exit(app.run(args))
    except KeyboardInterrupt:  # before a command has begun
        sys.stderr.write("interrupted\n")
        sys.exit(130)
