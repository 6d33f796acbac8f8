# SPDX-License-Identifier: Apache-2.0
"""Reads the simple job list strictly: tuples below a header, as NVIDIA's launcher has them."""

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from llmb import api

_HEADER = re.compile(r"(?P<name>[^\s:()\[\]'\"#]+)\s*:\s*(#.*)?")
_TASK_HINT = (
    "a task is (dtype or [dtypes], [scales], repeats) or (..., repeats, profile), as ('bf16', [128,"
    " 256], 3)"
)


def parse(text: str, *, name: str) -> api.JobList:
    """Return the entries and faults in ``text``. Raises api.UsageError for an empty text.

    ``name``: the file, in faults.
    """
    entries: list[api.JobEntry] = []
    faults: list[tuple[int, api.Fault]] = []  # each with its line
    headers: dict[int, str] = {}
    with_tasks: set[int] = set()
    # A list may repeat a task thousands of times, so equal tasks share their values.
    equal_tasks: dict[tuple[int, str], api.JobEntry] = {}

    def add_fault(line: int, message: str, hint: str, code: str) -> None:
        faults.append(
            (line, api.Fault(place=f"{name}:{line}", message=message, hint=hint, code=code))
        )

    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if match := _HEADER.fullmatch(line):
            headers[number] = match["name"]
            continue
        above = max(headers, default=0)
        if (equal := equal_tasks.get((above, line))) is not None:
            entries.append(replace(equal, place=f"{name}:{number}"))
            continue
        task, invalid = _task(line)
        for message in invalid:
            add_fault(number, message, _TASK_HINT, "task-invalid")
        if headers:
            with_tasks.add(above)
            entry = api.JobEntry(
                settings=api.Settings(workload=headers[above], profile=task.get("profile", False)),
                sweeps={name: task[name] for name in ("dtype", "scale") if name in task},
                repeats=task.get("repeats", 1),
                place=f"{name}:{number}",
                header=f"{name}:{above}",
                faulty=bool(invalid),
            )
            entries.append(entry)
            if not invalid:
                equal_tasks[above, line] = entry
        elif task:
            add_fault(
                number,
                "a task before any header",
                "write <workload>_<size>: above it",
                "header-missing",
            )
    for number in headers.keys() - with_tasks:
        add_fault(number, f"no task below '{headers[number]}:'", _TASK_HINT, "tasks-empty")
    if not entries and not faults:
        hint = f"write <workload>_<size>: and tasks below it; {_TASK_HINT}"
        raise api.UsageError(f"{name} contains no jobs", hint=hint, code="joblist-empty")
    return api.JobList(
        entries=tuple(entries),
        faults=tuple(
            fault for _, fault in sorted(faults, key=lambda line_and_fault: line_and_fault[0])
        ),
    )


def _task(line: str) -> tuple[dict[str, Any], list[str]]:
    """The values that a task line gives, by name, and the faults of the others."""
    fields, invalid = {}, []
    try:
        for (name, reader), value in zip(_READERS.items(), _parts(line), strict=False):
            try:
                fields[name] = reader(value)
            except ValueError as error:
                invalid.append(str(error))
    except ValueError as error:
        invalid.append(str(error))
    return fields, invalid


def _parts(line: str) -> tuple[Any, ...]:
    """The 3 or 4 values of a task line. Raises ValueError."""
    if not line.startswith("("):
        raise ValueError(
            f"'{line}' is neither a header (which ends with a colon) nor a task (which begins with"
            " a bracket)"
        )
    try:
        with warnings.catch_warnings():
            # Python's warning of a wrong escape does not help here
            warnings.simplefilter("ignore", SyntaxWarning)
            task = ast.literal_eval(line)
    except (ValueError, TypeError) as error:  # the brackets match, but a value is not a literal
        if bare := _bare_dtype(line):
            raise ValueError(f"{line}: {bare} needs quotes, '{bare}'") from error
        raise ValueError(
            f"{line} may contain only words in quotes, whole numbers, True and False, with commas"
            " between"
        ) from error
    except (SyntaxError, MemoryError, RecursionError) as error:
        if zero := re.search(r"(?<![\w.'\"])0+([1-9]\d*)", line):
            raise ValueError(f"{line}: {zero[0]} has a leading zero, write {zero[1]}") from error
        raise ValueError(
            f"{line} is not a Python tuple: a bracket, comma or quote is missing or too many"
        ) from error
    if not isinstance(task, tuple) or len(task) not in (3, 4):
        raise ValueError(f"{line} does not have 3 or 4 parts")
    return task


def _bare_dtype(line: str) -> str | None:
    """The first word without quotes among a task's dtypes."""
    task = ast.parse(line, mode="eval").body
    first = task.elts[0] if isinstance(task, ast.Tuple) and task.elts else task
    words = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
    return next((word.id for word in words if isinstance(word, ast.Name)), None)


def _many(value: Any, kind: type, noun: str) -> tuple[Any, ...]:
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items or any(type(item) is not kind for item in items):
        raise ValueError(f"{value!r} is not a {noun} or a list of them")
    if kind is int:
        return tuple(_at_least_one(item, noun) for item in items)
    return tuple(items)


def _at_least_one(value: Any, noun: str) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{noun} must be a whole number from 1, not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"profile must be True or False, not {value!r}")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "dtype": partial(_many, kind=str, noun="dtype"),
    "scale": partial(_many, kind=int, noun="scale"),
    "repeats": partial(_at_least_one, noun="repeats"),
    "profile": _flag,
}
