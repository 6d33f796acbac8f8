# SPDX-License-Identifier: Apache-2.0
"""Reads a training log into samples: one pass for literal text, patterns only where it is found."""

from pathlib import Path
from typing import BinaryIO, NamedTuple

from llmb.errors import LlmbError
from llmb.logs.collector import Collector, ReadState
from llmb.logs.formats import NEMO2, ParseSpec
from llmb.logs.samples import Samples
from llmb.logs.scan import REACH, Block, apart, hits_in, is_packed, open_log, read_blocks


class Reading(NamedTuple):
    """What a log says so far, an incomplete last line included, and the state to continue from."""

    samples: Samples
    state: ReadState


def read_log(path: Path, spec: ParseSpec = NEMO2) -> Samples:
    """The samples of the last attempt in a log, compressed with gzip or not. Raises LlmbError if it cannot be read.

    PatternError where the pattern of a plugin takes too long, or where none of the steps that it finds has a number.

    The spec of NeMo 2 also reads the lines of every other format that llmb knows.
    """
    if spec.samples is not None:
        return spec.samples
    return read_on(path, spec).samples


def read_on(path: Path, spec: ParseSpec = NEMO2, state: ReadState | None = None) -> Reading:
    """As ``read_log`` for a growing log: reads only what is new since ``state``, which an earlier call returned.

    A log that has become shorter is read from its start, and so is one in gzip. Raises LlmbError.
    """
    try:
        with open_log(path) as stream:
            return _read(stream, spec, state or ReadState())
    except OSError as error:
        raise LlmbError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="check the path, and that you may read it",
            code="log-unreadable",
            value=str(path),
        ) from error


def progress(path: Path, state: ReadState | None = None) -> tuple[tuple[int, int] | None, ReadState]:
    """The newest step of a growing log as (iteration, last iteration), and the state to continue from.

    A log that does not exist yet, or cannot be read, has no step (None).
    """
    try:
        samples, state = read_on(path, state=state)
    except LlmbError:
        return None, ReadState()
    if samples.max_iteration is None or samples.last is None:
        return None, state
    return (samples.max_iteration, samples.last), state


def _read(stream: BinaryIO, spec: ParseSpec, state: ReadState) -> Reading:
    if state.offset and (is_packed(stream) or stream.seek(0, 2) < state.offset):
        state = ReadState()
    collector, frozen = Collector(spec, state), state
    for block in read_blocks(stream, state.offset):
        complete = _complete(block) if block.at_end else block.high
        hits = apart(hits_in(block, collector.needles))
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


def _complete(block: Block) -> int:
    """Where the last line begins that may still grow; one longer than REACH has been read already."""
    end = max(block.data.rfind(b"\n", 0, block.filled), block.data.rfind(b"\r", 0, block.filled)) + 1
    return max(end, block.low, block.filled - REACH)
