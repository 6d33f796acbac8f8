# SPDX-License-Identifier: Apache-2.0
"""Read a training log into samples: one pass for literal text, patterns only on its hits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from llmb.contract.formats import NEMO2, ParseSpec
from llmb.contract.samples import Samples, Step
from llmb.core.scan import REACH, Block, apart, hits_in, is_packed, open_log, read_blocks
from llmb.errors import LlmbError
from llmb.measure import superbench, whole_log
from llmb.measure.log_conditions import AT_THE_START
from llmb.measure.log_lines import PatternError
from llmb.measure.nccl_tests import samples_of_report
from llmb.measure.statistics import quantile
from llmb.measure.step_collector import Collector, ReadState


class Reading(NamedTuple):
    """The samples of a log, with an incomplete last line, and the state to continue from."""

    samples: Samples
    state: ReadState


def read_log(path: Path, spec: ParseSpec = NEMO2) -> Samples:
    """Return the samples of the last attempt in a log, compressed with gzip or not.

    The spec of NeMo 2 also reads the lines of every other format that llmb knows. Raises LlmbError
    if the log cannot be read, PatternError if a plugin's pattern takes too long, or none of its
    steps has a number.
    """
    if spec.samples is not None:
        return spec.samples
    return _with_conditions(read_on(path, spec).samples, path, spec)


def _with_conditions(samples: Samples, path: Path, spec: ParseSpec) -> Samples:
    try:
        return whole_log.with_conditions(samples, path, spec)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_on(path: Path, spec: ParseSpec = NEMO2, state: ReadState | None = None) -> Reading:
    """Read only what is new in a growing log since ``state``, which an earlier call returned.

    Otherwise it reads as ``read_log``. A log that has become shorter is read from its start, and so
    is one in gzip. Raises LlmbError.
    """
    try:
        if spec.reads_whole_log:
            return Reading(whole_log.read_whole_log(path, spec), ReadState())
        with open_log(path) as stream:
            if spec.is_default and (samples := _of_file_in_json(path, stream)) is not None:
                return Reading(samples, ReadState())
            return _read(stream, spec, state or ReadState())
    except OSError as error:
        raise _unreadable(path, error) from error


def _of_file_in_json(path: Path, stream: BinaryIO) -> Samples | None:
    """Return the content of a file that is one value in JSON, None for a log."""
    report = samples_of_report(stream)
    if report is not None:
        return report
    return superbench.samples_of_results(
        path, stream, lambda output: _read(output, NEMO2, ReadState()).samples
    )


def _unreadable(path: Path, error: OSError) -> LlmbError:
    return LlmbError(
        f"{path} cannot be read: {error.strerror or error}",
        hint="check the path, and that you may read it",
        code="log-unreadable",
        value=str(path),
    )


class LogProgress(NamedTuple):
    """The newest step of a growing log."""

    iteration: int
    #: The iteration with which it ends.
    last: int
    #: The median of its last RECENT steps in seconds. None if no step has a time.
    step_time: float | None
    #: Steps of this attempt after its first line, which has the start in it.
    step_count: int


RECENT = 10  # steps


def progress(
    path: Path, state: ReadState | None = None, spec: ParseSpec = NEMO2
) -> tuple[LogProgress | None, ReadState]:
    """Return the newest step of a growing log, and the next state.

    A log that does not exist yet, or cannot be read, has no step (None), and neither has one whose
    steps nobody numbers. Raises PatternError as ``read_log``.
    """
    if spec.reads_whole_log:
        return None, ReadState()
    try:
        samples, state = read_on(path, replace(spec, samples=None), state)
    except PatternError:
        raise
    except LlmbError:
        return None, ReadState()
    if samples.max_iteration is None or samples.last is None:
        return None, state
    steps = samples.steps
    step_count = samples.max_iteration - steps[0].iteration
    times = [step.step_time for step in _recent(steps) if math.isfinite(step.step_time)]
    step_time = quantile(sorted(times), 0.5) if times else None
    return LogProgress(samples.max_iteration, samples.last, step_time, step_count), state


def _recent(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the last lines of RECENT steps, without the first line of several."""
    later, count = steps[1:] or steps, 0
    for number, step in enumerate(reversed(later), start=1):
        count += step.span
        if count >= RECENT:
            return later[-number:]
    return later


def _read(stream: BinaryIO, spec: ParseSpec, state: ReadState) -> Reading:
    if state.offset and (is_packed(stream) or stream.seek(0, 2) < state.offset):
        state = ReadState()
    collector, frozen = Collector(spec, state), state
    lines = max(form.lines for form in collector.formats)
    for block in read_blocks(stream, state.offset):
        complete = _complete(block, lines) if block.at_end else block.high
        needles = collector.needles if block.base else [*collector.needles, *AT_THE_START]
        hits = apart(hits_in(block, needles))
        for hit in hits:
            if hit.at < complete:
                collector.add(hit)
        if block.at_end:
            frozen = collector.freeze(block.base + complete)
            for hit in hits:
                if hit.at >= complete:
                    collector.add(hit)
    samples = collector.samples()
    if collector.misread is not None and not samples.steps:
        raise collector.misread
    return Reading(samples, frozen)


def _complete(block: Block, lines: int) -> int:
    """Return the offset of the last step of so many ``lines`` that may still grow.

    A line longer than REACH has been read already.
    """
    data, end = block.data, block.filled
    for _ in range(lines):
        end = max(data.rfind(b"\n", 0, max(end, 0)), data.rfind(b"\r", 0, max(end, 0)))
    return max(end + 1, block.low, block.filled - REACH)
