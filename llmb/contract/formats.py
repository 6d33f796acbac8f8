# SPDX-License-Identifier: Apache-2.0
"""The step lines of the training programs that llmb knows, and how a plugin describes its own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache

from llmb.contract import spec_checks
from llmb.contract.samples import Samples
from llmb.contract.spec_checks import OWN_UNITS, TRAINING_KEYS
from llmb.core.checked import check_types
from llmb.core.scan import Needle, needle
from llmb.core.units import KNOWN, factor_between
from llmb.core.values import dataclass

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
    """The lines of a log that are steps, and their keys.

    The spec of NeMo 2 also reads the lines of every other program that llmb knows, and for a
    workload with metrics the lines that begin with ``llmb step``. Raises KeyFaultError for a
    needle, pattern, key or unit that can never be right.
    """

    #: Text that the line of every step has and few other lines.
    needle: str = _NEEDLE
    #: A pattern with the groups ``i`` (from ``first_iteration``) and optionally ``last``, before or
    #: after the needle on the same line. Values are read from whichever of the two comes first.
    #: With ``json_lines``, the name of the iteration, or of it and the last one: ``step/steps``.
    iteration: str = _ITERATION
    #: Our names (``step_time``, ``tflops``, ``loss``, ``grad_norm``, ``gbs``, ``consumed_samples``,
    #: ``global_step``, ``peak_memory``, ``tokens_rate``: tokens per second of one GPU, and the
    #: metrics that the workload declares) with the words of the log, ``a|b`` for alternatives. NeMo
    #: 2's by default, none beside ``patterns``.
    keys: dict[str, str] = field(default_factory=lambda: dict(_KEYS))
    #: False if the framework's own TFLOPS are wrong for this model.
    tflops_valid: bool = True
    #: Why they are wrong.
    tflops_note: str = ""
    first_iteration: int = 0
    #: The unit in the log (``ms``), or the factor that turns its values into seconds, TFLOPS, bytes
    #: or the metric's unit. A unit that follows a value in the log must be that one.
    units: dict[str, float | str] = field(default_factory=dict)
    #: A step's line is printed again as it changes, and the last one is used.
    redrawn: bool = False
    #: What a plugin has read of the log by itself; llmb then reads nothing.
    samples: Samples | None = None
    #: The plugin that returns the spec, filled in by llmb.
    source: str = ""
    #: The names that the workload declares, filled in by llmb.
    metrics: tuple[str, ...] = ()
    #: Regular expressions for values without ``:`` or ``=``, with the group ``value`` and
    #: optionally ``unit``, by our names. Without ``needle``, ``iteration`` and ``keys`` they are
    #: searched in the whole log, not in lines of steps: the nth match of each is the nth result,
    #: and the value of a metric is the mean of all. ``^`` and ``$`` are the ends of a line.
    patterns: dict[str, str] = field(default_factory=dict)
    #: Regular expressions that the log of a good run matches. Without one the run has failed.
    must_have: tuple[str, ...] = ()
    #: Regular expressions that the log of a good run does not match.
    must_not_have: tuple[str, ...] = ()
    #: Their units, filled in by llmb.
    metric_units: dict[str, str] = field(default_factory=dict)
    #: A step is an object in JSON. ``keys`` are its names, ``a.b`` for a name in a nested object.
    json_lines: bool = False
    #: Numbers have commas between groups of three digits, ``1,234.5``.
    thousands: bool = False
    #: How many lines a step has. The needle and the iteration are in the first of them.
    lines: int = 1

    def __post_init__(self) -> None:
        if self.must_have or self.must_not_have:
            check_types(self)
            spec_checks.check_conditions(self.must_have, "must_have")
            spec_checks.check_conditions(self.must_not_have, "must_not_have")
        if self.is_default:
            return
        check_types(self)
        if self.patterns and self.keys == _KEYS:
            object.__setattr__(self, "keys", {})
        spec_checks.check_needle(self.needle)
        spec_checks.check_lines(self.lines)
        if self.json_lines:
            spec_checks.check_json(self.iteration, self.patterns, self.lines)
        else:
            spec_checks.check_pattern(self.iteration)
        spec_checks.check_keys(self.keys)
        spec_checks.check_patterns(self.patterns, self.keys)
        spec_checks.check_units(self.units, [*self.keys, *self.patterns])

    @property
    def is_default(self) -> bool:
        """Return True if it describes NeMo 2's lines, so that every known program is read."""
        reads = self.needle, self.iteration, self.keys
        is_described = (
            self.patterns or self.units or self.json_lines or self.thousands or self.lines > 1
        )
        return reads == (_NEEDLE, _ITERATION, _KEYS) and not is_described

    @property
    def reads_whole_log(self) -> bool:
        """Return True if its patterns are searched in the whole log, not in lines of steps."""
        has_steps = self.keys or (self.needle, self.iteration) != (_NEEDLE, _ITERATION)
        return bool(self.patterns) and not has_steps

    @property
    def names(self) -> tuple[str, ...]:
        """Our names of all that a step's line has."""
        return (*self.keys, *self.patterns)

    def unit_of(self, name: str) -> str:
        """Return the unit in which llmb has the value called ``name``, empty if unknown."""
        return self.metric_units.get(name) or OWN_UNITS.get(name, "")

    def factor_of(self, name: str) -> float:
        """Return the factor that turns a logged value into one in our unit."""
        unit = self.units.get(name, 1.0)
        return (
            unit if not isinstance(unit, str) else factor_between(unit, self.unit_of(name)) or 1.0
        )


NEMO1_NAME, NEMO2_NAME, MEGATRON_NAME, BRIDGE_NAME = (
    "NeMo 1",
    "NeMo 2",
    "Megatron",
    "Megatron-Bridge",
)
NEMOS = frozenset({NEMO1_NAME, NEMO2_NAME})
MEGATRONS = frozenset({MEGATRON_NAME, BRIDGE_NAME})  # programs whose iterations have the same line
TITAN_NAME, TRAINER_NAME, MAXTEXT_NAME = "torchtitan", "Hugging Face Trainer", "MaxText"
# programs whose line is the mean of the steps since the line before
MEANS = MEGATRONS | {TITAN_NAME}
NEMO2 = ParseSpec()
# A progress bar, `100/100 [07:57<00:00, reduced_train_loss=7.310, ...]`, numbered by completed
# steps.
NEMO1 = ParseSpec(
    iteration=r"(?<!\d)(?P<i>\d{1,12})/(?P<last>\d{1,12}) \[", first_iteration=1, redrawn=True
)
# Megatron-LM and Megatron-Bridge: ` iteration        1/      50 | consumed samples:          128 |
# ...`
MEGATRON = ParseSpec(
    needle="elapsed time per iteration (ms)",
    iteration=r"iteration\s{1,20}(?P<i>\d{1,12})/\s{0,20}(?P<last>\d{1,12})",
    keys={
        "step_time": "elapsed time per iteration (ms)",
        # newer releases of Megatron-LM, Megatron-DeepSpeed
        "tflops": "throughput per GPU (TFLOP/s/GPU)|compute per GPU (TFLOP/s/GPU)|TFLOPs",
        "tokens_rate": "tokens per gpu per second (tgs)",
        "loss": "lm loss",
        "grad_norm": "grad norm",
        "gbs": "global batch size",
        "consumed_samples": "consumed samples",
    },
    units={"step_time": 1e-3},
    first_iteration=1,
)
# `completed step: 49, seconds: 15.570, TFLOP/s/device: 508.371, Tokens/s/device: 1055.949,
# total_weights: 1, loss: 0.1`
MAXTEXT = ParseSpec(
    needle="TFLOP/s/device",
    iteration=r"step:\s{0,20}(?P<i>\d{1,12}),\s",
    keys={
        "step_time": "seconds",
        "tflops": "TFLOP/s/device",
        "loss": "loss",
        "tokens_rate": "Tokens/s/device",
    },
)
# `step: 10  loss: 4.1704  grad_norm: 1.8422  memory: 0.69GiB(0.72%)  tps: 221,070  tflops: 15.83
# mfu: 1.60%`: the mean of several steps. Its tps are tokens per second of one GPU.
TITAN = ParseSpec(
    needle="tps: ",
    iteration=r"step:\s{0,20}(?P<i>\d{1,12})\s",
    keys={"tflops": "tflops", "loss": "loss", "grad_norm": "grad_norm", "tokens_rate": "tps"},
    first_iteration=1,
)
# Older releases call it words per second.
OLD_TITAN = replace(TITAN, needle="wps: ", keys={**TITAN.keys, "tokens_rate": "wps"})


Keys = tuple[tuple[bytes, ...], float]
NO_KEYS: Keys = ((), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A spec that is prepared for reading."""

    name: str | None = None
    needle: Needle
    iteration: re.Pattern[bytes]
    #: ``iteration`` has the group ``last``.
    announces: bool
    first_iteration: int
    redrawn: bool
    #: The log's keys for each of our names, and the factor of their values.
    keys: Mapping[str, Keys]
    #: The keys of step time, TFLOPS, loss, memory, gradient norm, rate of tokens and batch.
    each_step: tuple[Keys, ...]
    #: The keys of the metrics that the workload declares.
    declared: tuple[tuple[str, Keys], ...] = ()
    #: The iteration may come after the needle.
    either_side: bool = False
    #: The number of the first step in windows.
    window_from: int = 0
    #: Numbers have commas between their digits.
    thousands: bool = False
    #: The plugin whose pattern it is.
    source: str = ""
    #: Patterns of the values without a key.
    patterns: Mapping[str, tuple[re.Pattern[bytes], float]] = field(default_factory=dict)
    #: The unit that the log should have, for each value whose unit is checked.
    units: Mapping[str, str] = field(default_factory=dict)
    #: Those of them that a plugin states.
    stated_units: Mapping[str, str] = field(default_factory=dict)
    #: The names of the iteration and, if there is one, of the last one in lines of JSON.
    json_names: tuple[str, ...] | None = None
    #: How many lines a step has.
    lines: int = 1
    #: It is none of those that llmb knows.
    own: bool = False


_EACH_STEP = ("step_time", "tflops", "loss", "peak_memory", "grad_norm", "tokens_rate", "gbs")


def compile_spec(spec: ParseSpec, name: str | None = None) -> Format:
    """The format that ``spec`` describes."""
    keys = {
        name: (tuple(key.encode() for key in keys.split("|")), spec.factor_of(name))
        for name, keys in spec.keys.items()
    }
    iteration = re.compile(b"" if spec.json_lines else spec.iteration.encode())
    return Format(
        name=name,
        needle=needle(spec.needle),
        iteration=iteration,
        announces="last" in iteration.groupindex,
        first_iteration=spec.first_iteration,
        thousands=spec.thousands,
        json_names=tuple(spec.iteration.split("/")) if spec.json_lines else None,
        lines=spec.lines,
        redrawn=spec.redrawn,
        source=spec.source,
        keys=keys,
        each_step=tuple(keys.get(name, NO_KEYS) for name in _EACH_STEP),
        declared=tuple(
            (name, spellings)
            for name, spellings in keys.items()
            if name in spec.metrics or name not in TRAINING_KEYS
        ),
        patterns={
            name: (re.compile(text.encode()), spec.factor_of(name))
            for name, text in spec.patterns.items()
        },
        units={name: unit for name in spec.names if (unit := _unit_in_log(spec, name))},
        stated_units={name: unit for name, unit in spec.units.items() if isinstance(unit, str)},
    )


def _unit_in_log(spec: ParseSpec, name: str) -> str:
    """Return the unit that the log should have for ``name``, by its spec or its factor."""
    logged, wanted_unit = spec.units.get(name, 1.0), spec.unit_of(name)
    if isinstance(logged, str):
        return logged
    if logged == 1.0 or wanted_unit not in KNOWN:
        return wanted_unit if logged == 1.0 else ""
    kind, factor = KNOWN[wanted_unit]
    close = (
        unit
        for unit, dimension in KNOWN.items()
        if dimension[0] == kind and abs(dimension[1] / factor / logged - 1) < 1e-9
    )
    return next(close, "")


@cache
def _known_formats() -> tuple[Format, ...]:
    """The formats of all programs that llmb knows."""
    formats = (
        compile_spec(NEMO2, NEMO2_NAME),
        compile_spec(NEMO1, NEMO1_NAME),
        replace(compile_spec(MEGATRON, MEGATRON_NAME), window_from=1),
        compile_spec(MAXTEXT, MAXTEXT_NAME),
        _titan_format(TITAN),
        _titan_format(OLD_TITAN),
    )
    return tuple(replace(format_, units={}) for format_ in formats)  # known to be right


def _titan_format(spec: ParseSpec) -> Format:
    found_by = needle(spec.needle, b"%")
    return replace(compile_spec(spec, TITAN_NAME), needle=found_by, window_from=1, thousands=True)


def formats_of(spec: ParseSpec) -> tuple[Format, ...]:
    """The formats of a log that ``spec`` reads: all that llmb knows, or only that of a plugin."""
    if not spec.is_default:
        return (replace(compile_spec(spec), either_side=True, own=True),)
    formats = _known_formats()
    return (*formats, _metric_lines(spec.metrics, spec.metric_units)) if spec.metrics else formats


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
