# SPDX-License-Identifier: Apache-2.0
"""Prints a log that may still grow, without letting its control characters reach the terminal."""

import codecs
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from llmb.logs.scan import strip_escapes

_EVERY = 0.3  # seconds
# What may go on in the bytes that come next: an escape sequence, or a line's end of two characters.
_OPEN = re.compile(rb"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?)\Z")
_LINE_END = re.compile(r"\r\n?")  # a progress bar begins its line anew with one


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool]) -> bool:
    """Copy ``path`` to ``out`` until its writer has ``ended``; False when there was nothing to print."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, kept = 0, b""
    while True:
        last = ended()  # asked before reading, so that what was written before the end is read
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(position)
                while chunk := stream.read(1 << 16):
                    position += len(chunk)
                    data = kept + chunk
                    open_ = _OPEN.search(data, max(0, len(data) - 256))
                    kept = data[open_.start() :] if open_ else b""
                    out.write(_printable(decode(strip_escapes(data[: len(data) - len(kept)]))))
            out.flush()
        if last:
            out.write(_printable(decode(kept, True)))
            out.flush()
            return position > 0
        time.sleep(_EVERY)


def _printable(text: str) -> str:
    """``text`` with its blanks as they are, another one for each control character."""
    lines = _LINE_END.sub("\n", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in lines)
