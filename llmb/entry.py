# SPDX-License-Identifier: Apache-2.0
"""Where a command begins: Ctrl-C ends it at once and without a traceback until it is loaded, and once it is over."""

import signal

# Before any other import. Under nohup a signal is ignored, and stays so.
_HEARS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _HEARS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from collections.abc import Callable  # noqa: E402


def begin(main: Callable[[], object]) -> None:
    """Call the ``main`` of a command that is loaded: Ctrl-C is its own to handle while it runs."""
    try:
        if _HEARS:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    finally:
        if _HEARS:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run ``llmb-run`` and leave with its exit code."""
    from llmb.cli import app  # noqa: F401 - which ``run`` would import while Ctrl-C is heard
    from llmb.cli import main as run

    begin(run)
