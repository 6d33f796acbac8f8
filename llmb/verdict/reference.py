# SPDX-License-Identifier: Apache-2.0
"""Finds what a run can be compared with: published figures, or runs, of the same configuration. Pure.

Pools what repeats measured, and compares two sides: every ratio and its interval is computed here.

A ratio is about one metric, and better above 1 whichever way the metric is better. Repeats are pooled as the arithmetic
mean of what the metric measured in each run. So the step time of several runs is the total time divided by all steps,
as that of one run is; rates of training are those at this time.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from llmb.results.description import Configuration
from llmb.results.result import Metrics, Result
from llmb.stats import metrics
from llmb.stats.measure import Window
from llmb.stats.metrics import LOWER, Better, Measured, MetricSpec
from llmb.stats.statistics import Z95, Spread, relative_width, spread
from llmb.workload.published import Figure, release_order, releases

T = TypeVar("T")

_PARAMETERS, _UNSET = "parameters", "unset"
# What must be the same, in the order in which it is checked; and how it is printed.
SAME = {
    "workload": "{}",
    "model_size": "size {}",
    "gpu_type": "{}",
    "framework": "framework {}",
    "dtype": "{}",
    "scale": "{} GPUs",
    _PARAMETERS: "{}",  # each of them on its own
    "gbs": "global batch {}",
    "seq_length": "sequence length {}",
    "num_layers": "{} layers",
}
LOADS = "a run that loads a checkpoint has one step, which measures the load"


def find_reference(
    configuration: Configuration, figures: Sequence[Figure], release: str | None = None, metrics: Metrics | None = None
) -> tuple[Figure | None, str]:
    """The comparable figure of ``release``; where None, of the run's own image, else the newest.

    Without one, None and the reason.

    ``metrics``: what the run measured; None: any metric is comparable. A figure of the headline metric is preferred,
    then the first of the file.
    """
    found, missing = comparable(configuration, figures)
    if not found:
        return None, f"nothing is published {missing}"
    measured = found if metrics is None else [figure for figure in found if _is_measured(figure, metrics)]
    if not measured:
        names = ", ".join(dict.fromkeys(figure.metric.name for figure in found))
        return None, f"only {names} is published for it, which the run did not measure"
    chosen = [figure for figure in measured if release in (None, figure.release)]
    if not chosen:
        return None, f"release {release} publishes no figure for it; these do: {', '.join(releases(measured))}"
    headline = None if metrics is None else metrics.headline

    def order(one: Figure) -> tuple[object, ...]:
        return one.release == configuration.release, release_order(one.release), one.metric.name == headline

    return max(chosen, key=order), ""


class References:
    """Finds the reference of each of many results, once for all that have the same configuration and metrics."""

    def __init__(self, figures: Sequence[Figure], release: str | None = None) -> None:
        self.figures, self.release = figures, release
        self._known: dict[Hashable, tuple[Figure | None, str]] = {}

    def find(self, configuration: Configuration, metrics: Metrics) -> tuple[Figure | None, str]:
        """As ``find_reference``."""
        measured = tuple([(name, own.unit) for name, own in metrics.measured.items()])
        key = configuration.key, metrics.headline, measured
        if key not in self._known:
            self._known[key] = find_reference(configuration, self.figures, self.release, metrics)
        return self._known[key]


def _is_measured(figure: Figure, metrics: Metrics) -> bool:
    own = metrics.measured.get(figure.metric.name)
    return own is not None and own.unit == figure.metric.unit


def comparable(
    configuration: Configuration, others: Sequence[T], value: Callable[[T, str], Any] = getattr
) -> tuple[list[T], str]:
    """Those of ``others`` that have all of SAME in common with it; where there are none, what is missing.

    ``value`` reads a field of SAME of one of them.
    """
    left = list(others)
    for text, own, of_other in _checks(configuration, left, value):
        before, left = left, [other for other in left if of_other(other) == own]
        if not left and own is None:
            return [], "for an unknown GPU type" if text == SAME["gpu_type"] else f"without {text.format('').strip()}"
        if not left:  # as `for 96 GPUs, only for 64, 128 GPUs`
            words = {str(of_other(other)) for other in before}
            known = ", ".join(sorted(words, key=lambda word: (len(word), word)))
            return [], f"for {text.format(own)}" + (f", only for {text.format(known)}" if known else "")
    return left, ""


def _checks(
    configuration: Configuration, others: Sequence[T], value: Callable[[T, str], Any]
) -> Iterator[tuple[str, Any, Callable[[T], Any]]]:
    """What is checked, each parameter on its own: how it is printed, our value, and a function for that of another."""
    for name, text in SAME.items():
        own = getattr(configuration, name)
        if name != _PARAMETERS:
            yield text, own, partial(_field, value=value, name=name)
            continue
        for parameter in sorted({*own, *(key for other in others for key in value(other, name))}):
            get = partial(_parameter, value=value, name=parameter)
            yield f"{parameter}={{}}", own.get(parameter, _UNSET), get


def _field(other: T, *, value: Callable[[T, str], Any], name: str) -> Any:
    return value(other, name)


def _parameter(other: T, *, value: Callable[[T, str], Any], name: str) -> Any:
    return value(other, _PARAMETERS).get(name, _UNSET)


def not_described(result: Result) -> str:
    """Why a log without a known configuration is not compared."""
    missing = ", ".join(result.identity.missing)
    return "the log does not show its configuration" + (f": {missing}" if missing else "")


def same_window(window: Window | None, steps: int | None, figure: Figure, first: int = 0) -> bool:
    """Whether a run of ``steps`` steps, numbered from ``first``, was measured over the iterations of the figure."""
    return window is not None and window == figure.window.of(steps or figure.steps, first)


_MOST_WIDTH = 100.0
# What a run derives from its step time: a constant divided by it.
_BY_TIME = (metrics.TOKENS_PER_SECOND, metrics.TOKENS_PER_SECOND_PER_GPU, metrics.MODEL_TFLOPS_PER_GPU, metrics.MFU)


class Ratio(NamedTuple):
    """A ratio of two values, better above 1, and its 95 % interval (None where neither side has repeats)."""

    value: float
    interval: tuple[float, float] | None


def pooled(results: Iterable[Result], metric: str | None = None) -> Spread | None:
    """What all results that measured ``metric`` (None: the headline of each) measured; None where none did."""
    found = [(metric or one.metrics.headline, one) for one in results]
    known = [(name, one.metrics.measured[name].mean) for name, one in found if name in one.metrics.measured]
    return pool([value for _, value in known], known[0][0]) if known else None


def pool(values: Sequence[float], metric: str) -> Spread:
    """The values (1 or more) of ``metric`` in several runs, as one.

    Rates of training are those at the mean step time: their harmonic mean.
    """
    if metric not in _BY_TIME or not all(values):
        return spread(values)
    times = spread([1 / value for value in values])
    return Spread(1 / times.mean, times.deviation / times.mean**2, times.n)


def published(value: float) -> Spread:
    """A published value: one figure, whose spread is unknown."""
    return Spread(value, 0.0, 1)


def noise_of_pair(ours: Measured, theirs: Measured) -> float:
    """The factor by which noise may change the ratio of two single runs, from the spread of their steps (95 %).

    Uses the deviation of single steps, not of their mean: steps of one run resemble each other more than two runs do.
    """
    widths = [Z95 * one.std / one.mean for one in (ours, theirs) if one.mean]
    return math.exp(min(round(math.hypot(*widths), 9), _MOST_WIDTH))


def ratio_of(ours: Spread, theirs: Spread, better: Better) -> Ratio:
    """How ``ours`` compares with ``theirs``: above 1 is better.

    The interval is that of the ratio's logarithm (Student's t for each mean, both widths combined as the root of their
    summed squares): it never reaches 0, and exchanging the sides gives exactly its inverse.
    """
    ratio = theirs.mean / ours.mean if better == LOWER else ours.mean / theirs.mean
    value = round(ratio, 9)  # so that the last bit of a sum cannot change a verdict
    if ours.n < 2 and theirs.n < 2:
        return Ratio(value, None)
    factor = math.exp(round(math.hypot(relative_width(ours), relative_width(theirs)), 9))
    return Ratio(value, (value / factor, value * factor))


def metric_of(result: Result, name: str | None = None) -> MetricSpec:
    """The metric ``name`` (None: the headline) that a result measured."""
    name = name or result.metrics.headline
    own = result.metrics.measured[name]
    return MetricSpec(name=name, unit=own.unit, better=own.better)
