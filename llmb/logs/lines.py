# SPDX-License-Identifier: Apache-2.0
"""Reads one line of a log: a step, a list of step times, the number behind a key."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from llmb.errors import LlmbError
from llmb.logs.formats import NO_KEYS, Format
from llmb.logs.samples import Step
from llmb.logs.scan import Line
from llmb.logs.text import strip_escapes
from llmb.system.process import OverdueError, time_limit

PATTERN_SECONDS = 5.0

# No pattern here tries a run of characters in more than one way: what a log holds decides no more than how long it is.
_NUMBER = rb"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf))"
_VALUE = re.compile(rb"\s*[:=]\s*(" + _NUMBER + rb")")
_COMMA = re.compile(rb"(?<=\d),(?=\d{3}(?!\d))")
_LIST = re.compile(rb"\s*[:=]\s*\[")
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_STEP_TIME = re.compile(
    rb"Step Time\s*[:=]\s*(?P<time>"
    + _NUMBER
    + rb")\s*s\b.{0,200}?GPU utilization\s*[:=]\s*(?P<tflops>"
    + _NUMBER
    + rb")"
    rb"\s*MODEL_TFLOP/s/GPU",
    re.IGNORECASE,
)
# Nothing but a time may stand between a rank and its step: text of another rank may be glued before.
_RANK = re.compile(
    rb"(?:(?:^|[\s\]])(\d{1,6}): |\[(?:default|rank)(\d{1,6})\]:|/(\d{1,6}) )"
    rb"\s{0,20}(?:\[[^\]]{0,80}\]:?\s{0,20}){0,4}(?:Training epoch \d{1,9}, )?$"
)


class SlowPatternError(LlmbError):
    """A plugin's pattern does not come to an end."""


class StepLine(NamedTuple):
    """A step as its line has it, the ``last`` iteration announced, and what is not the step's own."""

    step: Step
    last: int | None
    gbs: int | None
    peak_memory: float | None


def read_step(line: Line, form: Format, *, with_batch: bool = True) -> StepLine | None:
    """The step whose needle begins ``line.after``; None where the line is not whole."""
    before, after = strip_escapes(line.before), strip_escapes(line.after)
    if (header := _last_header(before, form)) is None:
        return None
    following = _next_header(after, form)
    text = before[header.end() :] + (after[: following.start()] if following else after)
    if form.thousands:
        text = _COMMA.sub(b"", text)
    cut = line.cut and following is None
    iteration = int(header["i"]) - form.first_iteration
    step_time, tflops, loss, memory, norm = _values_of(text, form, cut)
    rate = _value_of(text, "tokens_rate", form, cut)
    if iteration < 0 or (step_time is None and rate is None):
        return None
    seconds = math.nan if step_time is None else step_time
    step = Step(iteration=iteration, step_time=seconds, tflops=tflops, loss=loss, grad_norm=norm, tokens_rate=rate)
    gbs = _batch(text, form, iteration, cut) if with_batch else None
    last = header.groupdict().get("last")
    return StepLine(step, None if last is None else int(last) - form.first_iteration, gbs, memory)


def read_rank(line: Line, form: Format) -> int | None:
    """Who tells of the step, where a prefix says so: ``[default0]:``, `` 0: ``, ``<experiment>/0 ``."""
    before = strip_escapes(line.before)
    header = _last_header(before, form)
    found = _RANK.search(before[: header.start()]) if header else None
    return int(next(group for group in found.groups() if group is not None)) if found else None


def read_list(behind: bytes, key: bytes) -> tuple[float, ...]:
    """The numbers of ``key: [11.85, 6.98, ...]`` that begins ``behind``, as far as they stand there; else none."""
    text = strip_escapes(behind.split(b"\n", 1)[0])
    if (start := _LIST.match(text, len(key))) is None:
        return ()
    whole, closed, _ = text[start.end() :].partition(b"]")
    items = whole.split(b",")
    read = [re.fullmatch(_NUMBER, item.strip()) for item in (items if closed else items[:-1])]
    return tuple(float(item[0]) for item in read if item is not None) if all(read) else ()


def read_step_time(line: Line) -> tuple[float, float] | None:
    """Seconds and TFLOPS of Megatron-Bridge's ``Step Time : 2.69s GPU utilization: 611.5MODEL_TFLOP/s/GPU``."""
    match = _STEP_TIME.search(strip_escapes(line.before + line.after))
    return (float(match["time"]), float(match["tflops"])) if match else None


def read_value(text: bytes, key: bytes, cut: bool = False) -> float | None:
    """The number behind ``key:`` or ``key=``; None without one, or where ``cut`` may have left half of it."""
    at = text.find(key)
    while at >= 0:
        match = _VALUE.match(text, at + len(key))
        if match is not None and not (at and text[at - 1] in _WORD):
            # 12.3 at the end of the file may be the beginning of 12.39, and 1.234e of 1.234e+03.
            half = cut and not text[match.end() :].strip(b"eE+-")
            return None if half else float(match[1])
        at = text.find(key, at + 1)
    return None


def _values_of(text: bytes, form: Format, cut: bool) -> list[float | None]:
    """The values of each step, in our units; half of the time that a log takes to read goes by in here."""
    # `key: value | key: value`, as most lines are, comes apart sooner than each key is found in it.
    parts = [] if cut else text.split(b" | ")
    fields = {key: value for key, _, value in [part.partition(b": ") for part in parts]}
    whole = len(fields) == len(parts)
    return [_value_in(fields if whole else {}, text, keys, unit, cut) for keys, unit in form.each_step]


def _value_in(
    fields: Mapping[bytes, bytes], text: bytes, keys: tuple[bytes, ...], unit: float, cut: bool
) -> float | None:
    for key in keys:
        try:
            return float(fields[key]) * unit
        except (KeyError, ValueError):
            if key in text and (value := read_value(text, key, cut)) is not None:
                return value * unit
    return None


def _value_of(text: bytes, name: str, form: Format, cut: bool) -> float | None:
    """The value that we call ``name``, as it stands there."""
    keys, _ = form.keys.get(name, NO_KEYS)
    return next((value for key in keys if (value := read_value(text, key, cut)) is not None), None)


def _batch(text: bytes, form: Format, iteration: int, cut: bool) -> int | None:
    """The global batch: as the line says, else what each step has consumed where that comes out whole."""
    value = _value_of(text, "gbs", form, cut)
    if value is None and (consumed := _value_of(text, "consumed_samples", form, cut)) is not None:
        step = _value_of(text, "global_step", form, cut)  # a bar may stand one step ahead of its values
        value = consumed / (1 + (iteration if step is None or step < 0 else step))
    return int(value) if value is not None and 0 < value < 1e12 and value == int(value) else None


def _last_header(before: bytes, form: Format) -> re.Match[bytes] | None:
    """The iteration nearest before the needle: an earlier one belongs to a step glued before it."""
    if not form.source:
        return _last_match(before, form)
    try:
        with time_limit(PATTERN_SECONDS):
            return _last_match(before, form)
    except OverdueError:
        raise _slow(form) from None


def _next_header(after: bytes, form: Format) -> re.Match[bytes] | None:
    """The iteration of a step that is glued behind."""
    if not form.source:
        return form.iteration.search(after)
    try:
        with time_limit(PATTERN_SECONDS):
            return form.iteration.search(after)
    except OverdueError:
        raise _slow(form) from None


def _slow(form: Format) -> SlowPatternError:
    message = f"the pattern of plugin {form.source} takes more than {PATTERN_SECONDS:g} s for one line"
    return SlowPatternError(message, hint="tell its maintainers")


def _last_match(before: bytes, form: Format) -> re.Match[bytes] | None:
    header = None
    for header in form.iteration.finditer(before):  # noqa: B007 - the last is meant
        pass
    return header
