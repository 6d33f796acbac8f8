# SPDX-License-Identifier: Apache-2.0
"""The step lines of the training programs that llmb knows, and how a plugin describes its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llmb.logs.samples import Samples
from llmb.logs.scan import Needle, needle


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseSpec:
    """Which lines of a log are steps, and which keys they have.

    ``needle``: text that the line of every step has and few other lines; ``iteration``: a pattern with the groups ``i``
    (from ``first_iteration``) and optionally ``last``; ``keys`` maps our names (``step_time``, ``tflops``, ``loss``,
    ``grad_norm``, ``gbs``, ``consumed_samples``, ``global_step``, ``peak_memory``, ``tokens_rate``: tokens per second
    of one GPU) to those in the log, ``a|b`` for alternatives; ``units``: factors that turn their values into seconds,
    TFLOPS or bytes; ``redrawn``: a step's line is printed again as it changes, and the last one is used.
    ``tflops_valid`` False marks the framework's own TFLOPS as wrong for this model, and ``tflops_note`` says why. The
    spec of NeMo 2 also reads the lines of every other program that llmb knows. ``samples``: what a plugin has read of
    the log by itself; llmb then reads nothing. ``source``: the plugin that returns the spec, which llmb fills in.
    """

    needle: str = "train_step_timing in s"
    iteration: str = r"iteration (?P<i>\d{1,12})/(?P<last>\d{1,12})"
    keys: dict[str, str] = field(
        default_factory=lambda: {
            "step_time": "train_step_timing in s",
            "tflops": "TFLOPS_per_GPU",
            "loss": "reduced_train_loss",
            "grad_norm": "gradient_norm|grad_norm",
            "gbs": "global_batch_size",
            "consumed_samples": "consumed_samples",
            "global_step": "global_step",
            "peak_memory": "peak_memory_usage|max_memory_reserved",
        }
    )
    tflops_valid: bool = True
    tflops_note: str = ""
    first_iteration: int = 0
    units: dict[str, float] = field(default_factory=dict)
    redrawn: bool = False
    samples: Samples | None = None
    source: str = ""


NEMO2_NAME, MEGATRON_NAME = "NeMo 2", "Megatron"
TITAN_NAME, TRAINER_NAME = "torchtitan", "Hugging Face Trainer"
MEANS = frozenset({MEGATRON_NAME, TITAN_NAME})  # programs whose line is the mean of the steps since the line before
NEMO2 = ParseSpec()
# A progress bar, `100/100 [07:57<00:00, reduced_train_loss=7.310, ...]`, numbered by completed steps.
NEMO1 = ParseSpec(iteration=r"(?<!\d)(?P<i>\d{1,12})/(?P<last>\d{1,12}) \[", first_iteration=1, redrawn=True)
# Megatron-LM and Megatron-Bridge: ` iteration        1/      50 | consumed samples:          128 | ...`
MEGATRON = ParseSpec(
    needle="elapsed time per iteration (ms)",
    iteration=r"iteration\s{1,20}(?P<i>\d{1,12})/\s{0,20}(?P<last>\d{1,12})",
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
# `completed step: 49, seconds: 15.570, TFLOP/s/device: 508.371, Tokens/s/device: 1055.949, total_weights: 1, loss: 0.1`
MAXTEXT = ParseSpec(
    needle="TFLOP/s/device",
    iteration=r"step:\s{0,20}(?P<i>\d{1,12}),\s",
    keys={"step_time": "seconds", "tflops": "TFLOP/s/device", "loss": "loss", "tokens_rate": "Tokens/s/device"},
)
# `step: 10  loss: 4.1704  grad_norm: 1.8422  memory: 0.69GiB(0.72%)  tps: 221,070  tflops: 15.83  mfu: 1.60%`: the mean
# of several steps. Its tps are tokens per second of one GPU.
TITAN = ParseSpec(
    needle="tps: ",
    iteration=r"step:\s{0,20}(?P<i>\d{1,12})\s",
    keys={"tflops": "tflops", "loss": "loss", "tokens_rate": "tps"},
    first_iteration=1,
)


Keys = tuple[tuple[bytes, ...], float]
NO_KEYS: Keys = ((), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A spec that is prepared for reading.

    ``keys``: the log's keys for each of our names, and the factor of their values; ``each_step``: those of step time,
    TFLOPS, loss, memory and gradient norm. ``window_from``: the number of the first step in windows; ``thousands``:
    numbers have commas between their digits; ``source``: the plugin whose pattern it is.
    """

    name: str | None = None
    needle: Needle
    iteration: re.Pattern[bytes]
    first_iteration: int
    redrawn: bool
    keys: Mapping[str, Keys]
    each_step: tuple[Keys, ...]
    window_from: int = 0
    thousands: bool = False
    source: str = ""


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
        source=spec.source,
        keys=keys,
        each_step=tuple(
            keys.get(name, NO_KEYS) for name in ("step_time", "tflops", "loss", "peak_memory", "grad_norm")
        ),
    )


_KNOWN = (
    compile_spec(NEMO2, NEMO2_NAME),
    compile_spec(NEMO1, "NeMo 1"),
    replace(compile_spec(MEGATRON, MEGATRON_NAME), window_from=1),
    compile_spec(MAXTEXT, "MaxText"),
    replace(compile_spec(TITAN, TITAN_NAME), needle=needle(TITAN.needle, b"%"), window_from=1, thousands=True),
)


def formats_of(spec: ParseSpec) -> tuple[Format, ...]:
    """The formats of a log that ``spec`` reads: all that llmb knows, or only that of a plugin."""
    as_nemo = (spec.needle, spec.iteration, spec.keys) == (NEMO2.needle, NEMO2.iteration, NEMO2.keys)
    return _KNOWN if as_nemo else (compile_spec(spec),)
