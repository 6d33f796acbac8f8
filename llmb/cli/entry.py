# SPDX-License-Identifier: Apache-2.0
"""Where a command begins: Ctrl-C ends it at once and without a traceback until it is loaded, and once it is over."""

# What `signal` is made of, and there at once: the import of `signal` itself takes milliseconds, and is interrupted.
import _signal  # type: ignore[import-not-found]

# Before any other import. Under nohup a signal is ignored, and stays so.
_HEARS = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _HEARS:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from typing import NoReturn  # noqa: E402


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
    from llmb.cli import app  # noqa: F401 - which ``run`` would import while Ctrl-C is heard

    begin(run)


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
