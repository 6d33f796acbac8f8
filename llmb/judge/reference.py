# SPDX-License-Identifier: Apache-2.0
"""Find the references of results, pool repeats, and compute every ratio. Pure.

A ratio is about one metric, and better above 1 whichever way the metric is better. Repeats are
pooled as the arithmetic mean of their values of the metric. So the step time of several runs is the
total time divided by all steps, as for one run. Rates of training are the rates at this time.
"""

from collections.abc import Hashable, Iterable, Sequence

from llmb.contract import metrics
from llmb.contract.metrics import LOWER, TRAINING_BY_NAME, Better, MetricSpec
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.measure.result import Metrics, Result
from llmb.measure.statistics import Spread, spread
from llmb.plan.find_reference import find_reference
from llmb.plan.published import Figure

LOADS = "a run that loads a checkpoint has one step, which measures the load"


class References:
    """Find references of many results, once for each configuration and its metrics."""

    def __init__(self, figures: Sequence[Figure], release: str | None = None) -> None:
        self.figures, self.release = figures, release
        self._known: dict[Hashable, tuple[tuple[Figure, ...], str]] = {}

    def find(self, configuration: Settings, metrics: Metrics) -> tuple[tuple[Figure, ...], str]:
        """Find as ``find_reference`` does: the figure to compare with, then those of other metrics.

        The metrics of training follow from each other, so that one figure is enough for them.
        Returns no figure and the reason if nothing is comparable.
        """
        measured = tuple([(name, v.unit, v.judged) for name, v in metrics.measured.items()])
        key = configuration.key, metrics.headline, measured
        if key not in self._known:
            self._known[key] = self._find(configuration, metrics)
        return self._known[key]

    def _find(self, configuration: Settings, metrics: Metrics) -> tuple[tuple[Figure, ...], str]:
        judged = {
            name: value
            for name, value in metrics.measured.items()
            if value.judged or name == metrics.headline
        }
        headline = metrics.headline
        first, missing = find_reference(configuration, self.figures, self.release, judged, headline)
        if first is None:
            return (), missing
        further = []
        for name in judged:
            if name in TRAINING_BY_NAME or name == first.metric.name:
                continue
            candidates = [figure for figure in self.figures if figure.metric.name == name]
            figure, _ = find_reference(configuration, candidates, self.release, judged, name)
            further += [] if figure is None else [figure]
        return (first, *further), missing


def not_described(result: Result) -> str:
    """Return why a log without a known configuration is not compared."""
    missing = ", ".join(result.identity.missing)
    return "the log does not show its configuration" + (f": {missing}" if missing else "")


def same_window(window: Window | None, steps: int | None, figure: Figure, first: int = 0) -> bool:
    """Return True if a run of ``steps`` steps was measured over the figure's iterations.

    ``first`` is the number of its first iteration.
    """
    return window is not None and window == figure.window.of(steps or figure.steps, first)


# A constant divided by the step time, or by the energy of a step.
_RATES = (
    metrics.TOKENS_PER_SECOND,
    metrics.TOKENS_PER_SECOND_PER_GPU,
    metrics.MODEL_TFLOPS_PER_GPU,
    metrics.TFLOPS_PER_GPU,
    metrics.MFU,
    metrics.TOKENS_PER_JOULE,
)


def pooled(results: Iterable[Result], metric: str | None = None) -> Spread | None:
    """Pool the results that measured ``metric`` (None: each one's headline). None if none did."""
    named = [(metric or result.metrics.headline, result) for result in results]
    means = [
        (name, result.metrics.measured[name].mean)
        for name, result in named
        if name in result.metrics.measured
    ]
    return pool([value for _, value in means], means[0][0]) if means else None


def pool(values: Sequence[float], metric: str) -> Spread:
    """Pool the values (1 or more) of ``metric`` in several runs.

    Rates of training are pooled at the mean step time or energy: by their harmonic mean.
    """
    if metric not in _RATES or not all(values):
        return spread(values)
    times = spread([1 / value for value in values])
    return Spread(1 / times.mean, times.deviation / times.mean**2, times.n)


def relative(value: float, reference: float, better: Better) -> float:
    """Return the ratio of ``value`` to ``reference``, better above 1 whichever way is better."""
    return reference / value if better == LOWER else value / reference


def metric_of(result: Result, name: str | None = None) -> MetricSpec:
    """Return the metric ``name`` (None: the headline) that a result measured."""
    name = name or result.metrics.headline
    return result.metrics.measured[name].spec(name)
