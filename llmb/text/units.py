# SPDX-License-Identifier: Apache-2.0
"""Units of measurement that llmb can compare and convert: times, sizes, rates, and operations per second."""

from __future__ import annotations

import re

_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TIMES |= {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0}
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES, _BITS, _RATE, _OPERATIONS, _TIME = "bytes", "bits", "/s", "operations/s", "time"
_WORD = re.compile(rb" {0,2}([A-Za-z%\xc2\xb5\xce\xbc][A-Za-z/%\xc2\xb5\xce\xbc]{0,11})(?![\w=:(/-])")
_STATISTICS = re.compile(rb"\b(?:max|avg|mean|median)\b", re.IGNORECASE)


def _table() -> dict[str, tuple[str, float]]:
    found = {name: (_TIME, factor) for name, factor in _TIMES.items()}
    for prefix, factor in {**_PREFIXES, **_BINARY}.items():
        for name, kind in (("B", _BYTES), ("b", _BITS), ("bit", _BITS)):
            found[f"{prefix}{name}"], found[f"{prefix}{name}/s"] = (kind, factor), (kind + _RATE, factor)
        found[f"{prefix}bps"] = _BITS + _RATE, factor
        for name in ("FLOPS", "FLOP/s", "FLOPs/s") if prefix in _PREFIXES else ():
            found[f"{prefix}{name}"] = _OPERATIONS, factor
    return found


KNOWN = _table()


def is_time(unit: str) -> bool:
    """Whether ``unit`` is one of time, of which nothing lasts less than none."""
    return KNOWN.get(unit, ("", 0.0))[0] == _TIME


def factor_between(unit: str, wanted: str) -> float | None:
    """What turns a number of ``unit`` into one of ``wanted``; None if they are not of one kind, or not known."""
    if unit == wanted:
        return 1.0
    (kind, factor), (other, divisor) = KNOWN.get(unit, ("", 1.0)), KNOWN.get(wanted, ("", 1.0))
    return factor / divisor if kind and kind == other else None


def unit_after(text: bytes, at: int) -> str | None:
    """The known unit directly after a number that ends at ``at`` of ``text``; None for any other word, and for none.

    ``min`` is the minimum, not minutes, where the text has a maximum or a mean too.
    """
    found = _WORD.match(text, at)
    word = found[1].decode("utf-8", "replace") if found is not None else ""
    return word if word in KNOWN and not (word == "min" and _STATISTICS.search(text)) else None


def bytes_in_words(number: int) -> str:
    """``number`` of bytes in units of 1000: 1.6 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} bytes"
