# SPDX-License-Identifier: Apache-2.0
"""Warnings from deep within, such as of a damaged file that costs one row of many: each once in a command."""

import threading

from llmb.system import edge

_said: set[str] = set()
_saying = threading.Lock()


def begin() -> None:
    """Forget what was said: another command begins in this process."""
    with _saying:
        _said.clear()


def warn(text: str) -> None:
    """Print a warning, however often it comes up, once. For several threads at a time."""
    with _saying:
        if text in _said:
            return
        _said.add(text)
    edge.echo(f"warning: {text}", err=True)
