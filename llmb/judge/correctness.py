# SPDX-License-Identifier: Apache-2.0
"""Compare loss and memory of runs with those of earlier runs of the same seed and layout. Pure.

The limits are those with which Megatron-Bridge compares its own runs (``validate_convergence`` and
``validate_memory`` of its scripts/performance/utils/evaluate.py). Its correlation is not asked of a
flat curve, which has nothing but noise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llmb.contract.metrics import LOWER, MetricSpec
from llmb.contract.settings import SPLIT, Settings
from llmb.core.digits import in_enough_digits
from llmb.core.values import dataclass
from llmb.judge.reference import relative
from llmb.judge.value import FAIL, PASS, SUSPICIOUS, WORST
from llmb.measure.losses import LossCurve
from llmb.measure.result import (
    LOSS,
    PEAK_MEMORY,
    MetricVerdict,
    ReferenceValue,
    Result,
    Verdict,
)

LEAST_CORRELATION = 0.95
# The relative difference that a step may have, by the least loss of the reference.
TOLERANCES = ((2.0, 0.10), (0.5, 0.05), (0.0, 0.02))
MOST_OUTLIERS = 0.10  # the share of the steps that may exceed it
FINAL_TOLERANCE = 0.03  # of the last step
MEMORY_TOLERANCE = 0.05
RULES = {
    LOSS: (
        f"rules for the loss: FAIL if the last step is more than {FINAL_TOLERANCE:.0%} apart, more"
        f" than {MOST_OUTLIERS:.0%} of the steps are beyond their tolerance, or the correlation is"
        f" below {LEAST_CORRELATION:g}"
    ).replace("%", " %"),
    PEAK_MEMORY: (
        f"rules for the peak memory: FAIL if it is more than {MEMORY_TOLERANCE:.0%} higher,"
        f" SUSPICIOUS if it is more than {MEMORY_TOLERANCE:.0%} lower"
    ).replace("%", " %"),
}
_FEWEST = 3  # points of a correlation
_LEAST_COMMON = 10  # iterations of two curves, unless one has fewer
_LAYOUT = (*SPLIT, "gbs", "seq_length", "num_layers", "scale", "dtype", "fp8", "tokenizer")
_SEED = "seed"
_MEMORY = MetricSpec(
    name=PEAK_MEMORY,
    unit="B",
    better=LOWER,
    fail_below=1 / (1 + MEMORY_TOLERANCE),
    warn_below=1 / (1 + MEMORY_TOLERANCE),
    suspicious_above=1 / (1 - MEMORY_TOLERANCE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The verdicts on loss and memory, as far as both sides have them."""

    verdicts: Mapping[str, MetricVerdict]
    #: Why the loss of a training was not compared, None if it was.
    loss_not_compared: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDifference:
    """The differences of a loss curve from a reference curve, as fractions of the latter."""

    points: int  #: iterations that both have
    outliers: tuple[int, ...]  #: those of them that are beyond the tolerance of their loss
    largest: float
    at: int  #: the iteration with the largest difference
    last: int  #: the last common iteration
    final: float  #: with its sign
    correlation: float | None  #: None for a flat curve

    @property
    def faults(self) -> Iterator[str]:
        """Each limit that is broken, with the value and the limit."""
        if abs(self.final) > FINAL_TOLERANCE:
            word = "above" if self.final > 0 else "below"
            limit = f"{100 * FINAL_TOLERANCE:g} % allowed"
            final, _ = in_enough_digits(abs(self.final), FINAL_TOLERANCE, _percent)
            yield f"{final} {word} at the last iteration {self.last} ({limit})"
        if len(self.outliers) > MOST_OUTLIERS * self.points:
            share = f"{len(self.outliers)} of {self.points} steps beyond their tolerance"
            worst = f"iteration {self.at} by {_percent(self.largest)}"
            yield f"{share} from iteration {self.outliers[0]} on, {worst}"
        if self.correlation is not None and self.correlation < LEAST_CORRELATION:
            shown, _ = in_enough_digits(
                self.correlation,
                LEAST_CORRELATION,
                lambda value, more: f"{value:.{3 + more}f}",
            )
            yield f"correlation {shown} ({LEAST_CORRELATION:g} needed)"


def check(pool: Sequence[Result], reference_pool: Sequence[Result], name: str) -> Checks:
    """Compare loss and memory of repeats with the runs of the other side, called ``name``.

    ``pool`` and ``reference_pool`` have comparable configurations.
    """
    configuration = pool[0].identity.configuration
    reference_configuration = reference_pool[0].identity.configuration
    if configuration is None or reference_configuration is None or configuration.gbs is None:
        return Checks(verdicts={})
    difference = _other_layout(configuration, reference_configuration)
    steps = pool[0].metrics.steps, reference_pool[0].metrics.steps
    if difference is None and steps[0] != steps[1]:
        difference = f"{steps[1]} steps, not {steps[0]}"
    if difference is not None:
        return Checks(verdicts={}, loss_not_compared=f"{name} has {difference}")
    verdicts = {}
    loss, missing = _judge_loss(pool, reference_pool, name)
    if loss is not None:
        verdicts[LOSS] = loss
    if configuration.dotted == reference_configuration.dotted:
        memory = _judge_memory(pool, reference_pool, name)
        verdicts |= {} if memory is None else {PEAK_MEMORY: memory}
    return Checks(verdicts=verdicts, loss_not_compared=missing)


def with_checks(verdict: Verdict, checks: Checks) -> Verdict:
    """Return the ``verdict`` on the speed with those on loss and memory; the worst decides."""
    metrics = {**verdict.metrics, **checks.verdicts}
    verdict = replace(verdict, metrics=metrics, loss_not_compared=checks.loss_not_compared)
    failed = [judged for judged in checks.verdicts.values() if judged.word != PASS]
    words = [
        word for word in (verdict.word, *(judged.word for judged in failed)) if word is not None
    ]
    if not failed:
        return verdict
    reasons = [*(judged.reason for judged in failed), f"speed {verdict.reason}"]
    return replace(verdict, word=min(words, key=WORST.index), reason="; ".join(reasons))


def speed_word(verdict: Verdict) -> str | None:
    """Return the verdict without those on loss and memory, which no clock or node explains."""
    if not verdict.faults:
        return verdict.word
    metrics = verdict.metrics.items()
    words = [judged.word for name, judged in metrics if name not in (LOSS, PEAK_MEMORY)]
    return min(words, key=WORST.index, default=None)


def in_words(verdict: Verdict) -> Iterator[str]:
    """Yield what a verdict's reason omits: comparisons without a fault, and why there is none."""
    for name in (LOSS, PEAK_MEMORY):
        judged = verdict.metrics.get(name)
        if judged is not None and judged.word == PASS:
            yield judged.reason
    if verdict.loss_not_compared is not None:
        yield f"the loss was not compared: {verdict.loss_not_compared}"


def _other_layout(configuration: Settings, reference: Settings) -> str | None:
    """Return the first setting of seed and layout in which the ``reference`` differs, or None."""
    for name in _LAYOUT:
        if getattr(configuration, name) != (value := getattr(reference, name)):
            return _other_value(name, value, getattr(configuration, name))
    seeds = {*configuration.dotted, *reference.dotted}
    for name in sorted(name for name in seeds if name.rpartition(".")[2].endswith(_SEED)):
        if configuration.dotted.get(name) != (value := reference.dotted.get(name)):
            return _other_value(name, value, configuration.dotted.get(name))
    return None


def _other_value(name: str, *values: object) -> str:
    reference, value = ("unset" if value is None else value for value in values)
    return f"{name} {reference}, not {value}"


def _judge_loss(
    pool: Sequence[Result], reference_pool: Sequence[Result], name: str
) -> tuple[MetricVerdict | None, str | None]:
    """Return the verdict on the run that differs most, or why there is none."""
    reference = _mean_curve(reference_pool)
    if not reference:
        return None, f"{name} has no loss"
    compared = [
        (result, difference)
        for result in pool
        if result.metrics.losses is not None
        and (difference := curve_difference(result.metrics.losses, reference)) is not None
    ]
    if not compared:
        return None, f"the log has the loss at too few iterations that {name} has"
    result, worst = max(
        sorted(compared, key=lambda pair: pair[0].identity.name),  # of equal ones the same always
        key=lambda pair: (any(pair[1].faults), abs(pair[1].final), pair[1].largest),
    )
    faults = list(worst.faults)
    of_run = f" of {result.identity.name}" if len(pool) > 1 else ""
    if faults:
        reason = f"wrong loss{of_run} against {name}: {', '.join(faults)}"
    else:
        largest = f"at most {_percent(worst.largest)} apart" if worst.largest else "all equal"
        reason = f"loss{of_run} as in {name}: {worst.points} steps, {largest}"
    final = reference[worst.last]
    value = ReferenceValue(
        release=name,
        window="last",
        step_time_s=None,
        source=", ".join(run.identity.name for run in reference_pool),
        metric=LOSS,
        value=final,
        unit="",
    )
    verdict = MetricVerdict(
        word=FAIL if faults else PASS,
        reason=reason,
        reference=value,
        ratio=1 / (1 + worst.final) if worst.final > -1 else None,
        repeats=len(compared),
    )
    return verdict, None


def _mean_curve(results: Sequence[Result]) -> dict[int, float]:
    """Return the mean loss of the runs at each iteration, empty if none has any."""
    values: dict[int, list[float]] = {}
    for result in results:
        if (curve := result.metrics.losses) is not None:
            for iteration, loss in zip(curve.iterations, curve.values, strict=True):
                values.setdefault(iteration, []).append(loss)
    return {
        iteration: math.fsum(losses) / len(losses) for iteration, losses in sorted(values.items())
    }


def curve_difference(curve: LossCurve, reference: Mapping[int, float]) -> CurveDifference | None:
    """Return how a curve differs from a ``reference`` by iteration.

    None if they have too few iterations in common to tell.
    """
    points = [
        (iteration, loss, reference[iteration])
        for iteration, loss in zip(curve.iterations, curve.values, strict=True)
        if iteration in reference
    ]
    if len(points) < max(1, min(_LEAST_COMMON, len(curve.iterations), len(reference))):
        return None
    differences = {
        iteration: round(_relative_difference(loss, expected), 9)
        for iteration, loss, expected in points
    }
    at = max(differences, key=lambda iteration: abs(differences[iteration]))
    last = points[-1][0]
    return CurveDifference(
        points=len(points),
        outliers=tuple(
            iteration
            for iteration, _, expected in points
            if abs(differences[iteration]) > _tolerance(expected)
        ),
        largest=abs(differences[at]),
        at=at,
        last=last,
        final=differences[last],
        correlation=_correlation([(loss, expected) for _, loss, expected in points]),
    )


def _relative_difference(loss: float, expected: float) -> float:
    return (loss - expected) / abs(expected) if expected else loss


def _tolerance(expected: float) -> float:
    return next((share for least, share in TOLERANCES if expected > least), TOLERANCES[-1][1])


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation, None if the reference moves by less than its tolerance."""
    losses, expected = [loss for loss, _ in pairs], [value for _, value in pairs]
    moves = max(expected) - min(expected)
    if len(pairs) < _FEWEST or moves <= _tolerance(max(expected)) * abs(max(expected)):
        return None
    mean, expected_mean = math.fsum(losses) / len(pairs), math.fsum(expected) / len(pairs)
    square = math.fsum((loss - mean) ** 2 for loss in losses)
    expected_square = math.fsum((value - expected_mean) ** 2 for value in expected)
    product = math.fsum((loss - mean) * (value - expected_mean) for loss, value in pairs)
    return product / math.sqrt(square * expected_square) if square else 0.0


def _judge_memory(
    pool: Sequence[Result], reference_pool: Sequence[Result], name: str
) -> MetricVerdict | None:
    """Return the verdict on the peak memory of the run that differs most, None if unknown."""
    peaks, references = _peaks(pool), _peaks(reference_pool)
    if not peaks or not references:
        return None
    expected = math.fsum(references) / len(references)
    peak = max(peaks, key=lambda value: abs(value - expected))
    ratio = relative(peak, expected, _MEMORY.better)
    word = (
        FAIL
        if ratio < _MEMORY.fail_below
        else SUSPICIOUS
        if ratio > _MEMORY.suspicious_above
        else PASS
    )
    difference = peak / expected - 1
    shown, _ = in_enough_digits(abs(difference), MEMORY_TOLERANCE, _percent)
    compared = f"{shown} {'above' if difference > 0 else 'below'}"
    limit = "" if word == PASS else f" ({100 * MEMORY_TOLERANCE:g} % allowed)"
    reason = (
        f"peak memory {peak / 2**30:.4g} GiB of a GPU, {compared if difference else 'as in'}"
        f" {name}{limit}"
    )
    reference = ReferenceValue(
        release=name,
        window="",
        step_time_s=None,
        source=", ".join(run.identity.name for run in reference_pool),
        metric=PEAK_MEMORY,
        value=expected,
        unit=_MEMORY.unit,
    )
    return MetricVerdict(
        word=word, reason=reason, reference=reference, ratio=ratio, repeats=len(peaks)
    )


def _peaks(results: Sequence[Result]) -> list[float]:
    """Return the peak memory of one GPU of each run that logs it, in bytes.

    On a CPU it is that of the process, most of which are libraries.
    """
    logs = [result.log for result in results if result.log is not None]
    return [log.peak_memory_bytes for log in logs if log.peak_memory_bytes and log.device is None]


def _percent(fraction: float, more: int = 0) -> str:
    return f"{100 * abs(fraction):.{3 + more}g} %"
