# SPDX-License-Identifier: Apache-2.0
"""Finds the published figures and the runs that a configuration may be compared with. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from llmb.contract.metrics import Measured
from llmb.contract.model_settings import setting_of
from llmb.contract.settings import Settings
from llmb.contract.switches import SettingValue
from llmb.core.values import dataclass
from llmb.plan.published import Figure, release_order, releases

T = TypeVar("T")

_PARAMETERS, _CHANGES, _UNSET = "parameters", "changes", "unset"
_TABLES = "the table's"
# What must be the same, in the order in which it is checked; and how it is printed.
SAME = {
    "workload": "{}",
    "model_size": "size {}",
    "gpu_type": "{}",
    "framework": "framework {}",
    "dtype": "{}",
    "scale": "{} GPUs",
    _PARAMETERS: "{}",  # each of them on its own
    _CHANGES: "{}",  # each of them too
    "gbs": "global batch {}",
    "seq_length": "sequence length {}",
    "num_layers": "{} layers",
}


def find_reference(
    configuration: Settings,
    figures: Sequence[Figure],
    release: str | None = None,
    measured: Mapping[str, Measured] | None = None,
    headline: str | None = None,
) -> tuple[Figure | None, str]:
    """Return the comparable figure of ``release``, or None and the reason.

    With ``release`` None, a figure of the run's own image is preferred, then the newest.
    ``measured`` has the run's own metrics: a figure of its ``headline`` is preferred, then the
    first of the file. With ``measured`` None, any metric is comparable.
    """
    if not any(figure.workload == configuration.workload for figure in figures):
        return None, f"nothing is published for {configuration.workload}"
    matches, missing = comparable(configuration, figures)
    if not matches:
        return None, f"nothing is published {missing}"
    usable = [figure for figure in matches if measured is None or _is_measured(figure, measured)]
    if not usable:
        names = ", ".join(dict.fromkeys(figure.metric.name for figure in matches))
        if other_units := _other_units(matches, measured or {}):
            return None, other_units
        return None, f"only {names} is published for it, which the run did not measure"
    chosen = [figure for figure in usable if release in (None, figure.release)]
    if not chosen:
        other_releases = ", ".join(releases(usable))
        return None, f"release {release} publishes no figure for it; these do: {other_releases}"

    def order(figure: Figure) -> tuple[object, ...]:
        return (
            figure.release == configuration.release,
            release_order(figure.release),
            figure.metric.name == headline,
        )

    return max(chosen, key=order), ""


def _is_measured(figure: Figure, measured: Mapping[str, Measured]) -> bool:
    value = measured.get(figure.metric.name)
    return value is not None and value.unit == figure.metric.unit


def _other_units(figures: Sequence[Figure], measured: Mapping[str, Measured]) -> str:
    """Return which metrics are published in another unit than the run's, empty without any."""
    words = {
        f"{metric.name} is published in {_unit(metric.unit)}, and the run measured"
        f" {_unit(measured[metric.name].unit)}": None
        for metric in (figure.metric for figure in figures)
        if metric.name in measured
    }
    return "; ".join(words)


def _unit(unit: str) -> str:
    return unit or "no unit"


def comparable(
    configuration: Settings, candidates: Sequence[T], value: Callable[[T, str], Any] = getattr
) -> tuple[list[T], str]:
    """Return the candidates that have all of SAME in common, and what is missing if there are none.

    ``value`` reads a field of SAME of a candidate.
    """
    matches = list(candidates)
    for check in _checks(configuration, matches, value):
        before, matches = (
            matches,
            [candidate for candidate in matches if check.read(candidate) == check.expected],
        )
        if not matches:
            return [], check.missing([check.read(candidate) for candidate in before])
    return matches, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One setting that must be the same."""

    #: How it is printed.
    text: str
    expected: Any
    #: Returns a candidate's value.
    read: Callable[[Any], Any]
    #: The framework's setting, by dotted path, that gave the run this value.
    setting: tuple[str, SettingValue] | None = None
    #: The words before the values of the others.
    owner: str = ""

    def missing(self, values: Sequence[Any]) -> str:
        """Return what is missing: ``for 96 GPUs, only for 64, 128 GPUs``."""
        words = sorted({str(value) for value in values}, key=lambda word: (len(word), word))
        if self.setting is not None:
            name, value = self.setting
            return f"for it: {name} is {value}, not {self.owner}{', '.join(words)}"
        if self.expected is None:
            if self.text == SAME["gpu_type"]:
                return "for an unknown GPU type"
            return f"without {self.text.format('').strip()}"
        named = f", only for {self.text.format(', '.join(words))}" if words else ""
        return f"for {self.text.format(self.expected)}{named}"


def _checks(
    configuration: Settings, candidates: Sequence[T], value: Callable[[T, str], Any]
) -> Iterator[_Check]:
    """Yield the checks in order. Each parameter and each change of the model is one of its own."""
    for name, text in SAME.items():
        expected = getattr(configuration, name)
        if name in (_PARAMETERS, _CHANGES):
            unset = _UNSET if name == _PARAMETERS else _TABLES
            keys = {*expected, *(key for candidate in candidates for key in value(candidate, name))}
            for key in sorted(keys):
                default = expected.get(key, unset)
                read = partial(_item, value=value, name=name, key=key, unset=unset)
                setting = None if name == _PARAMETERS else (key, default)
                yield _Check(text=f"{key}={{}}", expected=default, read=read, setting=setting)
            continue
        setting = setting_of(configuration.dotted, configuration.framework, name)
        read = partial(_field, value=value, name=name)
        owner = f"{_TABLES} " if value is getattr else ""
        yield _Check(text=text, expected=expected, read=read, setting=setting, owner=owner)


def _field(candidate: T, *, value: Callable[[T, str], Any], name: str) -> Any:
    return value(candidate, name)


def _item(candidate: T, *, value: Callable[[T, str], Any], name: str, key: str, unset: str) -> Any:
    return value(candidate, name).get(key, unset)
