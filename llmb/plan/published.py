# SPDX-License-Identifier: Apache-2.0
"""Published figures to compare runs with, each with metric, release, window, configuration."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from llmb.contract.gpus import known_types, peak_at
from llmb.contract.metrics import (
    STEP_TIME,
    TOKENS_PER_SECOND,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING,
    MetricSpec,
)
from llmb.contract.switches import SettingValue
from llmb.contract.window import Window, mfu, model_tflops_per_gpu
from llmb.core.names import nearest
from llmb.core.values import dataclass
from llmb.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published ``value`` of a ``metric``, and the configuration that it is valid for.

    Fields have the same names as those of a job.
    """

    #: With ``framework`` bridge, the release of the image.
    release: str
    source: str
    #: The measured iterations of ``steps``.
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
    #: All of the workload's own.
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: None if no model is trained.
    gbs: int | None = None
    #: None if no model is trained.
    seq_length: int | None = None
    #: None if no model is trained.
    num_layers: int | None = None
    #: As printed with a step time, None if not.
    tokens_per_second: float | None = None
    #: As printed with a step time, None if not.
    days_per_1t_tokens: float | None = None
    #: The decimals of ``days_per_1t_tokens``.
    days_digits: int = 2
    #: As printed with a step time, a fraction; None if not.
    mfu: float | None = None
    #: The operations of one sample from which ``mfu`` was computed.
    model_flops: float | None = None
    #: The formula of ``model_flops``.
    flops_convention: str | None = None
    #: The peak of ``mfu`` if it is not the peak of gpus.yaml.
    peak_tflops: float | None = None

    @property
    def dotted(self) -> Mapping[str, SettingValue]:
        """Settings of the framework that differ from the workload's table: none."""
        return {}

    changes = dotted

    @property
    def step_time_s(self) -> float | None:
        """Return the published step time in seconds, or None for another metric."""
        return self.value if self.metric.name == STEP_TIME else None

    @property
    def tokens_rate(self) -> float | None:
        """Return tokens per second of one GPU, as published or from the step time, else None."""
        if self.metric.name == TOKENS_PER_SECOND_PER_GPU:
            return self.value
        if self.metric.name == TOKENS_PER_SECOND:
            return self.value / self.scale
        if self.step_time_s is None or self.gbs is None or self.seq_length is None:
            return None
        return self.gbs * self.seq_length / self.step_time_s / self.scale

    @property
    def seconds_per_step(self) -> float | None:
        """Return the step time, as published or from the rate of tokens, else None."""
        rate = self.tokens_rate
        if (
            self.step_time_s is not None
            or rate is None
            or self.gbs is None
            or self.seq_length is None
        ):
            return self.step_time_s
        return self.gbs * self.seq_length / rate / self.scale


def release_order(release: str) -> tuple[tuple[int, str], ...]:
    """The sort key of a release from old to new, by number: 25.10 follows 25.9."""
    parts = re.findall(r"\d+|[^\W\d_]+", release.lower())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def peak_of(figure: Figure) -> float | None:
    """Return the dense peak TFLOPS of one GPU for the figure's dtype, or None if unknown."""
    return peak_at(known_types().get(figure.gpu_type), figure.dtype)


def mfu_as_published(figure: Figure, seconds: float) -> float | None:
    """Return the MFU of a step of ``seconds`` with the FLOPs and the peak of ``figure``.

    A fraction, or None if either is unknown.
    """
    peak = figure.peak_tflops or peak_of(figure)
    if figure.model_flops is None or figure.gbs is None or peak is None:
        return None
    return mfu(model_tflops_per_gpu(figure.gbs, figure.model_flops, seconds, figure.scale), peak)


def raises_vboost(release: str | None) -> bool:
    """Return True if a release's launch scripts raised the GPUs' vboost. None is NeMo 2.3.1."""
    return release is None or release_order("25.04") <= release_order(release)


def releases(figures: Iterable[Figure]) -> list[str]:
    return sorted({figure.release for figure in figures}, key=release_order)


def check_release(release: str, figures: Iterable[Figure]) -> None:
    """Raise UsageError, with the known releases, if ``release`` has no figure."""
    published = releases(figures)
    if release not in published:
        close = nearest(release, published)
        suggestion = f"did you mean '{close}'?  " if close is not None else ""
        hint = (
            f"{suggestion}known: {', '.join(published)}"
            if published
            else "no plugin has published figures"
        )
        message = f"no figure was published with release '{release}'"
        raise UsageError(message, hint=hint, code="release-unknown", value=release)
