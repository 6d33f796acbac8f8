# SPDX-License-Identifier: Apache-2.0
"""Entry point of a command: Ctrl-C before it is loaded and after it ends is silent.

The PYTHONPATH of the caller's shell replaces no module of llmb's own.
"""

# The C module below `signal`: importing `signal` takes milliseconds, in which Ctrl-C would print a
# traceback.
import _signal  # type: ignore[import-not-found]

# Before any other import. A signal that is ignored, as under nohup, stays ignored.
_HANDLES = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _HANDLES:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os  # noqa: E402
import sys  # noqa: E402

# Before Python's and llmb's own modules are imported. Modules for another Python, as environment
# modules put them into PYTHONPATH, then come last. A plugin there is still found.
if _NAMED := os.environ.get("PYTHONPATH"):
    _FOLDERS = {os.path.abspath(name) for name in _NAMED.split(os.pathsep)}  # noqa: PTH100
    sys.path.sort(key=_FOLDERS.__contains__)

import gc  # noqa: E402
from collections.abc import Callable  # noqa: E402

# Allocations between two garbage collections: a command ends before it has made many objects, and
# with Python's default of 700 the collections, most of them during imports, take a tenth of a short
# command.
gc.set_threshold(200_000)


def begin(main: Callable[[], object]) -> None:
    """Call ``main`` of a loaded command, which handles Ctrl-C itself while it runs."""
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
