# SPDX-License-Identifier: Apache-2.0
"""Read what is anywhere in a log: the results of a program without steps, and signs of failures."""

import math
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from llmb.contract.formats import ParseSpec, compile_spec
from llmb.contract.samples import Samples, Step
from llmb.contract.spec_checks import TRAINING_KEYS
from llmb.core.scan import open_log, plain, strip_escapes
from llmb.errors import LlmbError
from llmb.measure.log_lines import PATTERN_SECONDS, limited, values_in

_MOST = 1 << 28  # bytes that are searched at once: such programs print some hundred lines
_BYTES_PER_SECOND = 1 << 23  # a slow pattern's, beyond the time for one line
_LONGEST = 200  # characters of a line in a message


def read_whole_log(path: Path, spec: ParseSpec) -> Samples:
    """Return a step for each result: the nth matches of all patterns are the nth step.

    If some have more matches than others, there is one step with the mean of each.

    Raises OSError, LlmbError for a log that is too large, PatternError for a slow pattern.
    """
    text, form = _text_of(path), compile_spec(spec)
    patterns = {
        name: (re.compile(pattern.pattern, pattern.flags | re.MULTILINE), factor)
        for name, (pattern, factor) in form.patterns.items()
    }
    form = replace(form, patterns=patterns)
    columns: dict[str, list[float]] = {}
    for name, (pattern, _) in patterns.items():
        with _limited(text, spec.source, f"patterns.{name}", pattern.pattern):
            columns[name] = values_in(text, form, name)
    matched = {name: values for name, values in columns.items() if values}
    if len(set(map(len, matched.values()))) > 1:  # no value belongs to one of the others
        matched = {name: [math.fsum(values) / len(values)] for name, values in matched.items()}
    rows = zip(*matched.values(), strict=True)
    steps = [_step(number, dict(zip(matched, row, strict=True))) for number, row in enumerate(rows)]
    last = len(steps) - 1 if steps else None
    return Samples(steps=tuple(steps), last=last, attempts=1 if steps else 0)


def _step(number: int, values: Mapping[str, float]) -> Step:
    return Step(
        iteration=number,
        step_time=values.get("step_time", math.nan),
        tflops=values.get("tflops"),
        loss=values.get("loss"),
        grad_norm=values.get("grad_norm"),
        values={name: value for name, value in values.items() if name not in TRAINING_KEYS},
    )


def with_conditions(samples: Samples, path: Path, spec: ParseSpec) -> Samples:
    """Return the samples, ``failed`` if the log lacks what it must have, or has what it must not.

    Raises as ``read_whole_log``.
    """
    if not (spec.must_have or spec.must_not_have) or samples.failed:
        return samples
    text = _text_of(path)
    for number, pattern in enumerate(spec.must_not_have):
        if (match := _find(pattern, text, spec.source, f"must_not_have[{number}]")) is not None:
            return replace(samples, failed=f"its log has '{_line_of(text, match)}'")
    for number, pattern in enumerate(spec.must_have):
        if _find(pattern, text, spec.source, f"must_have[{number}]") is None:
            return replace(samples, failed=f"its log lacks '{plain(pattern, _LONGEST)}'")
    return samples


def _find(pattern: str, text: bytes, source: str, field: str) -> re.Match[bytes] | None:
    with _limited(text, source, field, pattern.encode()):
        return re.search(pattern.encode(), text, re.MULTILINE)


def _line_of(text: bytes, match: re.Match[bytes]) -> str:
    start, end = text.rfind(b"\n", 0, match.start()) + 1, text.find(b"\n", match.end())
    return plain(text[start : end if end >= 0 else len(text)], _LONGEST)


def _text_of(path: Path) -> bytes:
    with open_log(path) as stream:
        text = stream.read(_MOST + 1)
    if len(text) > _MOST:
        raise LlmbError(
            f"{path} is larger than {_MOST >> 20} MiB, too large for patterns in the whole log",
            hint="describe its lines of steps by needle and iteration, or log less",
            code="log-too-large",
            value=str(path),
        )
    return strip_escapes(text).replace(b"\r\n", b"\n")


def _limited(text: bytes, source: str, field: str, pattern: bytes) -> AbstractContextManager[None]:
    """Limit the time of a plugin's ``pattern``, of the ``field``, on a log."""
    seconds = PATTERN_SECONDS + len(text) / _BYTES_PER_SECOND
    return limited(source, (field,), (field, pattern), seconds, "log")
