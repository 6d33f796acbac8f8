# SPDX-License-Identifier: Apache-2.0
"""Names and undoes what a plugin's code changes of this process.

It covers changes that break a command far from the plugin, where nobody would look for it: a lower
recursion limit, other functions in the module json, and text printed when the process ends.
"""

from __future__ import annotations

import atexit
import importlib
import io
import os
import sys
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from llmb.core import console

if TYPE_CHECKING:
    from collections.abc import Callable

State = tuple[int, int]
_JSON = (
    *("dumps", "loads", "dump", "load", "JSONEncoder", "JSONDecoder"),
    *("JSONEncoder.default", "JSONEncoder.encode", "JSONEncoder.iterencode", "JSONDecoder.decode"),
)
_functions_of = attrgetter(*_JSON)
_own_functions: tuple[Any, ...] = ()  # those that the module json was last seen to have itself
# CPython's own count of functions that run at the end. Without it their output is not named.
_count: Callable[[], int] = getattr(atexit, "_ncallbacks", lambda: 0)


def state() -> State:
    """Return what ``undo`` compares: the recursion limit, and the number of functions at exit."""
    return sys.getrecursionlimit(), _count()


def undo(source: str, call: str, before: State) -> None:
    """Undo what ``call`` of the plugin ``source`` changed since ``before``, with a warning each.

    What it prints at exit goes to stderr then, with its name.
    """
    limit, functions = before
    if (lowered := sys.getrecursionlimit()) < limit:
        _warn(source, call, f"lowered Python's recursion limit from {limit} to {lowered}")
        sys.setrecursionlimit(limit)
    if (changed := _changed_json()) is not None:
        _warn(source, call, f"replaced {changed} of the module json")
        for module in ("json.decoder", "json.encoder", "json"):
            importlib.reload(sys.modules[module])
    if _count() > functions:
        # Functions at exit run from the last to the first: this one before those of the plugin.
        atexit.register(partial(_redirect, source))


def _warn(source: str, call: str, change: str) -> None:
    text = f"plugin {source} {change} in {call}; llmb has undone it"
    console.warn_once(text, key=f"{source} {change}")


def _changed_json() -> str | None:
    """Return the name of a function or method of the module json that is another one's, or None."""
    global _own_functions
    module = sys.modules.get("json")
    if module is None:
        return None
    with suppress(AttributeError):  # a plugin has deleted one
        if _functions_of(module) == _own_functions:
            return None
    for name in _JSON:
        function: Any = module
        for part in name.split("."):
            function = getattr(function, part, None)
        owner = str(getattr(function, "__module__", None)).partition(".")[0]
        if owner != "json" or hasattr(function, "__wrapped__"):
            return name
    _own_functions = _functions_of(module)
    return None


class _Named(io.TextIOBase):
    """Standard output at exit: it goes to stderr, with the name of the plugin that prints."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.is_named = False

    def write(self, text: str, /) -> int:
        if text and not self.is_named:
            self.is_named = True
            sys.stderr.write(f"warning: plugin {self.source} prints when llmb ends:\n")
        return sys.stderr.write(text)


def _redirect(source: str) -> None:
    """Send what is printed from here on to stderr, also by C code and subprocesses."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    named: Any = _Named(source)
    sys.stdout = named
    with suppress(OSError):
        os.dup2(2, 1)
