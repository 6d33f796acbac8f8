# SPDX-License-Identifier: Apache-2.0
"""Units of measurement that llmb can convert: times, sizes, rates, operations per second."""

from __future__ import annotations

import re

_TIMES = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
_TIMES |= {
    "nsec": 1e-9,
    "usec": 1e-6,
    "msec": 1e-3,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
}
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES, _BITS, _RATE, _OPERATIONS, _TIME = "bytes", "bits", "/s", "operations/s", "time"
_LETTERS = rb"[A-Za-z%\xc2\xb5\xce\xbc][A-Za-z/%\xc2\xb5\xce\xbc]{0,11}"
# 480.2 MB/s, 480.2 [MB/s], 35.1(ms)
_WORD = re.compile(rb" {0,2}(?:(" + _LETTERS + rb")(?![\w=:(/-])|[\[(](" + _LETTERS + rb")[\])])")
_STATISTICS = re.compile(rb"\b(?:max|avg|mean|median)\b", re.IGNORECASE)


def _table() -> dict[str, tuple[str, float]]:
    table = {name: (_TIME, factor) for name, factor in _TIMES.items()}
    for prefix, factor in {**_PREFIXES, **_BINARY}.items():
        for name, kind in (("B", _BYTES), ("b", _BITS), ("bit", _BITS)):
            table[f"{prefix}{name}"], table[f"{prefix}{name}/s"] = (
                (kind, factor),
                (kind + _RATE, factor),
            )
        table[f"{prefix}bps"] = _BITS + _RATE, factor
        for name in ("FLOPS", "FLOP/s", "FLOPs/s") if prefix in _PREFIXES else ():
            table[f"{prefix}{name}"] = _OPERATIONS, factor
    return table


KNOWN = _table()


def is_time(unit: str) -> bool:
    """Return True if ``unit`` is one of time, which is never negative."""
    return KNOWN.get(unit, ("", 0.0))[0] == _TIME


def factor_between(unit: str, target: str) -> float | None:
    """Return the factor from numbers of ``unit`` to numbers of ``target``, None if unknown."""
    if unit == target:
        return 1.0
    (kind, factor), (target_kind, divisor) = (
        KNOWN.get(unit, ("", 1.0)),
        KNOWN.get(target, ("", 1.0)),
    )
    return factor / divisor if kind and kind == target_kind else None


_BASES = {_TIME: "s", _BYTES: "B", _BITS: "b", _OPERATIONS: "FLOP/s"}
_BASES |= {kind + _RATE: f"{_BASES[kind]}/s" for kind in (_BYTES, _BITS)}


def base_unit(unit: str) -> tuple[str, float] | None:
    """Return the base unit of a unit, and the factor to it: ``kB/s`` is 1000 ``B/s``.

    Base units are s, B (bytes), b (bits), B/s, b/s and FLOP/s. None for a unit that llmb does not
    know.
    """
    kind, factor = KNOWN.get(unit, ("", 1.0))
    return (_BASES[kind], factor) if kind else None


def unit_after(text: bytes, at: int) -> str | None:
    """Return the known unit directly after a number that ends at ``at`` of ``text``, or None.

    ``min`` is the minimum, not minutes, if the text has a maximum or a mean too.
    """
    match = _WORD.match(text, at)
    word = match[match.lastindex or 0].decode("utf-8", "replace") if match is not None else ""
    return word if word in KNOWN and not (word == "min" and _STATISTICS.search(text)) else None


_FACTOR = re.compile(
    rb" ?(?:(Ki|Mi|Gi|Ti|[kKMGT])|(B)(?= ?(?:tokens|samples|sequences|parameters|params)\b))"
    rb"(?![\w=:(%-])"
)


def factor_after(text: bytes, at: int) -> float:
    """Return the factor directly after a number that ends at ``at`` of ``text``: 1000 for ``12K``.

    ``B`` is a billion only before a count (``1.5 B tokens``), since it is also the unit of bytes.
    The factor of any other text is 1.
    """
    match = _FACTOR.match(text, at)
    if match is None:
        return 1.0
    prefix = match[1].decode() if match[1] else "G"
    return _PREFIXES.get(prefix) or _BINARY[prefix]


def prefix_factor(text: bytes, at: int, unit: str) -> float | None:
    """Return the factor of a number that ends at ``at`` of ``text`` for its ``unit``, or None.

    The prefix may be short for the unit, as in ``123.4k`` of kB/s, or come before a unit without
    one, as in ``123.4k`` of B/s. None if the prefix is another one.
    """
    factor = factor_after(text, at)
    kind, of_unit = KNOWN.get(unit, ("", 1.0))
    if not kind or factor == 1.0 or (of_unit == 1.0 and kind != _TIME):
        return factor
    return 1.0 if factor == of_unit and kind != _TIME else None


def bytes_in_words(number: int) -> str:
    """``number`` of bytes in units of 1000: 1.6 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} bytes"
