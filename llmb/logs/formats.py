# SPDX-License-Identifier: Apache-2.0
"""The step lines of the training programs that llmb knows, and how a plugin describes its own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.logs.samples import Samples
from llmb.logs.scan import Needle, needle
from llmb.logs.spec_checks import TRAINING_KEYS, check_keys, check_needle, check_pattern
from llmb.text.checked import check_types

# The step lines of NeMo 2.
_NEEDLE = "train_step_timing in s"
_ITERATION = r"iteration (?P<i>\d{1,12})/(?P<last>\d{1,12})"
_KEYS = {
    "step_time": "train_step_timing in s",
    "tflops": "TFLOPS_per_GPU",
    "loss": "reduced_train_loss",
    "grad_norm": "gradient_norm|grad_norm",
    "gbs": "global_batch_size",
    "consumed_samples": "consumed_samples",
    "global_step": "global_step",
    "peak_memory": "peak_memory_usage|max_memory_reserved",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseSpec:
    """Which lines of a log are steps, and which keys they have.

    ``needle``: text that the line of every step has and few other lines; ``iteration``: a pattern with the groups ``i``
    (from ``first_iteration``) and optionally ``last``, before or after the needle on the same line. Values are read
    from whichever of the two comes first; ``keys`` maps our names (``step_time``, ``tflops``, ``loss``, ``grad_norm``,
    ``gbs``, ``consumed_samples``, ``global_step``, ``peak_memory``, ``tokens_rate``: tokens per second of one GPU; and
    the metrics that the workload declares) to those in the log, ``a|b`` for alternatives; ``units``: factors that turn
    their values into seconds, TFLOPS, bytes or the metric's unit; ``redrawn``: a step's line is printed again as it
    changes, and the last one is used. ``tflops_valid`` False marks the framework's own TFLOPS as wrong for this model,
    and ``tflops_note`` says why. The spec of NeMo 2 also reads the lines of every other program that llmb knows, and
    those that begin with ``llmb step`` where there are metrics. ``samples``: what a plugin has read of the log by
    itself; llmb then reads nothing. Which llmb fills in: ``source``, the plugin that returns the spec, and ``metrics``,
    the names that the workload declares.

    Raises KeyFaultError for a needle, pattern, key or unit that can never be right.
    """

    needle: str = _NEEDLE
    iteration: str = _ITERATION
    keys: dict[str, str] = field(default_factory=lambda: dict(_KEYS))
    tflops_valid: bool = True
    tflops_note: str = ""
    first_iteration: int = 0
    units: dict[str, float] = field(default_factory=dict)
    redrawn: bool = False
    samples: Samples | None = None
    source: str = ""
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.is_default and not self.units:
            return
        check_types(self)
        check_needle(self.needle)
        check_pattern(self.iteration)
        check_keys(self.keys, self.units)

    @property
    def is_default(self) -> bool:
        """Whether it describes NeMo 2's lines, so that those of every known program are read."""
        return (self.needle, self.iteration, self.keys) == (_NEEDLE, _ITERATION, _KEYS)


NEMO1_NAME, NEMO2_NAME, MEGATRON_NAME, BRIDGE_NAME = "NeMo 1", "NeMo 2", "Megatron", "Megatron-Bridge"
NEMOS = frozenset({NEMO1_NAME, NEMO2_NAME})
MEGATRONS = frozenset({MEGATRON_NAME, BRIDGE_NAME})  # programs whose iterations have the same line
TITAN_NAME, TRAINER_NAME = "torchtitan", "Hugging Face Trainer"
MEANS = MEGATRONS | {TITAN_NAME}  # programs whose line is the mean of the steps since the line before
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
    TFLOPS, loss, memory and gradient norm; ``declared``: those of the metrics that the workload declares.
    ``window_from``: the number of the first step in windows; ``thousands``: numbers have commas between their digits;
    ``source``: the plugin whose pattern it is; ``either_side``: the iteration may come after the needle.
    """

    name: str | None = None
    needle: Needle
    iteration: re.Pattern[bytes]
    first_iteration: int
    redrawn: bool
    keys: Mapping[str, Keys]
    each_step: tuple[Keys, ...]
    declared: tuple[tuple[str, Keys], ...] = ()
    either_side: bool = False
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
        declared=tuple((name, own) for name, own in keys.items() if name in spec.metrics or name not in TRAINING_KEYS),
    )


_KNOWN = (
    compile_spec(NEMO2, NEMO2_NAME),
    compile_spec(NEMO1, NEMO1_NAME),
    replace(compile_spec(MEGATRON, MEGATRON_NAME), window_from=1),
    compile_spec(MAXTEXT, "MaxText"),
    replace(compile_spec(TITAN, TITAN_NAME), needle=needle(TITAN.needle, b"%"), window_from=1, thousands=True),
)


def formats_of(spec: ParseSpec) -> tuple[Format, ...]:
    """The formats of a log that ``spec`` reads: all that llmb knows, or only that of a plugin."""
    if not spec.is_default:
        return (replace(compile_spec(spec), either_side=True),)
    return (*_KNOWN, _metric_lines(spec.metrics)) if spec.metrics else _KNOWN


def _metric_lines(metrics: Sequence[str]) -> Format:
    """The format of ``llmb step 3/19 busbw=480.2 latency=35.1``, with the names of ``metrics``."""
    spec = ParseSpec(
        needle="llmb step ",
        iteration=r"llmb step (?P<i>\d{1,12})/(?P<last>\d{1,12})",
        keys={name: name for name in ("step_time", *metrics)},
        metrics=tuple(metrics),
    )
    return replace(compile_spec(spec), either_side=True)
