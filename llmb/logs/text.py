# SPDX-License-Identifier: Apache-2.0
"""Makes the bytes of a log fit to be shown: no terminal escapes, no control characters, one line."""

import re

_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")


def strip_escapes(data: bytes) -> bytes:
    """``data`` without the escape sequences that colour a terminal, move its cursor or set its title."""
    return _ESCAPE.sub(b"", data) if b"\x1b" in data else data


def plain(data: bytes | str, limit: int = 300) -> str:
    """``data`` as one line of at most ``limit`` printable characters, a blank for each run of others."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    text = strip_escapes(raw).decode("utf-8", "replace")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
