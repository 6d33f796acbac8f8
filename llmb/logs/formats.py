# SPDX-License-Identifier: Apache-2.0
"""The step lines of the training programs that llmb knows, and how a plugin describes its own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.logs import spec_checks
from llmb.logs.samples import Samples
from llmb.logs.scan import Needle, needle
from llmb.logs.spec_checks import OWN_UNITS, TRAINING_KEYS
from llmb.text.checked import check_types
from llmb.text.units import KNOWN, factor_between

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
    the metrics that the workload declares) to those in the log, ``a|b`` for alternatives; ``patterns`` maps them to
    regular expressions for values without ``:`` or ``=``, with the group ``value`` and optionally ``unit``. ``units``:
    the unit in the log (``ms``), or the factor that turns its values into seconds, TFLOPS, bytes or the metric's unit.
    A unit that follows a value in the log must be that one. ``redrawn``: a step's line is printed again as it changes,
    and the last one is used. ``tflops_valid`` False marks the framework's own TFLOPS as wrong for this model, and
    ``tflops_note`` says why. The spec of NeMo 2 also reads the lines of every other program that llmb knows, and
    those that begin with ``llmb step`` where there are metrics. ``samples``: what a plugin has read of the log by
    itself; llmb then reads nothing. Which llmb fills in: ``source``, the plugin that returns the spec, ``metrics``, the
    names that the workload declares, and ``metric_units``, their units.

    ``keys`` are NeMo 2's without others, and none beside ``patterns``. Raises KeyFaultError for a needle, pattern, key
    or unit that can never be right.
    """

    needle: str = _NEEDLE
    iteration: str = _ITERATION
    keys: dict[str, str] = field(default_factory=lambda: dict(_KEYS))
    tflops_valid: bool = True
    tflops_note: str = ""
    first_iteration: int = 0
    units: dict[str, float | str] = field(default_factory=dict)
    redrawn: bool = False
    samples: Samples | None = None
    source: str = ""
    metrics: tuple[str, ...] = ()
    patterns: dict[str, str] = field(default_factory=dict)
    metric_units: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.is_default:
            return
        check_types(self)
        if self.patterns and self.keys == _KEYS:
            object.__setattr__(self, "keys", {})
        spec_checks.check_needle(self.needle)
        spec_checks.check_pattern(self.iteration)
        spec_checks.check_keys(self.keys)
        spec_checks.check_patterns(self.patterns, self.keys)
        spec_checks.check_units(self.units, [*self.keys, *self.patterns])

    @property
    def is_default(self) -> bool:
        """Whether it describes NeMo 2's lines, so that those of every known program are read."""
        own = self.needle, self.iteration, self.keys
        return own == (_NEEDLE, _ITERATION, _KEYS) and not (self.patterns or self.units)

    @property
    def names(self) -> tuple[str, ...]:
        """Our names of all that a step's line has."""
        return (*self.keys, *self.patterns)

    def unit_of(self, name: str) -> str:
        """The unit in which llmb has the value called ``name``; empty where it is unknown."""
        return self.metric_units.get(name) or OWN_UNITS.get(name, "")

    def factor_of(self, name: str) -> float:
        """What turns a logged value into one in our unit."""
        given = self.units.get(name, 1.0)
        return given if not isinstance(given, str) else factor_between(given, self.unit_of(name)) or 1.0


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
    ``source``: the plugin whose pattern it is; ``either_side``: the iteration may come after the needle. ``patterns``:
    those of values without a key; ``units``: for each value whose unit is checked, the unit that the log should have.
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
    patterns: Mapping[str, tuple[re.Pattern[bytes], float]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


def compile_spec(spec: ParseSpec, name: str | None = None) -> Format:
    """The format that ``spec`` describes."""
    keys = {
        name: (tuple(key.encode() for key in keys.split("|")), spec.factor_of(name)) for name, keys in spec.keys.items()
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
        patterns={name: (re.compile(text.encode()), spec.factor_of(name)) for name, text in spec.patterns.items()},
        units={name: unit for name in spec.names if (unit := _unit_in_log(spec, name))},
    )


def _unit_in_log(spec: ParseSpec, name: str) -> str:
    """The unit that the log should have for ``name``: the one given, or the one that its factor turns into ours."""
    given, own = spec.units.get(name, 1.0), spec.unit_of(name)
    if isinstance(given, str):
        return given
    if given == 1.0 or own not in KNOWN:
        return own if given == 1.0 else ""
    kind, factor = KNOWN[own]
    close = (unit for unit, known in KNOWN.items() if known[0] == kind and abs(known[1] / factor / given - 1) < 1e-9)
    return next(close, "")


_KNOWN = tuple(
    replace(form, units={})  # known to be right
    for form in (
        compile_spec(NEMO2, NEMO2_NAME),
        compile_spec(NEMO1, NEMO1_NAME),
        replace(compile_spec(MEGATRON, MEGATRON_NAME), window_from=1),
        compile_spec(MAXTEXT, "MaxText"),
        replace(compile_spec(TITAN, TITAN_NAME), needle=needle(TITAN.needle, b"%"), window_from=1, thousands=True),
    )
)


def formats_of(spec: ParseSpec) -> tuple[Format, ...]:
    """The formats of a log that ``spec`` reads: all that llmb knows, or only that of a plugin."""
    if not spec.is_default:
        return (replace(compile_spec(spec), either_side=True),)
    return (*_KNOWN, _metric_lines(spec.metrics, spec.metric_units)) if spec.metrics else _KNOWN


def _metric_lines(metrics: Sequence[str], units: Mapping[str, str]) -> Format:
    """The format of ``llmb step 3/19 busbw=480.2 latency=35.1``, with the names of ``metrics``."""
    spec = ParseSpec(
        needle="llmb step ",
        iteration=r"llmb step (?P<i>\d{1,12})/(?P<last>\d{1,12})",
        keys={name: name for name in ("step_time", *metrics)},
        metrics=tuple(metrics),
        metric_units=dict(units),
    )
    return replace(compile_spec(spec), either_side=True)
