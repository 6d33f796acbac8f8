# SPDX-License-Identifier: Apache-2.0
"""Prints a log that may still grow, without letting its control characters reach the terminal."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from llmb.logs.text import plain

_EVERY = 0.3  # seconds


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool]) -> bool:
    """Copy ``path`` to ``out`` until its writer has ``ended``; False when there was nothing to print."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, printed = 0, False
    while True:
        last = ended()  # asked before reading, so that what was written before the end is read
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(position)
                while chunk := stream.read(1 << 16):
                    position += len(chunk)
                    out.write("\n".join(plain(line) for line in decode(chunk).split("\n")))
                    printed = True
            out.flush()
        if last:
            return printed
        time.sleep(_EVERY)
