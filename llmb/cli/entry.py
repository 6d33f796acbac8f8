# SPDX-License-Identifier: Apache-2.0
"""Entry point of a command: before the command is loaded and after it ends, Ctrl-C ends the process silently."""

# The C module below `signal`: importing `signal` takes milliseconds, in which Ctrl-C would print a traceback.
import _signal  # type: ignore[import-not-found]

# Before any other import. A signal that is ignored, as under nohup, stays ignored.
_HANDLES = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _HANDLES:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from collections.abc import Callable  # noqa: E402


def begin(main: Callable[[], object]) -> None:
    """Call ``main``, the function of a loaded command, which handles Ctrl-C itself while it runs."""
    try:
        if _HANDLES:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        main()
    except KeyboardInterrupt:  # outside of the command's own handler
        raise SystemExit(130) from None
    finally:
        if _HANDLES:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run ``llmb-run`` and leave with its exit code."""
    from llmb.cli import app

    begin(app.main)
