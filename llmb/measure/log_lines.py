# SPDX-License-Identifier: Apache-2.0
"""Read one line of a log: a step, a list of step times, a summary, the number after a key.

The Trainer of Hugging Face's transformers logs no time of a step, only the means of the whole run
in its last line: ``{'train_runtime': 110.5948, 'train_samples_per_second': 28.93,
'train_steps_per_second': 1.808, ...}``.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from llmb.contract.formats import MAXTEXT_NAME, MEGATRON_NAME, NO_KEYS, Format, Keys
from llmb.contract.metrics import JOULES_PER_STEP, WATTS_PER_GPU
from llmb.contract.samples import Environment, Step
from llmb.contract.spec_checks import PATTERN_HINT, TRAINING_KEYS
from llmb.core.call_time_limit import OverdueError, time_limit
from llmb.core.scan import REACH, Hit, Line, needle, plain, strip_escapes
from llmb.core.units import KNOWN, factor_after, factor_between, prefix_factor, unit_after
from llmb.errors import LlmbError, PluginError

PATTERN_SECONDS = 5.0
_MOST_TFLOPS = 1e5  # no GPU has that many

# No pattern here matches characters in more than one way, so that its time is linear in the length
# of the line.
_NUMBER = rb"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf))"
_VALUE = re.compile(rb"\s*[:=]\s*(" + _NUMBER + rb")")
_INTEGER = re.compile(rb"\s*[-+]?\d{1,12}\s*")
_GROUP = re.compile(rb",\d")
# What makes the digits before it a part of a number: 2.05D+02, 1'205, 1_205, 1:02.5, 1h02m, 0xCD.
_OTHER_NUMBER = re.compile(rb"(?:[.'_:]|[A-Za-z][-+]?)\d|[xX][0-9A-Fa-f]|[eEdD][-+]")
# 12.3 at the end of a file may be the beginning of 12.39, 1.234e of 1.234e+03, 12K of 12KB.
_CONTINUATION = b".eE+-kKMGTiB "
_TO_THE_END = re.compile(rb"[%s]*+\Z" % re.escape(_CONTINUATION))
_COMMA = re.compile(rb"(?<=\d),(?=\d{3}(?!\d))")
_BAD = re.compile(rb"number of (nan|skipped) iterations:\s{0,20}0{0,20}[1-9]")
_EPOCH = re.compile(rb"\b[Ee]poch (\d{1,9})[,:]")
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
# Only a time may be between a rank and its step: text of another rank may precede it on the same
# line.
_RANK = re.compile(
    rb"(?:(?:^|[\s\]])(\d{1,6}): |\[(?:default|rank)(\d{1,6})\]:|/(\d{1,6}) )"
    rb"\s{0,20}(?:\[[^\]]{0,80}\]:?\s{0,20}){0,4}(?:Training epoch \d{1,9}, )?$"
)


class PatternError(PluginError):
    """A plugin's pattern cannot read a log.

    ``key`` is the field of its ParseSpec, ``value`` the plugin.
    """


class SlowPatternError(PatternError):
    """A plugin's pattern takes too long for one line."""


class NoNumberError(PatternError):
    """A group of a plugin's pattern matches something that is no number."""


class UnitMismatchError(LlmbError):
    """A log has a value in another unit than its workload or its plugin declares."""


class StepLine(NamedTuple):
    """A step, and the other values of its line."""

    step: Step
    last: int | None  #: the last iteration
    gbs: float | None  #: global batch, which may be no whole number
    peak_memory: float | None  #: bytes


def read_step(line: Line, form: Format, *, first_batch: bool = True) -> StepLine | None:
    """Return the step whose needle begins ``line.after``, None if the line is incomplete.

    The ``first_batch`` may also follow from the samples that were consumed until then.
    Raises SlowPatternError and NoNumberError for a pattern of a plugin, UnitMismatchError for a
    value in another unit.
    """
    if not form.source:
        return _read_step(line, form, first_batch)
    with _limited(form):
        return _read_step(line, form, first_batch)


def with_following(hit: Hit, line: Line, form: Format) -> Line:
    """Return the line with the further lines of its step, up to the next needle."""
    if form.lines < 2:
        return line
    texts: list[bytes] = []
    behind = hit.block.behind(hit.at + len(line.after), REACH)
    following = behind.splitlines()[1:]
    for text in following[: form.lines - 1]:
        if form.needle.text in text:
            break
        texts.append(text)
    half = len(following) == len(texts) and not behind.endswith((b"\n", b"\r"))
    # A line without an end is the last one of its block, so that it is half too.
    cut = hit.block.at_end and half
    return Line(line.before, b" | ".join((line.after, *texts)), cut)


def _read_step(line: Line, form: Format, first_batch: bool) -> StepLine | None:
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
    step_time, tflops, loss, memory, norm, rate, batch = _values_of(text, form.each_step, cut)
    if "tokens_rate" in form.patterns:
        rate = _value_of(text, "tokens_rate", form, cut)
    values: dict[str, float] = {}
    if form.declared:
        declared = _values_of(text, [keys for _, keys in form.declared], cut)
        values = {
            name: value
            for (name, _), value in zip(form.declared, declared, strict=True)
            if value is not None
        }
    if form.patterns:
        matched = {
            name: value
            for name in form.patterns
            if (value := _value_of(text, name, form, cut)) is not None
        }
        values = {
            **values,
            **{name: value for name, value in matched.items() if name not in TRAINING_KEYS},
        }
        step_time, tflops = matched.get("step_time", step_time), matched.get("tflops", tflops)
        loss, norm = matched.get("loss", loss), matched.get("grad_norm", norm)
        memory, batch = matched.get("peak_memory", memory), matched.get("gbs", batch)
    if form.units:
        _check_units(text, form, cut)
    if (
        step_time is None
        and rate is None
        and not values
        and (cut or not (form.declared or form.patterns))
    ):
        return None
    last = None
    if form.announces and header["last"] is not None:
        last = _number(header, "last", form, line) - form.first_iteration
    iteration = _number(header, "i", form, line) - form.first_iteration
    if iteration < 0:
        return None
    if form.name == MAXTEXT_NAME and tflops is not None and tflops > _MOST_TFLOPS:
        return None  # the rates of no step, which it prints at the end
    seconds = math.nan if step_time is None else step_time
    step = Step(
        iteration=iteration,
        step_time=seconds,
        tflops=tflops,
        loss=loss,
        grad_norm=norm,
        tokens_rate=rate,
        fault=_fault(text) if form.name == MEGATRON_NAME and not cut else "",
        values={**values, **_energy(text, cut)} if _ENERGY_UNIT in text else values,
    )
    if batch is None and first_batch:
        batch = _consumed_in_a_step(text, form, iteration, cut)
    return StepLine(step, last, batch, memory)


_ENERGY_UNIT = b"(J/iter/GPU)"
_ENERGY_KEYS = {
    JOULES_PER_STEP: b"energy per GPU (J/iter/GPU)",
    WATTS_PER_GPU: b"power per GPU (W/GPU)",
}


def _energy(text: bytes, cut: bool) -> dict[str, float]:
    """Return the energy and the power of one GPU in a line of Megatron."""
    values = {name: read_value(text, key, cut) for name, key in _ENERGY_KEYS.items()}
    return {name: value for name, value in values.items() if value is not None}


def _fault(text: bytes) -> str:
    """Return why Megatron calls a step bad.

    It omits a loss that is not a number, and a skipped step has none.
    """
    markers = _BAD.findall(text)
    if markers:
        return "nan" if b"nan" in markers else "skipped"
    return "" if b" loss:" in text or b"loss scale:" not in text else "nan"


def _number(header: re.Match[bytes], group: str, form: Format, line: Line) -> int:
    """Return the number that ``group`` of the iteration's pattern matched. Raises NoNumberError."""
    text = header[group]
    if not form.own:
        return int(text.replace(b",", b"") if form.thousands else text)  # a known form has digits
    if text is not None and form.thousands:
        text = text.replace(b",", b"")
    if text is not None and _INTEGER.fullmatch(text):
        return int(text)
    matched = "nothing" if text is None else repr(plain(text, 40))
    raise NoNumberError(
        f"'iteration' of plugin {form.source or 'unknown'}: group '{group}' matches {matched},"
        f" which is no number, in the line {plain(line.before + line.after, 160)!r}",
        hint=PATTERN_HINT,
        code="pattern-no-number",
        key="iteration",
        value=form.source,
    )


def read_rank(line: Line, form: Format) -> int | None:
    """Return the rank in the line's prefix: ``[default0]:``, `` 0: `` or ``<experiment>/0 ``."""
    with _limited(form) if form.source else nullcontext():
        parts = _parts(strip_escapes(line.before), strip_escapes(line.after), form)
    match = _RANK.search(parts[0]) if parts is not None else None
    return int(next(group for group in match.groups() if group is not None)) if match else None


def read_epoch(line: Line) -> int | None:
    """Return the epoch before a step: ``Training epoch 1, iteration 0/49`` or ``Epoch 1: ...``."""
    matches = _EPOCH.findall(line.before)
    return int(matches[-1]) if matches else None


def read_list(behind: bytes, key: bytes) -> tuple[float, ...]:
    """Return the complete numbers of ``key: [11.85, 6.98, ...]`` at the start of ``behind``."""
    text = strip_escapes(behind.split(b"\n", 1)[0])
    if (start := _LIST.match(text, len(key))) is None:
        return ()
    whole, closed, _ = text[start.end() :].partition(b"]")
    items = whole.split(b",")
    read = [re.fullmatch(_NUMBER, item.strip()) for item in (items if closed else items[:-1])]
    return tuple(float(item[0]) for item in read if item is not None) if all(read) else ()


def read_step_time(line: Line) -> tuple[float, float] | None:
    """Return seconds and TFLOPS of Megatron-Bridge's line for a step's time.

    It is ``Step Time : 2.69s GPU utilization: 611.5MODEL_TFLOP/s/GPU``.
    """
    match = _STEP_TIME.search(strip_escapes(line.before + line.after))
    return (float(match["time"]), float(match["tflops"])) if match else None


def read_value(text: bytes, key: bytes, cut: bool = False) -> float | None:
    """Return the number after ``key:`` or ``key=``, or None.

    Also None if the line is ``cut`` and may end within the number, and if the digits are only the
    beginning of a number in a form that is not known.
    """
    match = _find_value(text, key)
    if match is None or _OTHER_NUMBER.match(text, match.end()):
        return None
    return _complete_number(text, match[1], match.end(), cut)


def _find_value(text: bytes, key: bytes) -> re.Match[bytes] | None:
    """Return the match of the number (group 1) that follows ``key:`` or ``key=``."""
    at = text.find(key)
    while at >= 0:
        match = _VALUE.match(text, at + len(key))
        if match is not None and not (at and text[at - 1] in _WORD):
            return match
        at = text.find(key, at + 1)
    return None


def _complete_number(text: bytes, number: bytes, end: int, cut: bool) -> float | None:
    """Return ``number``, which ends at ``end`` of ``text``, or None if it may go on."""
    half = cut and _TO_THE_END.match(text, end) is not None
    # 1,201.5 and 201,5 are numbers to people: a wrong one would be worse than none.
    return None if half or _GROUP.match(text, end) else float(number) * factor_after(text, end)


def _matched_number(
    text: bytes, number: bytes, match: re.Match[bytes], stated_unit: str, cut: bool
) -> float | None:
    """Return the ``number`` that a pattern matched, in its ``stated_unit``, or None as above."""
    end = match.end("value")
    value = _complete_number(text, number, end, cut)
    factor = prefix_factor(text, end, stated_unit)
    return value if value is None or factor is None else value / factor_after(text, end) * factor


def _check_units(text: bytes, form: Format, cut: bool) -> None:
    """Raise UnitMismatchError for a value in another unit than the expected one."""
    for name, unit in form.units.items():
        logged = _unit_of(text, name, form, cut, unit)
        if logged is None or factor_between(logged, unit) == 1.0:
            continue
        plugin = f"plugin {form.source}: llmb_parse: " if form.source else ""
        hint = f"log it in {unit}, or declare the unit {logged} for {name} in workload.yaml"
        if form.source and factor_between(logged, unit) is not None:
            hint = f'units={{"{name}": "{logged}"}} of the ParseSpec converts it'
        message = f"{plugin}{name} is logged in {logged}, but its unit is {unit}"
        raise UnitMismatchError(message, hint=hint, code="unit-mismatch", key=name, value=logged)


def _unit_of(text: bytes, name: str, form: Format, cut: bool, expected: str) -> str | None:
    """Return the logged unit of ``name``: its pattern's group, or a known one after the number.

    A factor such as ``K`` is one if the ``expected`` unit has a dimension: 480 G may be 480 GB/s.
    """
    if name in form.patterns:
        match = form.patterns[name][0].search(text)
        unit = match.groupdict().get("unit") if match is not None else None
        stated_unit = form.stated_units.get(name)
        if match is not None and stated_unit is not None:
            end = match.end("value")
            if factor_after(text, end) != 1.0 and prefix_factor(text, end, stated_unit) is not None:
                return None
        if match is not None and unit is not None:
            word = unit.decode("utf-8", "replace").strip(" ,;:.|()[]")  # \S+ takes them too
            return None if cut and match.end("unit") == len(text) else word or None
    else:
        keys, _ = form.keys[name]
        match = next(
            (value_match for key in keys if (value_match := _find_value(text, key)) is not None),
            None,
        )
    if match is None:
        return None
    end = match.end("value" if name in form.patterns else 1)
    if factor_after(text, end) == 1.0:
        return unit_after(text, end)
    return text[end : end + 4].split()[0].decode() if expected in KNOWN else None


def _values_of(text: bytes, all_keys: Sequence[Keys], cut: bool) -> list[float | None]:
    """Return the values of ``all_keys``, in our units. Half of the time for a log is spent here."""
    # Most lines are `key: value | key: value`: splitting them is faster than finding each key.
    fields: dict[bytes, bytes] = {}
    if not cut:
        parts = [part.partition(b": ") for part in text.split(b" | ")]
        fields = {key: value for key, _, value in parts}
        if len(fields) != len(parts):
            fields = {}
    values: list[float | None] = []
    for keys, unit in all_keys:
        number: float | None = None
        for key in keys:
            if key in fields:
                try:
                    number = float(fields[key]) * unit
                    break
                except ValueError:
                    pass
            if key in text and (number := read_value(text, key, cut)) is not None:
                number *= unit
                break
        values.append(number)
    return values


def _value_of(text: bytes, name: str, form: Format, cut: bool) -> float | None:
    """Return the value of ``name``: by its pattern in our unit, or after its key in the log's."""
    if name in form.patterns:
        pattern, factor = form.patterns[name]
        match = pattern.search(text)
        number = (
            re.fullmatch(_NUMBER, match["value"].strip())
            if match is not None and match["value"]
            else None
        )
        if match is None or number is None:
            return None
        value = _matched_number(text, number[0], match, form.stated_units.get(name, ""), cut)
        return None if value is None else value * factor
    for key in form.keys.get(name, NO_KEYS)[0]:
        if (value := read_value(text, key, cut)) is not None:
            return value
    return None


def values_in(text: bytes, form: Format, name: str) -> list[float]:
    """Return the value of each match of the pattern called ``name``, nan for one that is no number.

    A number that ends with the ``text`` may be half of one, and is none. Raises UnitMismatchError.
    """
    pattern, factor = form.patterns[name]
    cut = not text.endswith(b"\n")
    end = len(text.rstrip(_CONTINUATION)) if cut else len(text)
    if name in form.units:
        _check_units(text, replace(form, units={name: form.units[name]}), cut)
    values = []
    for match in pattern.finditer(text):
        if cut and match.end() >= end:
            continue
        digits = match["value"].strip()
        number = re.fullmatch(_NUMBER, _COMMA.sub(b"", digits) if form.thousands else digits)
        value = (
            _matched_number(text, number[0], match, form.stated_units.get(name, ""), cut)
            if number is not None
            else None
        )
        values.append(math.nan if value is None else value * factor)
    return values


def _consumed_in_a_step(text: bytes, form: Format, iteration: int, cut: bool) -> float | None:
    """Return the samples that were consumed until a line, divided by the steps until then."""
    consumed = _value_of(text, "consumed_samples", form, cut)
    if consumed is None:
        return None
    # a progress bar may be one step ahead of its values
    step = _value_of(text, "global_step", form, cut)
    return consumed / (1 + (iteration if step is None or step < 0 else step))


# Of a step's line: the prefix of a rank, the iteration, the text with the values, and whether that
# may be incomplete where the line is.
_Parts = tuple[bytes, re.Match[bytes], bytes, bool]


def _parts(before: bytes, after: bytes, form: Format) -> _Parts | None:
    """Return the parts of the line whose needle begins ``after``, None without an iteration."""
    if form.either_side:
        first = before.find(form.needle.text)
        if form.iteration.search(before if first < 0 else before[:first]) is None:
            return _parts_behind(before, after, form)
    headers = list(form.iteration.finditer(before))
    if not headers:
        return None
    header = headers[-1]  # an earlier one is of another step on the same line
    following = form.iteration.search(after)
    text = before[header.end() :] + (after[: following.start()] if following else after)
    return before[: header.start()], header, text, following is None


def _parts_behind(before: bytes, after: bytes, form: Format) -> _Parts | None:
    """Return the parts of a line whose iteration is behind the needle, up to the next needle."""
    header = form.iteration.search(after)
    if header is None:
        return None
    following, end = form.iteration.search(after, header.end()), len(after)
    if following is not None:
        at = after.rfind(form.needle.text, header.end(), following.start())
        end = at if at >= 0 else following.start()
    text = after[: header.start()] + b";" + after[header.end() : end]
    return before, header, text, following is None


# By plugin and patterns: they are not tried again, as they would take all the time again.
_slow: dict[tuple[object, ...], SlowPatternError] = {}


def _limited(form: Format) -> AbstractContextManager[None]:
    """Limit the time of a plugin's patterns on one line, as ``limited``."""
    names = itertools.chain(("iteration",), (f"patterns.{name}" for name in form.patterns))
    patterns = (form.iteration, *(pattern for pattern, _ in form.patterns.values()))
    return limited(form.source, names, patterns, PATTERN_SECONDS, "line")


@contextmanager
def limited(
    source: str, names: Iterable[str], patterns: tuple[object, ...], seconds: float, part: str
) -> Iterator[None]:
    """Limit the time of ``patterns``, by the ``names`` of their fields, on a ``part`` of a log.

    Raises SlowPatternError, at once if they were too slow before in this process.
    """
    key = source, *patterns
    if key in _slow:
        raise _slow[key]
    try:
        with time_limit(seconds):
            yield
    except OverdueError:
        slow, fields = f"takes more than {seconds:.0f} s for one {part}", " or ".join(names)
        _slow[key] = SlowPatternError(
            f"{fields} of plugin {source or 'unknown'} {slow}",
            reason=f"llmb_parse: {fields} {slow}",
            hint="report it to the plugin's maintainers",
            fix=f"let no part of {fields} match the same text in several ways, as (a+)+ does",
            code="pattern-slow",
            key=fields,
            value=source,
        )
        raise _slow[key] from None


def why_no_step(line: Line, form: Format) -> str:
    """Quote a line that has the needle of a plugin's ``form`` and is no step, and say why."""
    quoted = f"the line {plain(line.before + line.after, 160)!r} has the needle, but"
    parts = _parts(strip_escapes(line.before), strip_escapes(line.after), form)
    if parts is None:
        return f"{quoted} iteration {form.iteration.pattern.decode()!r} does not match it"
    needed = [name for name in (*form.keys, *form.patterns) if _is_needed(name, form)]
    missing = [
        f"the pattern {form.patterns[name][0].pattern.decode()!r}"
        if name in form.patterns
        else " or ".join(repr(key.decode()) for key in form.keys[name][0])
        for name in needed
    ]
    return f"{quoted} it has no number by {', '.join(missing)}"


def _is_needed(name: str, form: Format) -> bool:
    """Return True for a value of which a step has one at least."""
    return name in ("step_time", "tokens_rate") or name not in TRAINING_KEYS or not form.keys


SUMMARY = needle("train_samples_per_second", b"'")
TRAINER_STEPS = needle("Total optimization steps = ")
GRADIENT = needle("'grad_norm': ")
ROUNDED = "rounded"
RATE_ROUNDING = 0.0005  # of rates, which have three decimals
_MOST_ROUNDING = 0.005  # a fraction of the step time
_MOST_STEPS = 1e12
_OPENING = 2000  # bytes: the lines that the Trainer prints before its first step
_NEARBY = 1000  # bytes: the progress bar may be drawn before the summary or after it
_PLANNED = re.compile(rb"= (\d[\d,]{0,15})")
_RESUMED = re.compile(rb"global step (\d{1,12})")
_BAR = re.compile(rb"(?<![\d/.])(\d{1,12})/(\d{1,12}) \[")


def read_trainer_steps(hit: Hit) -> Environment:
    """Return the steps that the Trainer plans, and those before the checkpoint that it loads."""
    text = TRAINER_STEPS.text
    behind = hit.block.behind(hit.at, _OPENING)[len(text) :].partition(text)[0]
    planned, resumed = _PLANNED.match(text[-2:] + behind), _RESUMED.search(behind)
    if planned is None:
        return Environment()
    return Environment(
        steps=int(planned[1].replace(b",", b"")) or None,
        resumed_steps=0 if resumed is None else int(resumed[1]),
    )


def read_summary(hit: Hit, opening: Environment) -> tuple[Step, int | None] | None:
    """Return the run that the line of ``hit`` summarizes as one step, the mean of all, and its
    batch.

    ``opening`` has the steps that the Trainer planned, if it logged them. The batch is None if it
    is no integer or unknown. None if the line is incomplete, or if the checkpoint that was loaded
    had all steps already.
    """
    if opening.steps is not None and (opening.resumed_steps or 0) >= opening.steps:
        return None
    line = hit.block.line(hit.at)
    text = strip_escapes(line.before + line.after)
    runtime, steps_rate, samples_rate, loss = (
        _summary_value(text, key)
        for key in (
            "train_runtime",
            "train_steps_per_second",
            "train_samples_per_second",
            "train_loss",
        )
    )
    if not runtime or not steps_rate or runtime < 0 or steps_rate < 0:
        return None
    count = runtime * steps_rate
    if not 0.5 <= count < _MOST_STEPS:
        return None
    rounding = RATE_ROUNDING / steps_rate
    counted = _counted_steps(hit, opening, count, count * rounding + 1e-6)
    steps, divided = counted or (round(count), count)
    fault = ROUNDED if counted is None and rounding > _MOST_ROUNDING else ""
    step = Step(iteration=steps - 1, step_time=runtime / steps, loss=loss, span=steps, fault=fault)
    samples = (samples_rate or 0) * runtime / divided
    batch = round(samples) if samples < _MOST_STEPS else 0
    # A batch that does not follow from the rounded rates is unknown.
    error = RATE_ROUNDING * runtime / divided + (0 if counted else batch * rounding) + 1e-9
    is_exact = batch > 0 and error < 0.5 and abs(samples - batch) < error
    return step, batch if is_exact else None


def _counted_steps(
    hit: Hit, opening: Environment, count: float, error: float
) -> tuple[int, int] | None:
    """Return the steps that a run trained, and those of its rate, which is ``count`` by its time.

    They are counted by the Trainer's opening lines and by its progress bar near the summary.
    Releases before 5 divide all planned steps by the time, also if the run was resumed or stopped.
    """
    data = hit.block.data[max(0, hit.at - _NEARBY) : min(hit.block.filled, hit.at + _NEARBY)]
    bars: dict[int, int] = {}
    for done, total in _BAR.findall(data):
        bars[int(total)] = max(int(done), bars.get(int(total), 0))
    if opening.steps is not None:
        bars = {opening.steps: bars.get(opening.steps, opening.steps)}
    fitting = []
    for total, done in bars.items():
        trained = done - (opening.resumed_steps or 0)
        divided = min(total, trained, key=lambda number: abs(number - count))
        if trained > 0 and abs(divided - count) <= error:
            fitting.append((trained, divided))
    return fitting[0] if len(fitting) == 1 else None


def is_nan_gradient(line: Line) -> bool:
    """Return True if the norm that follows GRADIENT is not a number.

    The Trainer replaces such losses by the mean of others, and does not replace norms.
    """
    return re.match(rb"'?nan\b", line.after[len(GRADIENT.text) :]) is not None


def _summary_value(text: bytes, key: str) -> float | None:
    """Return the number after ``'key':``, in quotes or not.

    Something must follow it, since the line may be cut.
    """
    match = re.search(
        rb"'"
        + key.encode()
        + rb"':\s{0,9}('?)(\d{1,15}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?|nan|inf)\1\s{0,9}[,}]",
        text,
    )
    return float(match[2]) if match else None
