# SPDX-License-Identifier: Apache-2.0
"""The step lines of the training programs that we know, told apart by their own text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmb.logs.scan import Needle, needle
from llmb.logs.spec import ParseSpec

NEMO2_NAME, MEGATRON_NAME = "NeMo 2", "Megatron"
NEMO2 = ParseSpec()
# A progress bar, `100/100 [07:57<00:00, reduced_train_loss=7.310, ...]`: it counts the steps that are done.
NEMO1 = ParseSpec(iteration=r"(?P<i>\d+)/(?P<last>\d+) \[", first_iteration=1, redrawn=True)
# Megatron-LM and Megatron-Bridge: ` iteration        1/      50 | consumed samples:          128 | ...`
MEGATRON = ParseSpec(
    needle="elapsed time per iteration (ms)",
    iteration=r"iteration\s+(?P<i>\d+)/\s*(?P<last>\d+)",
    keys={
        "step_time": "elapsed time per iteration (ms)",
        "tflops": "throughput per GPU (TFLOP/s/GPU)",
        "loss": "lm loss",
        "grad_norm": "grad norm",
        "gbs": "global batch size",
        "consumed_samples": "consumed samples",
    },
    units={"step_time": 1e-3},
    first_iteration=1,
)


Keys = tuple[tuple[bytes, ...], float]
NO_KEYS: Keys = ((), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A spec made ready for reading.

    ``keys``: the log's keys for each of our names, and the factor of their values; ``each_step``: those of step time,
    TFLOPS, loss, memory and gradient norm.
    """

    name: str | None = None
    needle: Needle
    iteration: re.Pattern[bytes]
    first_iteration: int
    redrawn: bool
    keys: Mapping[str, Keys]
    each_step: tuple[Keys, ...]


def compile_spec(spec: ParseSpec, name: str | None = None) -> Format:
    """The format that ``spec`` describes."""
    keys = {
        name: (tuple(key.encode() for key in keys.split("|")), spec.units.get(name, 1.0))
        for name, keys in spec.keys.items()
    }
    return Format(
        name=name,
        needle=needle(spec.needle),
        iteration=re.compile(spec.iteration.encode()),
        first_iteration=spec.first_iteration,
        redrawn=spec.redrawn,
        keys=keys,
        each_step=tuple(
            keys.get(name, NO_KEYS) for name in ("step_time", "tflops", "loss", "peak_memory", "grad_norm")
        ),
    )


_KNOWN = (compile_spec(NEMO2, NEMO2_NAME), compile_spec(NEMO1, "NeMo 1"), compile_spec(MEGATRON, MEGATRON_NAME))


def formats_of(spec: ParseSpec) -> tuple[Format, ...]:
    """The formats that a log read by ``spec`` may have: all that we know, or a plugin's own alone."""
    as_nemo = (spec.needle, spec.iteration, spec.keys) == (NEMO2.needle, NEMO2.iteration, NEMO2.keys)
    return _KNOWN if as_nemo else (compile_spec(spec),)
