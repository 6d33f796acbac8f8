# SPDX-License-Identifier: Apache-2.0
"""Checks how a plugin describes a log: its needle, its pattern, its keys and their units."""

import math
import re
from collections.abc import Collection, Mapping

from llmb.errors import KeyFaultError
from llmb.text.names import suggest

# Our names of what a step of training has.
TRAINING_KEYS = (
    "step_time",
    "tflops",
    "loss",
    "grad_norm",
    "gbs",
    "consumed_samples",
    "global_step",
    "peak_memory",
    "tokens_rate",
)
_OF_A_STEP = ("step_time", "tokens_rate")
_GROUPS = ("i", "last")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
PATTERN_HINT = r"write it as in step (?P<i>\d{1,9})/(?P<last>\d{1,9})"
# What a group of numbers matches at least one of.
_DIGITS = [digit * count for digit in "0123456789" for count in range(1, 13)] + ["10", "000000000001"]
_NUMBERS = [f"{before}{digits}".encode() for digits in _DIGITS for before in ("", " ")]
_CONTEXT = re.compile(r"\(\?(?:<?[=!]|P=|\()")  # what depends on the text around a group


def check_needle(needle: str) -> None:
    """Raise KeyFaultError for a needle that every line has, or none."""
    if not needle.strip():
        hint = "write text that only the line of a step has, such as 'time per step'"
        raise KeyFaultError("is empty, so every line would be a step", "needle", hint=hint, code="needle-empty")
    if "\n" in needle or "\r" in needle:
        message, hint = "has a line break, which no line contains", "write text of one line"
        raise KeyFaultError(message, "needle", hint=hint, code="needle-invalid", value=needle)


def check_pattern(pattern: str) -> None:
    """Raise KeyFaultError for a pattern of the iteration that is none, or that can never be right.

    It lacks the group ``i``, matches the empty text, or its groups match no number.
    """
    hint = PATTERN_HINT
    try:
        compiled = re.compile(pattern.encode())
    except (re.error, OverflowError, RecursionError) as error:
        message = f"is not a regular expression: {error}"
        raise KeyFaultError(message, "iteration", hint=hint, code="pattern-invalid", value=pattern) from None
    if "i" not in compiled.groupindex:
        raise KeyFaultError("has no group 'i'", "iteration", hint=hint, code="group-missing", value=pattern)
    for name in compiled.groupindex:
        if name not in _GROUPS:
            message = f"has the group '{name}', which llmb does not know"
            own = f"the groups are i and last; {suggest(name, _GROUPS)}"
            raise KeyFaultError(message, "iteration", hint=own, code="group-unknown", value=name)
    if compiled.search(b"") is not None:
        message = "matches the empty text, so it is found everywhere"
        raise KeyFaultError(message, "iteration", hint=hint, code="pattern-empty", value=pattern)
    for name in compiled.groupindex if not compiled.flags & re.VERBOSE else ():
        _check_group(pattern, name, compiled.flags & re.IGNORECASE)


def _check_group(pattern: str, name: str, flags: int) -> None:
    """Raise KeyFaultError for a group that matches no number or the empty text, or an optional group ``i``."""
    inside, after = _group_of(pattern, name)
    try:
        own = re.compile(inside.encode(), flags)
    except re.error:  # it refers to another group
        return
    if name == "i" and re.match(r"[?*]|\{0*[,}]", after):
        message, code = "is optional, so that a line may have no number", "group-optional"
    elif _CONTEXT.search(inside):
        return
    elif own.fullmatch(b"") is not None:
        message, code = "matches the empty text, which is no number", "group-no-number"
    elif not any(own.fullmatch(number) for number in _NUMBERS):
        message, code = "matches no number", "group-no-number"
    else:
        return
    raise KeyFaultError(f"group '{name}' {message}", "iteration", hint=PATTERN_HINT, code=code, value=pattern)


def _group_of(pattern: str, name: str) -> tuple[str, str]:
    """The pattern within the group ``name`` of ``pattern``, and the rest of it behind the group."""
    rest = pattern.partition(f"(?P<{name}>")[2]
    depth, at, in_set = 1, 0, False
    while at < len(rest):
        char = rest[at]
        if char == "\\":
            at += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
            at += len(re.match(r"\^?\]?", rest[at + 1 :])[0])  # type: ignore[index] # matches the empty text
        else:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if not depth:
                return rest[:at], rest[at + 1 :]
        at += 1
    return rest, ""


def check_keys(keys: Mapping[str, str], units: Mapping[str, float]) -> None:
    """Raise KeyFaultError for a name that no metric can have, a key without text, or a unit that is no factor."""
    for name, text in keys.items():
        if not _NAME.fullmatch(name):
            message, hint = "must begin with a letter, then letters, digits and _", "as in step_time"
            raise KeyFaultError(message, "keys", name, hint=hint, code="name-invalid", value=name)
        if not all(key.strip() for key in text.split("|")):
            message, hint = "is empty", "write the text before the number, a|b for alternatives"
            raise KeyFaultError(message, "keys", name, hint=hint, code="key-empty", value=text)
    for name, factor in units.items():
        if name not in keys:
            hint = suggest(name, list(keys))
            raise KeyFaultError("is not one of the keys", "units", name, hint=hint, code="key-unknown", value=name)
        if not (math.isfinite(factor) and factor > 0):
            message, hint = f"{factor} is not a factor", "write a positive number, such as 1e-3 for milliseconds"
            raise KeyFaultError(message, "units", name, hint=hint, code="unit-invalid", value=factor)


def check_declared(keys: Mapping[str, str], metrics: Collection[str]) -> None:
    """Raise KeyFaultError for a key that is neither one of training nor one of the workload's ``metrics``.

    Also where there is nothing that a step measures.
    """
    known = [*TRAINING_KEYS, *metrics]
    for name in keys:
        if name not in known:
            message = "is neither a value of training nor a metric that the workload declares"
            raise KeyFaultError(message, "keys", name, hint=suggest(name, known), code="key-unknown", value=name)
    measured = [*_OF_A_STEP, *metrics]
    if not any(name in keys for name in measured):
        message, hint = "has nothing that a step measures", f"add one of {', '.join(measured)}"
        raise KeyFaultError(message, "keys", hint=hint, code="keys-missing", value=list(keys))
