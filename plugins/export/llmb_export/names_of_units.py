# SPDX-License-Identifier: Apache-2.0
"""The words for units in the names of Prometheus' metrics, and the factors to these units.

Two units have the same words only if they are the same unit after the conversion.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from llmb import api

#: The units at the end of names of telemetry.
UNITS_OF_FIELDS: Mapping[str, str] = {"mhz": "MHz", "w": "W", "j": "J", "c": "\N{DEGREE SIGN}C"}
#: Base units, as Prometheus recommends, but for TFLOPS, which people compare with published
#: figures: words, and the divisor.
_BASES: Mapping[str, tuple[str, float]] = {
    "s": ("seconds", 1.0),
    "B": ("bytes", 1.0),
    "b": ("bits", 1.0),
    "B/s": ("bytes_per_second", 1.0),
    "b/s": ("bits_per_second", 1.0),
    "FLOP/s": ("tflops", 1e12),
}
_OTHERS: Mapping[str, tuple[str, float]] = {
    "%": ("ratio", 1e-2),
    "fraction": ("ratio", 1.0),
    "C": ("celsius", 1.0),
    "\N{DEGREE SIGN}C": ("celsius", 1.0),
    "w": ("watts", 1.0),
    "j": ("joules", 1.0),
    "c": ("celsius", 1.0),
    "mhz": ("hertz", 1e6),
}
_PREFIXES: Mapping[str, float] = {
    **{"": 1.0, "n": 1e-9, "u": 1e-6, "\N{MICRO SIGN}": 1e-6, "\N{GREEK SMALL LETTER MU}": 1e-6},
    **{"m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15},
}
_PREFIXED: Mapping[str, tuple[str, float]] = {
    "W": ("watts", 1.0),
    "Hz": ("hertz", 1.0),
    "J": ("joules", 1.0),
    "Wh": ("joules", 3600.0),
    "V": ("volts", 1.0),
    "A": ("amperes", 1.0),
}
_PER = "_per_"
_CAPITAL = re.compile(r"((?<![A-Za-z0-9])[MP](?![A-Z])|B(?=(?:ps)?(?![A-Za-z0-9])))|([A-Z])")
_AFTER = {"s": "s", "B": "byte", "b": "bit"}  # after "per"


def name_and_factor(unit: str) -> tuple[str, float]:
    """Return the words for a unit in a name, and the factor from the unit to them.

    ``kB/s`` is ``bytes_per_second`` and 1000, ``us/step`` is ``seconds_per_step`` and 1e-6.
    """
    parts = unit.split("/")
    for count in (2, 1):
        if (known := _known("/".join(parts[:count]))) is not None:
            words, factor = known
            break
    else:
        known, count, words, factor = None, 1, _spelled(parts[0]), 1.0
    for part in parts[count:]:
        word, divisor = _after_per(part)
        is_time = word == _AFTER["s"] and known is not None
        words, factor = f"{words}{_PER}{'second' if is_time else word}", factor / divisor
    return words.strip("_"), factor


def _known(unit: str) -> tuple[str, float] | None:
    if (base := api.base_unit(unit)) is not None:
        words, divisor = _BASES[base[0]]
        return words, base[1] / divisor
    if unit in _OTHERS:
        return _OTHERS[unit]
    for name, (words, factor) in _PREFIXED.items():
        if (prefix := unit.removesuffix(name)) != unit and prefix in _PREFIXES:
            return words, factor * _PREFIXES[prefix]
    return None


def _after_per(unit: str) -> tuple[str, float]:
    """Return the word for one unit by which another one is divided, and the factor to it."""
    if (base := api.base_unit(unit)) is not None and base[0] in _AFTER:
        return _AFTER[base[0]], base[1]
    known = None if unit in _OTHERS else _known(unit)
    return (_spelled(unit), 1.0) if known is None else (known[0].removesuffix("s"), known[1])


def _spelled(unit: str) -> str:
    """Return an unknown unit as words of a name.

    Signs are named: the units ``$`` and ``€`` must not look alike. Nor must ``Mtok`` and
    ``mtok``, or ``GBps`` and ``gbps``: M, P and B stay capitals where they may mean mega, peta and
    bytes.
    """
    text = "".join(map(_sign, unit))
    text = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    return _CAPITAL.sub(_lowered, text)


def _lowered(match: re.Match[str]) -> str:
    return match[1] or match[2].lower()


def _sign(char: str) -> str:
    if char.isascii() and (char.isalnum() or char in " _-.,()[]*^"):
        return char
    if char in ("\N{MICRO SIGN}", "\N{GREEK SMALL LETTER MU}"):
        return "u"
    return f"_{unicodedata.name(char, f'U{ord(char):X}').lower()}_"
