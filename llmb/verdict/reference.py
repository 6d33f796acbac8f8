# SPDX-License-Identifier: Apache-2.0
"""Finds what a run can be compared with: published figures, or runs, of the same configuration. Pure."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from llmb.results.description import Configuration
from llmb.results.result import Metrics, Result
from llmb.stats.measure import Window
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
