# SPDX-License-Identifier: Apache-2.0
"""Where llmb-install begins: Ctrl-C ends it at once and without a traceback until it is loaded."""

from llmb.cli import entry  # first: from here on Ctrl-C is silent


def main() -> None:
    """Run ``llmb-install`` and leave with its exit code."""
    from llmb_installer.cli import main as run

    entry.begin(run)
