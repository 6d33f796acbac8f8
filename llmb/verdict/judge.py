# SPDX-License-Identifier: Apache-2.0
"""Judges results: finds the reference of each, pools repeats, and adds ratio and verdict. Pure."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from llmb.results.facts import PROFILED
from llmb.results.result import FAILED, SUCCESS, Configuration, Reference, Result, Verdict
from llmb.stats.measure import Window
from llmb.verdict.rules import INVALID, NO_REFERENCE, Judgement, judge_times, published
from llmb.workload.published import Figure, mfu_as_published, release_order, releases

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
    values = [getattr(own.configuration, setting.name) for setting in fields(Configuration)]
    settings = [tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in values]
    return (*settings, metrics.window, metrics.steps)


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
