# SPDX-License-Identifier: Apache-2.0
"""Checks how a plugin describes a log: its needle, its pattern, its keys and their units."""

import math
import re
from collections.abc import Collection, Mapping, Sequence

from llmb.core.names import suggest
from llmb.core.units import KNOWN, factor_between
from llmb.errors import KeyFaultError

# Our names of what a step of training has.
TRAINING_KEYS = (
    *(
        "step_time",
        "tflops",
        "loss",
        "grad_norm",
        "gbs",
        "consumed_samples",
        "global_step",
        "peak_memory",
    ),
    "tokens_rate",
)
# in which llmb has these values
OWN_UNITS = {"step_time": "s", "tflops": "TFLOPS", "peak_memory": "B"}
_OF_A_STEP = ("step_time", "tokens_rate")
_GROUPS = ("i", "last")
MOST_LINES = 100  # of one step
_VALUE_GROUPS = ("value", "unit")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
PATTERN_HINT = r"write it as in step (?P<i>\d{1,9})/(?P<last>\d{1,9})"
# What a group of numbers matches at least one of.
_DIGITS = [digit * count for digit in "0123456789" for count in range(1, 13)] + [
    "10",
    "000000000001",
]
_NUMBERS = [f"{before}{digits}".encode() for digits in _DIGITS for before in ("", " ")]
_CONTEXT = re.compile(rb"\(\?(?:<?[=!]|P=|\()")  # what depends on the text around a group


def check_needle(needle: str) -> None:
    """Raise KeyFaultError for a needle that every line has, or none."""
    if not needle.strip():
        hint = "write text that only the line of a step has, such as 'time per step'"
        raise KeyFaultError(
            "is empty, so every line would be a step", "needle", hint=hint, code="needle-empty"
        )
    if "\n" in needle or "\r" in needle:
        message, hint = "has a line break, which no line contains", "write text of one line"
        raise KeyFaultError(message, "needle", hint=hint, code="needle-invalid", value=needle)


def check_lines(lines: int) -> None:
    """Raise KeyFaultError for a number of lines that no step has."""
    if not 1 <= lines <= MOST_LINES:
        message, hint = f"must be from 1 to {MOST_LINES}", "the lines of one step"
        raise KeyFaultError(message, "lines", hint=hint, code="lines-invalid", value=lines)


def check_json(iteration: str, patterns: Collection[str], lines: int) -> None:
    """Raise KeyFaultError for a description of lines of JSON that can never be right."""
    if lines > 1 or patterns:
        message, hint = "reads one object in each line, by keys", "omit lines and patterns"
        raise KeyFaultError(message, "json_lines", hint=hint, code="json-conflict", value=lines)
    names = iteration.split("/")
    if len(names) > 2 or not all(name.strip() for name in names) or "(?P<" in iteration:
        raise KeyFaultError(
            "is not a name in the object, or two",
            "iteration",
            hint="write it as in step or step/steps",
            code="pattern-invalid",
            value=iteration,
        )


def check_pattern(pattern: str) -> None:
    """Raise KeyFaultError for a pattern of the iteration that is none, or that can never be right.

    It lacks the group ``i``, matches the empty text, or its groups match no number.
    """
    compiled = _check_regex(pattern, ("iteration",), _GROUPS, PATTERN_HINT)
    for name in compiled.groupindex if not compiled.flags & re.VERBOSE else ():
        group = _group(pattern, name, compiled.flags)
        if group is None or _CONTEXT.search(group.pattern):
            continue
        if not any(group.fullmatch(number) for number in _NUMBERS):
            message, code = f"group '{name}' matches no number", "group-no-number"
            raise KeyFaultError(message, "iteration", hint=PATTERN_HINT, code=code, value=pattern)


def check_patterns(patterns: Mapping[str, str], keys: Collection[str]) -> None:
    """Raise KeyFaultError for a pattern that can never be right, or of a value with a key."""
    for name, pattern in patterns.items():
        _check_name(name, "patterns")
        if name in keys:
            message, hint = "is in keys too", "remove it from one of them"
            raise KeyFaultError(
                message, "patterns", name, hint=hint, code="key-duplicate", value=name
            )
        _check_regex(
            pattern,
            ("patterns", name),
            _VALUE_GROUPS,
            r"write it as in busbw (?P<value>\S+) (?P<unit>\S+)",
        )


def check_conditions(patterns: Sequence[str], field: str) -> None:
    """Raise KeyFaultError for a pattern in ``field`` that is none, or that every log matches."""
    hint = "write it as in Solution Validates"
    for number, pattern in enumerate(patterns):
        compiled = _compiled(pattern, (field, number), hint)
        if compiled.search(b"") is not None:
            message = "matches the empty text, so it is found everywhere"
            raise KeyFaultError(
                message, field, number, hint=hint, code="pattern-empty", value=pattern
            )


def _compiled(pattern: str, path: tuple[str | int, ...], hint: str) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode())
    except (re.error, OverflowError, RecursionError) as error:
        message = f"is not a regular expression: {error}"
        raise KeyFaultError(
            message, *path, hint=hint, code="pattern-invalid", value=pattern
        ) from None


def _check_regex(
    pattern: str, path: tuple[str, ...], groups: tuple[str, ...], hint: str
) -> re.Pattern[bytes]:
    """The compiled ``pattern``. Raises KeyFaultError.

    It must have the first of ``groups``, which is not optional or empty, no unknown one, and need
    some text.
    """
    compiled = _compiled(pattern, path, hint)
    if groups[0] not in compiled.groupindex:
        raise KeyFaultError(
            f"has no group '{groups[0]}'", *path, hint=hint, code="group-missing", value=pattern
        )
    for name in compiled.groupindex:
        if name not in groups:
            message = f"has the group '{name}', which llmb does not know"
            choices = f"the groups are {' and '.join(groups)}; {suggest(name, groups)}"
            raise KeyFaultError(message, *path, hint=choices, code="group-unknown", value=name)
    if compiled.search(b"") is not None:
        message = "matches the empty text, so it is found everywhere"
        raise KeyFaultError(message, *path, hint=hint, code="pattern-empty", value=pattern)
    if not compiled.flags & re.VERBOSE:
        _check_first_group(pattern, path, groups[0], hint, compiled.flags)
    return compiled


def _check_first_group(
    pattern: str, path: tuple[str, ...], name: str, hint: str, flags: int
) -> None:
    """Raise KeyFaultError for a group ``name`` that a match may lack, or that may be empty."""
    group = _group(pattern, name, flags)
    if re.match(r"[?*]|\{0*[,}]", _group_of(pattern, name)[1]):
        message, code = (
            f"group '{name}' is optional, so that a line may have no number",
            "group-optional",
        )
    elif (
        group is not None
        and group.fullmatch(b"") is not None
        and not _CONTEXT.search(group.pattern)
    ):
        message, code = (
            f"group '{name}' matches the empty text, which is no number",
            "group-no-number",
        )
    else:
        return
    raise KeyFaultError(message, *path, hint=hint, code=code, value=pattern)


def _group(pattern: str, name: str, flags: int) -> re.Pattern[bytes] | None:
    """Return the pattern of one group alone, None if it refers to another group."""
    try:
        return re.compile(_group_of(pattern, name)[0].encode(), flags & re.IGNORECASE)
    except re.error:
        return None


def _group_of(pattern: str, name: str) -> tuple[str, str]:
    """The pattern within the group ``name`` of ``pattern``, and the rest of it behind the group."""
    inside = pattern.partition(f"(?P<{name}>")[2]
    depth, at, in_set = 1, 0, False
    while at < len(inside):
        char = inside[at]
        if char == "\\":
            at += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
            opening = re.match(r"\^?\]?", inside[at + 1 :])
            at += len(opening[0]) if opening else 0
        else:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if not depth:
                return inside[:at], inside[at + 1 :]
        at += 1
    return inside, ""


def check_keys(keys: Mapping[str, str]) -> None:
    """Raise KeyFaultError for a name that no metric can have, or a key without text."""
    for name, text in keys.items():
        _check_name(name, "keys")
        if not all(key.strip() for key in text.split("|")):
            message, hint = "is empty", "write the text before the number, a|b for alternatives"
            raise KeyFaultError(message, "keys", name, hint=hint, code="key-empty", value=text)


def _check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        message, hint = "must begin with a letter, then letters, digits and _", "as in step_time"
        raise KeyFaultError(message, field, name, hint=hint, code="name-invalid", value=name)


def check_units(units: Mapping[str, float | str], names: Collection[str]) -> None:
    """Raise KeyFaultError for a unit of none of the ``names``, or one that is unknown."""
    for name, unit in units.items():
        if name not in names:
            hint = suggest(name, list(names))
            message = "is not one of the keys and patterns"
            raise KeyFaultError(message, "units", name, hint=hint, code="key-unknown", value=name)
        if isinstance(unit, str):
            if unit not in KNOWN:
                raise KeyFaultError(
                    f"'{unit}' is a unit that llmb cannot convert",
                    "units",
                    name,
                    hint=suggest(unit, list(KNOWN)),
                    code="unit-unknown",
                    value=unit,
                )
        elif not (math.isfinite(unit) and unit > 0):
            raise KeyFaultError(
                f"{unit} is not a factor",
                "units",
                name,
                hint='write the unit in the log, such as "ms", or a positive number',
                code="unit-invalid",
                value=unit,
            )


def check_convertible(units: Mapping[str, float | str], declared: Mapping[str, str]) -> None:
    """Raise KeyFaultError for a unit of the log that cannot become the ``declared`` one."""
    for name, unit in units.items():
        target = declared.get(name) or OWN_UNITS.get(name, "")
        if isinstance(unit, str) and factor_between(unit, target) is None:
            message = f"'{unit}' cannot be converted into '{target}', the unit of {name}"
            hint = "write the factor as a number, or declare another unit in workload.yaml"
            raise KeyFaultError(message, "units", name, hint=hint, code="unit-mismatch", value=unit)


def check_declared(
    keys: Collection[str], metrics: Collection[str], patterns: Collection[str] = ()
) -> None:
    """Raise KeyFaultError for a key or pattern that is neither llmb's nor one of ``metrics``.

    Also if there is nothing that a step measures.
    """
    usable = [*TRAINING_KEYS, *metrics]
    for field, names in (("keys", keys), ("patterns", patterns)):
        for name in names:
            if name not in usable:
                message = "is neither a value of training nor a metric that the workload declares"
                raise KeyFaultError(
                    message, field, name, hint=suggest(name, usable), code="key-unknown", value=name
                )
    measured = [*_OF_A_STEP, *metrics]
    if not any(name in (*keys, *patterns) for name in measured):
        message, hint = "has nothing that a step measures", f"add one of {', '.join(measured)}"
        raise KeyFaultError(message, "keys", hint=hint, code="keys-missing", value=list(keys))
