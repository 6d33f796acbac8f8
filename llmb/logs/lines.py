# SPDX-License-Identifier: Apache-2.0
"""Reads one line of a log: a step, a list of step times, a summary, the number after a key.

The Trainer of Hugging Face's transformers logs no time of a step, only the means of the whole run in its last line:
``{'train_runtime': 110.5948, 'train_samples_per_second': 28.93, 'train_steps_per_second': 1.808, ...}``.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from llmb.errors import LlmbError, PluginError
from llmb.logs.formats import NO_KEYS, Format, Keys
from llmb.logs.samples import Step
from llmb.logs.scan import Line, needle, plain, strip_escapes
from llmb.logs.spec_checks import PATTERN_HINT, TRAINING_KEYS
from llmb.system.process import OverdueError, time_limit
from llmb.text.units import factor_between, unit_after

PATTERN_SECONDS = 5.0

# No pattern here matches characters in more than one way, so that its time is linear in the length of the line.
_NUMBER = rb"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf))"
_VALUE = re.compile(rb"\s*[:=]\s*(" + _NUMBER + rb")")
_INTEGER = re.compile(rb"\s*[-+]?\d{1,12}\s*")
_GROUP = re.compile(rb",\d")
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
# Only a time may be between a rank and its step: text of another rank may precede it on the same line.
_RANK = re.compile(
    rb"(?:(?:^|[\s\]])(\d{1,6}): |\[(?:default|rank)(\d{1,6})\]:|/(\d{1,6}) )"
    rb"\s{0,20}(?:\[[^\]]{0,80}\]:?\s{0,20}){0,4}(?:Training epoch \d{1,9}, )?$"
)


class PatternError(PluginError):
    """A plugin's pattern cannot read a log; ``key`` is the field of its ParseSpec, ``value`` the plugin."""


class SlowPatternError(PatternError):
    """A plugin's pattern takes too long for one line."""


class NoNumberError(PatternError):
    """A group of a plugin's pattern matches something that is no number."""


class UnitMismatchError(LlmbError):
    """A log has a value in another unit than its workload or its plugin says."""


class StepLine(NamedTuple):
    """A step, and what else its line says: the ``last`` iteration, the global batch, the peak memory in bytes."""

    step: Step
    last: int | None
    gbs: int | None
    peak_memory: float | None


def read_step(line: Line, form: Format, *, with_batch: bool = True) -> StepLine | None:
    """The step whose needle begins ``line.after``; None where the line is incomplete.

    Raises SlowPatternError and NoNumberError for a pattern of a plugin, UnitMismatchError for a value in another unit.
    """
    if not form.source:
        return _read_step(line, form, with_batch)
    with _limited(form):
        return _read_step(line, form, with_batch)


def _read_step(line: Line, form: Format, with_batch: bool) -> StepLine | None:
    after = strip_escapes(line.after)
    parts = _parts(strip_escapes(line.before), after, form)
    if parts is None:
        return None
    _, header, text, cut = parts
    if form.thousands:
        text = _COMMA.sub(b"", text)
    if line.cut and header.string is after and header.end() == len(after):
        return None  # further digits may follow
    cut = cut and line.cut
    step_time, tflops, loss, memory, norm = _values_of(text, form.each_step, cut)
    rate = _value_of(text, "tokens_rate", form, cut)
    values: dict[str, float] = {}
    if form.declared:
        own = _values_of(text, [keys for _, keys in form.declared], cut)
        values = {name: value for (name, _), value in zip(form.declared, own, strict=True) if value is not None}
    if form.patterns:
        found = {name: value for name in form.patterns if (value := _value_of(text, name, form, cut)) is not None}
        values = {**values, **{name: value for name, value in found.items() if name not in TRAINING_KEYS}}
        step_time, tflops = found.get("step_time", step_time), found.get("tflops", tflops)
        loss, norm = found.get("loss", loss), found.get("grad_norm", norm)
        memory = found.get("peak_memory", memory)
    if form.units:
        _check_units(text, form, cut)
    if step_time is None and rate is None and not values and (cut or not (form.declared or form.patterns)):
        return None
    announced = header.groupdict().get("last") is not None
    last = _number(header, "last", form, line) - form.first_iteration if announced else None
    iteration = _number(header, "i", form, line) - form.first_iteration
    if iteration < 0:
        return None
    seconds = math.nan if step_time is None else step_time
    step = Step(
        iteration=iteration,
        step_time=seconds,
        tflops=tflops,
        loss=loss,
        grad_norm=norm,
        tokens_rate=rate,
        values=values,
    )
    gbs = _batch(text, form, iteration, cut) if with_batch else None
    return StepLine(step, last, gbs, memory)


def _number(header: re.Match[bytes], group: str, form: Format, line: Line) -> int:
    """The number that a ``group`` of the iteration's pattern matched. Raises NoNumberError."""
    text = header[group]
    if text is not None and _INTEGER.fullmatch(text):
        return int(text)
    matched = "nothing" if text is None else repr(plain(text, 40))
    raise NoNumberError(
        f"'iteration' of plugin {form.source or 'unknown'}: group '{group}' matches {matched}, which is no number, in "
        f"the line {plain(line.before + line.after, 160)!r}",
        hint=PATTERN_HINT,
        code="pattern-no-number",
        key="iteration",
        value=form.source,
    )


def read_rank(line: Line, form: Format) -> int | None:
    """The rank that a prefix of the line names: ``[default0]:``, `` 0: ``, ``<experiment>/0 ``; else None."""
    with _limited(form) if form.source else nullcontext():
        parts = _parts(strip_escapes(line.before), strip_escapes(line.after), form)
    found = _RANK.search(parts[0]) if parts is not None else None
    return int(next(group for group in found.groups() if group is not None)) if found else None


def read_list(behind: bytes, key: bytes) -> tuple[float, ...]:
    """The complete numbers of ``key: [11.85, 6.98, ...]`` at the start of ``behind``; else empty."""
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
    """The number after ``key:`` or ``key=``; None without one, or where the line is ``cut`` and may end within it."""
    match = _find_value(text, key)
    return _complete_number(text, match[1], match.end(), cut) if match is not None else None


def _find_value(text: bytes, key: bytes) -> re.Match[bytes] | None:
    """The number (group 1) that follows ``key:`` or ``key=``."""
    at = text.find(key)
    while at >= 0:
        match = _VALUE.match(text, at + len(key))
        if match is not None and not (at and text[at - 1] in _WORD):
            return match
        at = text.find(key, at + 1)
    return None


def _complete_number(text: bytes, number: bytes, end: int, cut: bool) -> float | None:
    """``number``, which ends at ``end`` of ``text``; None where it may go on."""
    # 12.3 at the end of the file may be the beginning of 12.39, and 1.234e of 1.234e+03.
    rest = text[end:]
    half = cut and not rest.strip(b"eE+-")
    # 1,201.5 and 201,5 are numbers to people: a wrong one would be worse than none.
    return None if half or _GROUP.match(rest) else float(number)


def _check_units(text: bytes, form: Format, cut: bool) -> None:
    """Raise UnitMismatchError for a value that the log has in another unit than the one expected."""
    for name, wanted in form.units.items():
        found = _unit_of(text, name, form, cut)
        if found is None or factor_between(found, wanted) == 1.0:
            continue
        where = f"plugin {form.source}: llmb_parse: " if form.source else ""
        hint = f"log it in {wanted}, or declare the unit {found} for {name} in workload.yaml"
        if form.source and factor_between(found, wanted) is not None:
            hint = f'units={{"{name}": "{found}"}} of the ParseSpec converts it'
        message = f"{where}{name} is logged in {found}, but its unit is {wanted}"
        raise UnitMismatchError(message, hint=hint, code="unit-mismatch", key=name, value=found)


def _unit_of(text: bytes, name: str, form: Format, cut: bool) -> str | None:
    """The unit that the log has for ``name``: the group of its pattern, else a known one after the number."""
    if name in form.patterns:
        match = form.patterns[name][0].search(text)
        own = match.groupdict().get("unit") if match is not None else None
        if match is not None and own is not None:
            word = own.decode("utf-8", "replace").strip(" ,;:.|()[]")  # \S+ takes them too
            return None if cut and match.end("unit") == len(text) else word or None
    else:
        keys, _ = form.keys[name]
        match = next((found for key in keys if (found := _find_value(text, key)) is not None), None)
    return unit_after(text, match.end("value" if name in form.patterns else 1)) if match is not None else None


def _values_of(text: bytes, wanted: Sequence[Keys], cut: bool) -> list[float | None]:
    """The values with the keys ``wanted``, in our units. Reading a log spends half of its time here."""
    # Most lines are `key: value | key: value`: splitting them is faster than finding each key.
    parts = [] if cut else text.split(b" | ")
    fields = {key: value for key, _, value in [part.partition(b": ") for part in parts]}
    whole = len(fields) == len(parts)
    return [_value_in(fields if whole else {}, text, keys, unit, cut) for keys, unit in wanted]


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
    """The value that we call ``name``: by its pattern in our unit, else after its key in the unit of the log."""
    if name in form.patterns:
        pattern, factor = form.patterns[name]
        match = pattern.search(text)
        number = re.fullmatch(_NUMBER, match["value"].strip()) if match is not None and match["value"] else None
        if match is None or number is None:
            return None
        value = _complete_number(text, number[0], match.end("value"), cut)
        return None if value is None else value * factor
    keys, _ = form.keys.get(name, NO_KEYS)
    return next((value for key in keys if (value := read_value(text, key, cut)) is not None), None)


def _batch(text: bytes, form: Format, iteration: int, cut: bool) -> int | None:
    """The global batch: from the line, else the consumed samples per step where that is an integer."""
    value = _value_of(text, "gbs", form, cut)
    if value is None and (consumed := _value_of(text, "consumed_samples", form, cut)) is not None:
        step = _value_of(text, "global_step", form, cut)  # a progress bar may be one step ahead of its values
        value = consumed / (1 + (iteration if step is None or step < 0 else step))
    return int(value) if value is not None and 0 < value < 1e12 and value == int(value) else None


# Of a step's line: the prefix of a rank, the iteration, the text with the values, and whether that may be incomplete
# where the line is.
_Parts = tuple[bytes, re.Match[bytes], bytes, bool]


def _parts(before: bytes, after: bytes, form: Format) -> _Parts | None:
    """The parts of the line whose needle begins ``after``; None without an iteration."""
    if form.either_side:
        first = before.find(form.needle.text)
        if form.iteration.search(before if first < 0 else before[:first]) is None:
            return _parts_behind(before, after, form)
    header = None
    for header in form.iteration.finditer(before):  # noqa: B007 - an earlier one is of another step on the same line
        pass
    if header is None:
        return None
    following = form.iteration.search(after)
    text = before[header.end() :] + (after[: following.start()] if following else after)
    return before[: header.start()], header, text, following is None


def _parts_behind(before: bytes, after: bytes, form: Format) -> _Parts | None:
    """The parts of a line whose iteration is behind the needle: all of it, as far as the needle of the next step."""
    header = form.iteration.search(after)
    if header is None:
        return None
    following, end = form.iteration.search(after, header.end()), len(after)
    if following is not None:
        at = after.rfind(form.needle.text, header.end(), following.start())
        end = at if at >= 0 else following.start()
    text = after[: header.start()] + b";" + after[header.end() : end]
    return before, header, text, following is None


@contextmanager
def _limited(form: Format) -> Iterator[None]:
    """A time limit for the patterns of a plugin on one line. Raises SlowPatternError."""
    try:
        with time_limit(PATTERN_SECONDS):
            yield
    except OverdueError:
        slow = f"takes more than {PATTERN_SECONDS:g} s for one line"
        raise SlowPatternError(
            f"the pattern of plugin {form.source} {slow}",
            reason=f"llmb_parse: the pattern {slow}",
            hint="report it to the plugin's maintainers",
            fix="let no part of the pattern match the same text in several ways, as (a+)+ does",
            code="pattern-slow",
            key="plugin",
            value=form.source,
        ) from None


SUMMARY = needle("train_samples_per_second", b"'")
_MOST_STEPS = 1e12


def read_summary(line: Line) -> tuple[Step, int | None] | None:
    """The run that ``line`` summarizes as one step, the mean of all, and its batch where that is an integer.

    None where the line is incomplete.
    """
    text = strip_escapes(line.before + line.after)
    runtime, steps_rate, samples_rate, loss = (
        _summary_value(text, key)
        for key in ("train_runtime", "train_steps_per_second", "train_samples_per_second", "train_loss")
    )
    if not runtime or not steps_rate or runtime < 0 or steps_rate < 0:
        return None
    count = runtime * steps_rate
    if not 0.5 <= count < _MOST_STEPS:
        return None
    steps = round(count)
    batch = round(samples_rate / steps_rate) if samples_rate and samples_rate / steps_rate < _MOST_STEPS else 0
    # Rates have three decimals: a batch that does not follow from them is unknown.
    rounding = min(0.5, (batch + 1) * 0.0005 / steps_rate + 1e-9)
    exact = batch > 0 and samples_rate is not None and abs(samples_rate / steps_rate - batch) < rounding
    step = Step(iteration=steps - 1, step_time=runtime / steps, loss=loss, span=steps)
    return step, batch if exact else None


def _summary_value(text: bytes, key: str) -> float | None:
    """The number after ``'key':``, quoted or not; something must follow it, since the line may be cut."""
    found = re.search(
        rb"'" + key.encode() + rb"':\s{0,9}'?(\d{1,15}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)'?\s{0,9}[,}]", text
    )
    return float(found[1]) if found else None
