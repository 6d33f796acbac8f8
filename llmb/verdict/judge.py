# SPDX-License-Identifier: Apache-2.0
"""Judges results: finds their reference, pools repeats, and adds ratio and verdict to each. Pure."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from llmb.results.facts import PROFILED
from llmb.results.result import FAILED, SUCCESS, Configuration, Reference, Result
from llmb.stats.measure import Window
from llmb.verdict.rules import INVALID, NO_REFERENCE, Judgement, judge_times, published
from llmb.workload.published import Figure, mfu_as_published, release_order, releases

T = TypeVar("T")

# What must be the same, in the order in which it is told; and how it is said.
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


def comparable(
    configuration: Configuration, others: Sequence[T], value: Callable[[T, str], Any] = getattr
) -> tuple[list[T], str]:
    """Those of ``others`` that have all of SAME in common with it; where there are none, what is missing.

    ``value`` reads a field of SAME of one of them.
    """
    left = list(others)
    for name, said in SAME.items():
        own = getattr(configuration, name)
        before, left = left, [other for other in left if value(other, name) == own]
        if not left:
            return [], _missing(said, own, {str(value(other, name)) for other in before})
    return left, ""


def _missing(said: str, own: Any, others: set[str]) -> str:
    """As ``for 96 GPUs, only for 64, 128 GPUs``."""
    if own is None:
        return "for a GPU type that is not known"
    known = ", ".join(sorted(others, key=lambda text: (len(text), text)))
    return f"for {said.format(own)}" + (f", only for {said.format(known)}" if known else "")


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
    return chosen, "" if chosen else f"release {release} has no figure for it; there are {', '.join(releases(found))}"


def same_window(window: Window | None, steps: int | None, figure: Figure, first: int = 0) -> bool:
    """Whether a run of ``steps`` steps, numbered from ``first``, was measured over the iterations of the figure."""
    return window is not None and window == figure.window.of(steps or figure.steps, first)


LOADS = "a run that loads a checkpoint has one step, which measures the load"


def judge(results: Iterable[Result], figures: Sequence[Figure], release: str | None = None) -> list[Result]:
    """``results``, in their order, each with what it compares with and the verdict of its configuration.

    A run that failed or goes on has none; one that is not valid has its own, and is not counted among the repeats. The
    same results get the same verdicts in whatever order they come.
    """
    seen = [_with_reference(result, figures, release) for result in results]
    pools: dict[Hashable, tuple[float, list[float]]] = {}
    for result in seen:
        if result.ratio is not None and result.reference is not None and result.time_mean_seconds is not None:
            _, times = pools.setdefault(pool_key(result), (result.reference.step_time_s, []))
            times.append(result.time_mean_seconds)
    judgements = {key: judge_times(times, published(step)) for key, (step, times) in pools.items()}
    return [result if result.ratio is None else _judged(result, judgements[pool_key(result)]) for result in seen]


def pool_key(result: Result) -> Hashable:
    """Equal for the repeats of one configuration: all settings and the window are the same."""
    if result.configuration is None:
        return (result.experiment, result.window, result.steps)
    return (*_settings(result.configuration), result.window, result.steps)


def _settings(configuration: Configuration) -> Iterable[Hashable]:
    for own in fields(Configuration):
        value = getattr(configuration, own.name)
        yield tuple(sorted(value.items())) if isinstance(value, Mapping) else value


def _with_reference(result: Result, figures: Sequence[Figure], release: str | None) -> Result:
    """``result`` with its reference and its own ratio, or with the verdict that it has without one."""
    if _has_gaps(result):
        return replace(result, verdict=INVALID, verdict_reason="the window is not complete")
    measured = result.time_mean_seconds
    if result.status != SUCCESS or measured is None:
        return result
    if result.configuration is None:
        figure, missing = None, not_described(result)
    elif result.configuration.loads:
        figure, missing = None, LOADS
    else:
        figure, missing = find_reference(result.configuration, figures, release)
    if figure is not None:
        result = replace(
            result,
            reference=reference_of(figure),
            mfu_reference_convention=mfu_as_published(figure, measured),
            reference_flops_convention=figure.flops_convention,
        )
    if (why := why_invalid(result)) is not None:
        return replace(result, verdict=INVALID, verdict_reason=why)
    if figure is None:
        return replace(result, verdict=NO_REFERENCE, verdict_reason=missing)
    return replace(
        result,
        ratio=figure.step_time_s / measured,
        same_window=same_window(result.window, result.steps, figure, result.first_iteration),
    )


def not_described(result: Result) -> str:
    """Why a log compares with nothing that does not say what it was."""
    return ": ".join(["the log does not say what it was", *([", ".join(result.not_said)] if result.not_said else [])])


def why_invalid(result: Result) -> str | None:
    """Why a measurement does not count, whatever it is compared with; None where it does."""
    profiled = result.configuration is not None and result.configuration.profile
    return "; ".join([*result.invalid, *([PROFILED] if profiled else [])]) or None


def _has_gaps(result: Result) -> bool:
    """Whether the run came to its last step, but not every iteration of the window is in its log."""
    at_end = result.max_iteration is not None and result.steps is not None and result.max_iteration >= result.steps - 1
    return result.status == FAILED and at_end and result.time_mean_seconds is None


def reference_of(figure: Figure) -> Reference:
    """What a result says of the figure that it compares with."""
    return Reference(
        release=figure.release, window=str(figure.window), step_time_s=figure.step_time_s, source=figure.source
    )


def _judged(result: Result, judgement: Judgement) -> Result:
    reason = judgement.reason
    if result.reference is not None and not result.same_window:
        reason += f"; measured over {_window(result.window)}, the published figure over {result.reference.window}"
    return replace(
        result,
        verdict=judgement.verdict,
        verdict_reason=reason,
        repeats=judgement.repeats,
        pooled_ratio=judgement.ratio,
        ratio_interval=judgement.interval,
    )


def _window(window: Window | None) -> str:
    return "no iteration" if window is None else str(window)
