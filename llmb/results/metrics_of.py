# SPDX-License-Identifier: Apache-2.0
"""Makes the metrics of a run from the samples in its log: over the window, and what follows from model and batch."""

import math
from dataclasses import replace
from pathlib import Path

from llmb.errors import LlmbError
from llmb.logs.formats import ParseSpec
from llmb.logs.lines import PatternError, UnitMismatchError
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.results import facts
from llmb.results.description import Description
from llmb.results.log_reader import LogReader
from llmb.results.result import Metrics
from llmb.stats import measure
from llmb.stats.metrics import (
    MFU,
    MODEL_TFLOPS_PER_GPU,
    STEP_TIME,
    TFLOPS_PER_GPU,
    TOKENS_PER_SECOND,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
)
from llmb.stats.statistics import summarize
from llmb.stats.window import Window, covered, default_window
from llmb.workload.flops import flops_of


def metrics_of(
    samples: Samples,
    reader: LogReader,
    found: Description,
    *,
    steps: int | None,
    window: Window | None,
    peak_tflops: float | None,
    nodes: int | None,
    profiled: str,
) -> Metrics:
    """What the steps measured over ``window`` (the default one where None).

    ``steps``: as many as are planned, None if unknown; ``peak_tflops``: of one GPU at the dtype; ``nodes``: the least
    that the job had; ``profiled``: why it is known to be profiled, or empty.
    """
    used = _window_of(samples, steps, window, found.framework)
    measured = measure.measure(samples, used, reader.metrics) if used else {}
    if not reader.spec.tflops_valid:
        measured.pop(TFLOPS_PER_GPU, None)
    declared = [spec.name for spec in reader.metrics]
    invalid = [*facts.invalid_because(samples, used, nodes, declared), *([profiled] if profiled else [])]
    if found.traced:
        invalid.append(facts.TRACED)
    metrics = _with_throughput(
        Metrics(
            window=used,
            max_iteration=samples.max_iteration,
            steps=steps,
            first_iteration=samples.first,
            measured=measured,
            headline=reader.headline,
            invalid=tuple(invalid),
        ),
        found,
        peak_tflops,
    )
    if used is None or metrics.value is None:
        return metrics
    tflops = metrics.model_tflops_per_gpu
    return replace(metrics, statistics=summarize(samples, used, reader.headline, tflops=tflops))


def _window_of(samples: Samples, steps: int | None, wanted: Window | None, framework: str | None) -> Window | None:
    """The window in the numbers of the log, as far as its lines cover it; None where it is unknown."""
    if not steps:
        return None if wanted is None or wanted.first < 0 else wanted
    first = samples.first
    return covered(
        samples, default_window(steps, first, framework=framework) if wanted is None else wanted.of(steps, first)
    )


def _with_throughput(metrics: Metrics, found: Description, peak_tflops: float | None) -> Metrics:
    """With what follows from the step time, the model and the batch."""
    if found.model is None:
        return metrics
    flops, step_time = found.flops or flops_of(found.model), metrics.step_time
    metrics = replace(metrics, model_flops=flops.total, flops_convention=flops.convention)
    if step_time is None or found.gbs is None:
        return metrics
    derived: dict[str, float] = {}
    if found.seq_length is not None:
        rate = measure.tokens_per_second(found.seq_length, found.gbs, step_time)
        metrics = replace(metrics, days_per_1t_tokens=measure.days_to_train(1e12, rate))
        derived[TOKENS_PER_SECOND] = rate
        if found.gpus is not None:
            derived[TOKENS_PER_SECOND_PER_GPU] = rate / found.gpus
    if found.gpus is not None:
        tflops = measure.model_tflops_per_gpu(found.gbs, flops.total, step_time, found.gpus)
        derived[MODEL_TFLOPS_PER_GPU] = tflops
        if peak_tflops:
            derived[MFU] = measure.mfu(tflops, peak_tflops)
    time = metrics.measured[STEP_TIME]
    part = time.std / time.mean  # all of them are a constant divided by the step time, so they deviate as it does
    rates = {name: TRAINING_BY_NAME[name].measured(rate, rate * part, time.n) for name, rate in derived.items()}
    return replace(metrics, measured={**metrics.measured, **rates})


def with_times(samples: Samples, found: Description) -> Samples:
    """With the step times that follow from rates of tokens, where the log has only rates and the job is known."""
    if found.gbs is None or found.seq_length is None or found.gpus is None:
        return samples
    tokens = found.gbs * found.seq_length / found.gpus
    lack = [step for step in samples.steps if step.tokens_rate and math.isnan(step.step_time)]
    if not lack or len(lack) != len(samples.steps):
        return samples
    steps = tuple(replace(step, step_time=tokens / step.tokens_rate) for step in lack if step.tokens_rate)
    return replace(samples, steps=steps)


def read_samples(path: Path, spec: ParseSpec) -> tuple[Samples, str]:
    """The samples of a log, and why it cannot be read where it cannot. Raises PatternError."""
    try:
        return read_log(path, spec), ""
    except PatternError:
        raise
    except UnitMismatchError as error:
        return Samples(), f"{error.message}; {error.hint}"
    except LlmbError as error:
        return Samples(), error.message
