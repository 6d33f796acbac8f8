# SPDX-License-Identifier: Apache-2.0
"""Reads the line that the Trainer of Hugging Face's transformers ends with: the means of a whole run.

``{'train_runtime': 110.5948, 'train_samples_per_second': 28.93, 'train_steps_per_second': 1.808, ...}``. Its lines of
steps have losses and no times.
"""

import re
from typing import NamedTuple

from llmb.logs.samples import Step
from llmb.logs.scan import Line, needle
from llmb.logs.text import strip_escapes

SUMMARY = needle("train_samples_per_second", b"'")
_MOST_STEPS = 1e12


class Whole(NamedTuple):
    """A whole run as one step that is the mean of all; ``gbs`` in samples where it comes out whole."""

    step: Step
    gbs: int | None


def read_summary(line: Line) -> Whole | None:
    """The run that ``line`` sums up; None where it is not whole or says too little."""
    text = strip_escapes(line.before + line.after)
    runtime, steps_rate, samples_rate, loss = (
        _value(text, key)
        for key in ("train_runtime", "train_steps_per_second", "train_samples_per_second", "train_loss")
    )
    if not runtime or not steps_rate or runtime < 0 or steps_rate < 0:
        return None
    count = runtime * steps_rate
    if not 0.5 <= count < _MOST_STEPS:
        return None
    steps = round(count)
    batch = round(samples_rate / steps_rate) if samples_rate and samples_rate / steps_rate < _MOST_STEPS else 0
    # Rates have three digits behind the point: a batch that does not follow from them is not said.
    exact = (
        batch > 0 and samples_rate is not None and abs(samples_rate / steps_rate - batch) < _rounding(batch, steps_rate)
    )
    step = Step(iteration=steps - 1, step_time=runtime / steps, loss=loss, span=steps)
    return Whole(step, batch if exact else None)


def _rounding(batch: int, steps_rate: float) -> float:
    return min(0.5, (batch + 1) * 0.0005 / steps_rate + 1e-9)


def _value(text: bytes, key: str) -> float | None:
    """The number behind ``'key':``, in quotes or not, which something must follow: the line may be cut."""
    found = re.search(
        rb"'" + key.encode() + rb"':\s{0,9}'?(\d{1,15}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)'?\s{0,9}[,}]", text
    )
    return float(found[1]) if found else None
