# SPDX-License-Identifier: Apache-2.0
"""Finds what a configuration compares with, or says what keeps everything else from comparing with it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from llmb.results.configuration import Configuration
from llmb.stats.measure import Window
from llmb.workload.published import Figure, release_order, releases

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
