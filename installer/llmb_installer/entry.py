# SPDX-License-Identifier: Apache-2.0
"""The entry point of llmb-install. Ctrl-C ends it without a traceback, also while it loads."""

from llmb.cli import entry  # first: from here on Ctrl-C prints no traceback


def main() -> None:
    from llmb_installer.cli import main as run

    entry.begin(run)
