# SPDX-License-Identifier: Apache-2.0
"""The entry point of llmb-install: Ctrl-C ends it at once, without a traceback, while it is loading."""

from llmb.cli import entry  # first: from here on Ctrl-C prints no traceback


def main() -> None:
    from llmb_installer.cli import main as run

    entry.begin(run)
