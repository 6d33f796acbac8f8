# SPDX-License-Identifier: Apache-2.0
"""Reads a training log into samples: one pass for literal text, patterns only where it stands."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from llmb.errors import LlmbError
from llmb.logs.samples import Samples, Step
from llmb.logs.scan import REACH, Line, find_all, line_at, line_of
from llmb.logs.spec import ParseSpec
from llmb.logs.text import strip_escapes

_NUMBER = rb"((?i:[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf)))"
_END = b"`Trainer.fit` stopped"
_SAVE = b"Global Checkpoint Save"
_TAILS = (1 << 16, 1 << 21)  # bytes: the second where other text has pushed the steps out of the first


@lru_cache(maxsize=64)
def _value_pattern(key: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?<!\w)" + re.escape(key.encode()) + rb"\s*[:=]\s*" + _NUMBER)


def read_log(path: Path, spec: ParseSpec) -> Samples:
    """The samples of the last attempt in a log, whatever else is in it. Raises LlmbError when it cannot be read."""
    needle = spec.needle.encode()
    collector = _Collector()
    try:
        with path.open("rb", buffering=0) as stream:
            for offset, found in find_all(stream, (needle, _END, _SAVE)):
                line = line_at(stream, offset)
                if found == _END:
                    collector.ended = True
                elif found == _SAVE:
                    collector.add_save(line)
                else:
                    collector.add_step(_parse_step(line, spec))
    except OSError as error:
        raise LlmbError(
            f"{path} cannot be read: {error.strerror}", hint="check the path, and that you may read it"
        ) from error
    return collector.samples()


def progress(path: Path, spec: ParseSpec | None = None) -> tuple[int, int] | None:
    """The newest step of a growing log as (iteration, last iteration), from its tail alone; None before the first."""
    spec = spec or ParseSpec()
    for size in _TAILS:
        try:
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - size))
                tail = stream.read(size)
        except OSError:
            return None  # not there yet
        if (found := _last_header(tail, spec)) is not None or len(tail) < size:
            return found
    return None


class _Collector:
    """The attempt that is being read."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.last: int | None = None
        self.attempts = 0
        self.ended = False
        self.saves: list[float] = []

    def add_step(self, parsed: tuple[Step, int] | None) -> None:
        if parsed is None:
            return
        step, last = parsed
        if self._starts_anew(step):
            self.attempts += 1
            self.steps, self.saves, self.ended = [], [], False
        if self.steps and self.steps[-1].iteration == step.iteration:
            self.steps.pop()  # two ranks logged it
        self.steps.append(step)
        self.last = last

    def _starts_anew(self, step: Step) -> bool:
        if not self.steps:
            return True
        previous = self.steps[-1]
        # An attempt may end after its first step, and the next begin with the same one.
        repeated = len(self.steps) == 1 and step.iteration == previous.iteration and step != previous
        return step.iteration < previous.iteration or repeated

    def add_save(self, line: Line) -> None:
        text = strip_escapes(line.after)
        rank = _value_pattern("Rank").search(text)
        seconds = _read_value(text, "Save duration", cut=line.cut)
        if seconds is not None and (rank is None or float(rank[1]) == 0):
            self.saves.append(seconds)

    def samples(self) -> Samples:
        return Samples(
            steps=tuple(self.steps), last=self.last, attempts=self.attempts, ended=self.ended,
            checkpoint_saves=tuple(self.saves),
        )  # fmt: skip


def _parse_step(line: Line, spec: ParseSpec) -> tuple[Step, int] | None:
    """The step whose needle begins ``line.after``, with the last iteration; None where the line is not whole."""
    header = _header(line.before, spec)
    if header is None:
        return None
    before, after = strip_escapes(line.before), strip_escapes(line.after)
    following = _iteration_pattern(spec.iteration).search(after)
    text = before[header.end() :] + (after[: following.start()] if following else after)
    cut = line.cut and following is None
    values = {name: _read_value(text, key, cut=cut) for name, key in spec.keys.items()}
    step_time = values.get("step_time")
    if step_time is None:
        return None
    step = Step(
        iteration=int(header["i"]), step_time=step_time, tflops=values.get("tflops"), loss=values.get("loss")
    )  # fmt: skip
    return step, int(header["last"])


def _read_value(text: bytes, key: str, *, cut: bool) -> float | None:
    match = _value_pattern(key).search(text)
    if match is None:
        return None
    # 12.3 at the end of the file may be the beginning of 12.39, and 1.234e of 1.234e+03.
    if cut and not text[match.end() :].strip(b"eE+-"):
        return None
    return float(match[1])


@lru_cache(maxsize=64)
def _iteration_pattern(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


def _header(before: bytes, spec: ParseSpec) -> re.Match[bytes] | None:
    """The iteration nearest before the needle: an earlier one belongs to a step glued before it."""
    header = None
    for header in _iteration_pattern(spec.iteration).finditer(strip_escapes(before)):  # noqa: B007 - the last is meant
        pass
    return header


def _last_header(tail: bytes, spec: ParseSpec) -> tuple[int, int] | None:
    at = tail.rfind(spec.needle.encode())
    while at >= 0:
        start = max(0, at - REACH)
        header = _header(line_of(tail[start:at], at - start, at_end=False).before, spec)
        if header is not None:
            return int(header["i"]), int(header["last"])
        at = tail.rfind(spec.needle.encode(), 0, at)
    return None
