# SPDX-License-Identifier: Apache-2.0
"""Published figures to compare runs with; each has its metric, release, window and configuration."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmb.errors import UsageError
from llmb.stats.measure import Window, mfu, model_tflops_per_gpu
from llmb.stats.metrics import STEP_TIME, TOKENS_PER_SECOND, TOKENS_PER_SECOND_PER_GPU, TRAINING, MetricSpec
from llmb.text.names import nearest
from llmb.workload.gpus import known_types, peak_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published ``value`` of a ``metric``, and the configuration that it is valid for.

    Fields have the same names as those of a job; with ``framework`` bridge, ``release`` is that of the image.
    ``window``: the measured iterations of ``steps``; ``parameters``: all of the workload's own. ``gbs``, ``seq_length``
    and ``num_layers``: None where no model is trained.

    Printed with a step time, None if not: ``tokens_per_second``, ``days_per_1t_tokens`` (with ``days_digits``
    decimals), ``mfu`` (a fraction), which was computed from ``model_flops`` of one sample, by the formula
    ``flops_convention``, and from ``peak_tflops`` if it is not the peak of gpus.yaml.
    """

    release: str
    source: str
    window: Window
    steps: int
    workload: str
    model_size: str
    dtype: str
    gpu_type: str
    scale: int
    framework: str = "nemo"
    metric: MetricSpec = TRAINING[0]
    value: float
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    gbs: int | None = None
    seq_length: int | None = None
    num_layers: int | None = None
    tokens_per_second: float | None = None
    days_per_1t_tokens: float | None = None
    days_digits: int = 2
    mfu: float | None = None
    model_flops: float | None = None
    flops_convention: str | None = None
    peak_tflops: float | None = None

    @property
    def step_time_s(self) -> float | None:
        """The published step time in seconds; None for another metric."""
        return self.value if self.metric.name == STEP_TIME else None

    @property
    def tokens_rate(self) -> float | None:
        """Tokens per second of one GPU, as published or from the step time; None where neither is published."""
        if self.metric.name == TOKENS_PER_SECOND_PER_GPU:
            return self.value
        if self.metric.name == TOKENS_PER_SECOND:
            return self.value / self.scale
        if self.step_time_s is None or self.gbs is None or self.seq_length is None:
            return None
        return self.gbs * self.seq_length / self.step_time_s / self.scale

    @property
    def seconds_per_step(self) -> float | None:
        """The step time, as published or from the rate of tokens; None where neither is published."""
        rate = self.tokens_rate
        if self.step_time_s is not None or rate is None or self.gbs is None or self.seq_length is None:
            return self.step_time_s
        return self.gbs * self.seq_length / rate / self.scale


def release_order(release: str) -> tuple[tuple[int, str], ...]:
    """The sort key of a release from old to new, by number: 25.10 follows 25.9."""
    parts = re.findall(r"\d+|[^\W\d_]+", release.lower())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def peak_of(figure: Figure) -> float | None:
    """The dense peak of one GPU for the figure's dtype in gpus.yaml, in TFLOPS; None if unknown."""
    known = known_types().get(figure.gpu_type)
    return known.peak_tflops.get(peak_dtype(figure.dtype)) if known else None


def mfu_as_published(figure: Figure, seconds: float) -> float | None:
    """The MFU, a fraction, of a step of ``seconds`` with the FLOPs and the peak of ``figure``; None without them."""
    peak = figure.peak_tflops or peak_of(figure)
    if figure.model_flops is None or figure.gbs is None or peak is None:
        return None
    return mfu(model_tflops_per_gpu(figure.gbs, figure.model_flops, seconds, figure.scale), peak)


def raises_vboost(release: str | None) -> bool:
    """Whether the launch scripts of a release raised the GPUs' vboost; None: NeMo 2.3.1's scripts, which did."""
    return release is None or release_order("25.04") <= release_order(release)


def releases(figures: Iterable[Figure]) -> list[str]:
    return sorted({figure.release for figure in figures}, key=release_order)


def check_release(release: str, figures: Iterable[Figure]) -> None:
    """Raise UsageError, with the known releases, if ``release`` has no figure."""
    known = releases(figures)
    if release not in known:
        close = nearest(release, known)
        meant = f"did you mean '{close}'?  " if close is not None else ""
        hint = f"{meant}known: {', '.join(known)}" if known else "no plugin has published figures"
        message = f"no figure was published with release '{release}'"
        raise UsageError(message, hint=hint, code="release-unknown", value=release)
