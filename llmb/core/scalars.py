# SPDX-License-Identifier: Apache-2.0
"""Checks and converts one scalar of a YAML document: text, a number, true or false, a path."""

import math
import re
from pathlib import Path
from typing import Any

from llmb.errors import KeyFaultError

KINDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
}
# 1e-3 and 4.1e13 are text in YAML 1.1
_EXPONENT = re.compile(r"[-+]?\d+(?:\.\d*)?e[-+]?\d+", re.IGNORECASE)
_LARGEST = 2**63
# in YAML 1.1, 0100 is in base 8 and 2:08 in base 60
_AMBIGUOUS = re.compile(r"[-+]?0\d[\d_]*|[^:]+:.*")


def check_notation(text: str, number: Any) -> None:
    """Raise KeyFaultError for the ``text`` of a number that people read as another ``number``."""
    if _AMBIGUOUS.fullmatch(text):
        hint = f"write {number}, or write the number without a leading zero or a colon"
        raise KeyFaultError(
            f"YAML reads '{text}' as {number}", hint=hint, code="number-ambiguous", value=text
        )


def check_own(value: Any) -> None:
    """Raise KeyFaultError for a value that llmb never writes into its own files."""
    if type(value) is int and abs(value) > _LARGEST:
        raise KeyFaultError("the number is too large")
    if type(value) is float and not math.isfinite(value):
        raise KeyFaultError(f"{value} is not a number")
    if isinstance(value, str) and "\0" in value:
        raise KeyFaultError("the text contains a NUL character")


def has_exponent(value: Any) -> bool:
    """Return True for a text such as ``1e-3``, which YAML 1.1 does not read as a number."""
    return isinstance(value, str) and _EXPONENT.fullmatch(value) is not None


def convert(kind: Any, value: Any, text: str | None = None) -> Any:
    """Return ``value`` as ``kind``, one of KINDS. Raises KeyFaultError.

    ``text`` is how a number was written.
    """
    if kind is float and (type(value) is int or has_exponent(value)):
        try:
            return float(value)
        except OverflowError:
            raise KeyFaultError(
                "the number is too large", hint="write a number below 1e308"
            ) from None
    if kind is str and type(value) in (int, float):
        return str(value) if text is None else text
    if kind is Path and isinstance(value, str) and value:
        try:
            return Path(value).expanduser()
        except RuntimeError:  # ~nobody/folder
            hint = "write the full path"
            raise KeyFaultError(
                f"nobody knows the home folder in {value}", hint=hint, code="home-unknown"
            ) from None
    if type(value) is not kind and not (kind is Path and isinstance(value, Path)):
        shown = "null" if value is None else repr(value)
        message = f"must be {KINDS.get(kind, kind)}, not {shown}"
        raise KeyFaultError(message, hint=_fix(kind, value), code="value-type")
    if kind is float and not math.isfinite(value):
        hint = "write a number, or remove the key"
        raise KeyFaultError(f"{value} is no finite number", hint=hint, code="number-not-finite")
    return value


def _fix(kind: Any, value: Any) -> str | None:
    """Return the hint for a value of the wrong type, if the fix is plain."""
    if kind is str and value is None:
        return "write '' for an empty text, or remove the key"
    if kind is str and not isinstance(value, (list, dict)):
        return "put it in quotes"
    if kind is not int or not isinstance(value, str):
        return None
    if re.fullmatch(r"\d+(\s*,\s*\d+)+", value, re.ASCII):
        return f"write [{value}]"
    if re.fullmatch(r"\d{1,300}", value, re.ASCII) or _EXPONENT.fullmatch(value):
        number = float(value) if _EXPONENT.fullmatch(value) else int(value)
        return f"write {number:.0f}" if number < 1e15 and number == int(number) else None
    return None
