# SPDX-License-Identifier: Apache-2.0
"""Where a command begins: Ctrl-C ends it at once and without a traceback until it is loaded, and once it is over."""

# What `signal` is made of, and there at once: the import of `signal` itself takes milliseconds, and is interrupted.
import _signal  # type: ignore[import-not-found]

# Before any other import. Under nohup a signal is ignored, and stays so.
_HEARS = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _HEARS:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from collections.abc import Callable  # noqa: E402


def begin(main: Callable[[], object]) -> None:
    """Call the ``main`` of a command that is loaded: Ctrl-C is its own to handle while it runs."""
    try:
        if _HEARS:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        main()
    except KeyboardInterrupt:  # while the command printed an error, or before it could handle any
        raise SystemExit(130) from None
    finally:
        if _HEARS:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run ``llmb-run`` and leave with its exit code."""
    from llmb.cli import app

    begin(app.main)
