# SPDX-License-Identifier: Apache-2.0
"""Read a step that a program logs as an object in JSON: ``{"step": 3, "time_ms": 12.5, ...}``."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from llmb.contract.formats import Format
from llmb.contract.samples import Step
from llmb.contract.spec_checks import TRAINING_KEYS
from llmb.core.scan import Line, plain, strip_escapes
from llmb.measure.log_lines import StepLine

_MOST = 1e12  # iterations, samples
_DEEPEST = 8  # objects in objects


def read_step(line: Line, form: Format) -> StepLine | None:
    """Return the step of a line, None if it is incomplete or has no number of its iteration."""
    numbers = _numbers_of(line)
    if numbers is None:
        return None
    iteration, last = _iteration_of(numbers, form)
    logged = {name: _value(numbers, *form.keys[name]) for name in form.keys}
    values = {
        name: value
        for name, value in logged.items()
        if value is not None and name not in TRAINING_KEYS
    }
    seconds, rate, batch = (logged.get(name) for name in ("step_time", "tokens_rate", "gbs"))
    if iteration is None or iteration < 0 or (seconds is None and rate is None and not values):
        return None
    step = Step(
        iteration=iteration,
        step_time=math.nan if seconds is None else seconds,
        tflops=logged.get("tflops"),
        loss=logged.get("loss"),
        grad_norm=logged.get("grad_norm"),
        tokens_rate=rate,
        values=values,
    )
    return StepLine(step, last, _whole(batch), logged.get("peak_memory"))


def why_no_step(line: Line, form: Format) -> str:
    """Quote a line that has the needle and is no step, and say why."""
    quoted = f"the line {plain(line.before + line.after, 160)!r} has the needle, but"
    numbers = _numbers_of(line)
    if numbers is None:
        return f"{quoted} it has no whole object in JSON"
    if _iteration_of(numbers, form)[0] is None:
        return f"{quoted} its {(form.json_names or ('',))[0]!r} is no whole number"
    keys = [repr(key.decode()) for names, _ in form.keys.values() for key in names]
    return f"{quoted} it has no number called {' or '.join(keys)}"


def _iteration_of(numbers: Mapping[str, float], form: Format) -> tuple[int | None, int | None]:
    """Return the iteration and the last one, from 0. None for each that is no whole number."""
    logged = [_whole(numbers.get(name)) for name in form.json_names or ()]
    iteration, last = [
        None if number is None else number - form.first_iteration for number in (*logged, None)
    ][:2]
    return iteration, last


def _numbers_of(line: Line) -> dict[str, float] | None:
    """Return the numbers of the object in a line, by name. None if it has no whole object."""
    text = strip_escapes(line.before + line.after)
    start = text.find(b"{")
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start:].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return dict(_flat(data, "", _DEEPEST))


def _flat(data: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for name, value in data.items():
        if isinstance(value, dict):
            if depth:
                yield from _flat(value, f"{prefix}{name}.", depth - 1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, _float(value)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _value(numbers: Mapping[str, float], keys: tuple[bytes, ...], factor: float) -> float | None:
    spellings = (key.decode() for key in keys)
    return next((numbers[key] * factor for key in spellings if key in numbers), None)


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < _MOST and value == int(value) else None
