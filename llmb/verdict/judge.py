# SPDX-License-Identifier: Apache-2.0
"""Judges results: finds the reference of each, pools repeats, and adds ratio and verdict. Pure.

Every figure of several runs is computed here. Their step time is the arithmetic mean over the runs, as that of a run is
over its steps: each run does the same work, so this is the total time divided by all steps, and tokens divided by it
are the throughput of all runs together (the harmonic mean of the single throughputs).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from llmb.results.facts import PROFILED
from llmb.results.result import FAILED, SUCCESS, Configuration, Reference, Result, Verdict
from llmb.stats.measure import MOST_REPEATS, Z95, Spread, Window, relative_width, repeats_to_settle, spread
from llmb.workload.published import Figure, mfu_as_published, release_order, releases

_MOST_WIDTH = 100.0


class Ratio(NamedTuple):
    """A ratio of throughputs, and its 95 % interval (None where neither side has repeats)."""

    value: float
    interval: tuple[float, float] | None


def pooled(results: Iterable[Result]) -> Spread | None:
    """The step time in seconds of all results that have one; None where none has."""
    times = [result.metrics.step_time for result in results if result.metrics.step_time is not None]
    return spread(times) if times else None


def published(step_time: float) -> Spread:
    """A published step time in seconds: one figure, whose spread is unknown."""
    return Spread(step_time, 0.0, 1)


def noise_of_pair(ours: Result, theirs: Result) -> float:
    """The factor by which noise may change the ratio of two single runs, from the spread of their steps (95 %).

    Uses the deviation of single steps, not of their mean: steps of one run resemble each other more than two runs do.
    """
    widths = [
        Z95 * (one.metrics.step_time_deviation or 0.0) / one.metrics.step_time
        for one in (ours, theirs)
        if one.metrics.step_time
    ]
    return math.exp(min(round(math.hypot(*widths), 9), _MOST_WIDTH))


def throughput_ratio(ours: Spread, theirs: Spread) -> Ratio:
    """The throughput at the step times ``ours`` relative to that at ``theirs``.

    The interval is that of the ratio's logarithm (Student's t for each mean, both widths combined as the root of their
    summed squares): it never reaches 0, and exchanging the sides gives exactly its inverse.
    """
    value = round(theirs.mean / ours.mean, 9)  # so that the last bit of a sum cannot change a verdict
    if ours.n < 2 and theirs.n < 2:
        return Ratio(value, None)
    factor = math.exp(round(math.hypot(relative_width(ours), relative_width(theirs)), 9))
    return Ratio(value, (value / factor, value * factor))


PASS, WARN, SUSPICIOUS, INCONCLUSIVE = "PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE"
FAIL, INVALID, NO_REFERENCE = "FAIL", "INVALID", "NO_REFERENCE"
BAD = frozenset({FAIL, INVALID})  # they end a command with exit code 3

FAIL_BELOW, WARN_BELOW, SUSPICIOUS_ABOVE = 0.95, 0.98, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on ``repeats`` runs, its reason, the ``ratio`` of throughputs and its 95 % interval (None for one run).

    ``step_time``: the mean of the repeats, in seconds.
    """

    verdict: str
    reason: str
    step_time: float
    ratio: float
    interval: tuple[float, float] | None
    repeats: int


def judge_times(times: Sequence[float], reference: Spread, noise: float | None = None) -> Judgement:
    """The verdict on the step times of one run or more, in seconds, relative to the ``reference``.

    ``noise``: the part of the ratio of two single runs that the spread of their steps explains, as a factor (1.05 for
    5 %); None otherwise.
    """
    found = spread(times)
    ratio, interval = throughput_ratio(found, reference)
    within = interval if noise is None else (ratio / noise, ratio * noise)
    verdict = _verdict(ratio, within)
    if noise is not None and within is not None and verdict != PASS and within[0] <= 1 <= within[1]:
        verdict = INCONCLUSIVE  # a difference that noise explains is no difference, for better or worse
    why = _why(verdict, found, reference)
    if noise is not None and within is not None and verdict == INCONCLUSIVE:
        why = f": the spread of both runs' own steps explains {within[0]:.3f} to {within[1]:.3f}; "
        why += "repeats on both sides would decide"
    measured = f"{ratio:.3f} (n=1)"
    if interval is not None:
        measured = f"{ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f}, n={found.n})"
    return Judgement(
        verdict=verdict, reason=measured + why, step_time=found.mean, ratio=ratio, interval=interval, repeats=found.n
    )


def _verdict(ratio: float, interval: tuple[float, float] | None) -> str:
    if interval is not None and interval[0] < FAIL_BELOW < interval[1]:
        return INCONCLUSIVE
    if ratio < FAIL_BELOW:
        return FAIL
    if ratio < WARN_BELOW:
        return WARN
    return SUSPICIOUS if ratio > SUSPICIOUS_ABOVE else PASS


def _settling(found: Spread, reference: Spread) -> str:
    if reference.n > 1:
        return "more repeats on both sides"
    more = repeats_to_settle(found, reference.mean / FAIL_BELOW)
    return f"more than {MOST_REPEATS} repeats" if more is None else f"{more} more repeat{'s' if more > 1 else ''}"


def _why(verdict: str, found: Spread, reference: Spread) -> str:
    if verdict == INCONCLUSIVE:
        return f" is on both sides of {FAIL_BELOW}; {_settling(found, reference)} would decide"
    return {
        FAIL: f" is below {FAIL_BELOW}",
        WARN: f" is below {WARN_BELOW}",
        SUSPICIOUS: f" is above {SUSPICIOUS_ABOVE}, which is implausible: check what differs",
    }.get(verdict, f" is {WARN_BELOW} or more")


T = TypeVar("T")

# What must be the same, in the order in which it is checked; and how it is printed.
SAME = {
    "workload": "{}",
    "model_size": "size {}",
    "gpu_type": "{}",
    "dtype": "{}",
    "scale": "{} GPUs",
    "gbs": "global batch {}",
    "seq_length": "sequence length {}",
    "num_layers": "{} layers",
}
LOADS = "a run that loads a checkpoint has one step, which measures the load"


def judge(results: Iterable[Result], figures: Sequence[Figure], release: str | None = None) -> list[Result]:
    """``results`` in their order, each with its reference and the verdict on its configuration.

    A run that failed or has not ended has none. An invalid run has its own verdict, and is not one of the repeats. The
    order of the results does not change their verdicts.
    """
    compared = [_compared(result, figures, release) for result in results]
    pools: dict[Hashable, tuple[Reference, list[float]]] = {}
    for result in compared:
        verdict, time = result.verdict, result.metrics.step_time
        if verdict.ratio is not None and verdict.reference is not None and time is not None:
            pools.setdefault(pool_key(result), (verdict.reference, []))[1].append(time)
    judgements = {key: judge_times(times, published(to.step_time_s)) for key, (to, times) in pools.items()}
    return [
        result if result.verdict.ratio is None else _judged(result, judgements[pool_key(result)]) for result in compared
    ]


def pool_key(result: Result) -> Hashable:
    """Equal for the repeats of one configuration: all settings and the window are the same."""
    own, metrics = result.identity, result.metrics
    if own.configuration is None:
        return (own.experiment, metrics.window, metrics.steps)
    return (own.configuration.key, metrics.window, metrics.steps)


def find_reference(
    configuration: Configuration, figures: Sequence[Figure], release: str | None = None
) -> tuple[Figure | None, str]:
    """The comparable figure of ``release``, of the newest one where None; without one, None and the reason."""
    found, missing = comparable(configuration, figures)
    if not found:
        return None, f"nothing is published {missing}"
    if release is None:
        return max(found, key=lambda figure: release_order(figure.release)), ""
    chosen = next((figure for figure in found if figure.release == release), None)
    if chosen is not None:
        return chosen, ""
    return None, f"release {release} publishes no figure for it; these do: {', '.join(releases(found))}"


def comparable(
    configuration: Configuration, others: Sequence[T], value: Callable[[T, str], Any] = getattr
) -> tuple[list[T], str]:
    """Those of ``others`` that have all of SAME in common with it; where there are none, what is missing.

    ``value`` reads a field of SAME of one of them.
    """
    left = list(others)
    for name, text in SAME.items():
        own = getattr(configuration, name)
        before, left = left, [other for other in left if value(other, name) == own]
        if not left and own is None:
            return [], "for an unknown GPU type"
        if not left:  # as `for 96 GPUs, only for 64, 128 GPUs`
            words = {str(value(other, name)) for other in before}
            known = ", ".join(sorted(words, key=lambda word: (len(word), word)))
            return [], f"for {text.format(own)}" + (f", only for {text.format(known)}" if known else "")
    return left, ""


def not_described(result: Result) -> str:
    """Why a log is not compared that does not say what it is of."""
    missing = ", ".join(result.identity.missing)
    return "the log does not say what it is of" + (f": {missing}" if missing else "")


def why_invalid(result: Result) -> str | None:
    """Why a measurement is invalid, whatever it is compared with; None where it is valid."""
    own = result.identity.configuration
    profiled = [PROFILED] if own is not None and own.profile else []
    return "; ".join([*result.metrics.invalid, *profiled]) or None


def same_window(window: Window | None, steps: int | None, figure: Figure, first: int = 0) -> bool:
    """Whether a run of ``steps`` steps, numbered from ``first``, was measured over the iterations of the figure."""
    return window is not None and window == figure.window.of(steps or figure.steps, first)


def _compared(result: Result, figures: Sequence[Figure], release: str | None) -> Result:
    """``result`` with its reference and its own ratio, or with the verdict that it has without one."""
    if _has_gaps(result):
        return replace(result, verdict=Verdict(word=INVALID, reason="the window is not complete"))
    metrics, configuration = result.metrics, result.identity.configuration
    if result.status != SUCCESS or metrics.step_time is None:
        return result
    if configuration is None:
        figure, missing = None, not_described(result)
    elif configuration.loads:
        figure, missing = None, LOADS
    else:
        figure, missing = find_reference(configuration, figures, release)
    invalid = why_invalid(result)
    if figure is None:
        verdict = Verdict(word=INVALID if invalid else NO_REFERENCE, reason=invalid or missing)
        return replace(result, verdict=verdict)
    reference = Reference(
        release=figure.release, window=str(figure.window), step_time_s=figure.step_time_s, source=figure.source
    )
    verdict = Verdict(
        reference=reference,
        mfu_reference_convention=mfu_as_published(figure, metrics.step_time),
        reference_flops_convention=figure.flops_convention,
    )
    if invalid is not None:
        return replace(result, verdict=replace(verdict, word=INVALID, reason=invalid))
    same = same_window(metrics.window, metrics.steps, figure, metrics.first_iteration)
    ratio = figure.step_time_s / metrics.step_time
    return replace(result, verdict=replace(verdict, ratio=ratio, same_window=same))


def _has_gaps(result: Result) -> bool:
    """Whether the run reached its last step, but its log lacks iterations of the window."""
    metrics = result.metrics
    if metrics.max_iteration is None or metrics.steps is None:
        return False
    return result.status == FAILED and metrics.max_iteration >= metrics.steps - 1 and metrics.step_time is None


def _judged(result: Result, judgement: Judgement) -> Result:
    verdict, reason = result.verdict, judgement.reason
    if verdict.reference is not None and not verdict.same_window:
        window = result.metrics.window
        own = "no iteration" if window is None else str(window)
        reason += f"; measured over {own}, the published figure over {verdict.reference.window}"
    return replace(
        result,
        verdict=replace(
            verdict,
            word=judgement.verdict,
            reason=reason,
            repeats=judgement.repeats,
            pooled_ratio=judgement.ratio,
            ratio_interval=judgement.interval,
        ),
    )
