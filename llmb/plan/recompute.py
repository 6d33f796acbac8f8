# SPDX-License-Identifier: Apache-2.0
"""Recomputes what releases print with step times: tokens/s, days, model FLOPs, MFU. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from llmb.contract.flops import CONVENTIONS, OLD, Flops, model_flops, model_flops_old
from llmb.contract.model import ModelShape
from llmb.contract.spec import Workload
from llmb.contract.window import days_to_train, mfu, model_tflops_per_gpu, tokens_per_second
from llmb.core.values import dataclass
from llmb.plan.published import Figure, peak_of

TOKENS, DAYS, FLOPS, MFU = "tokens/s", "days for 1T tokens", "model FLOPs", "MFU %"
FLOPS_TOLERANCE = 0.005  # a fraction: releases print them with three digits
TOLERANCE = (
    f"one unit of the last printed digit; {100 * FLOPS_TOLERANCE:g} % for model FLOPs, printed with"
    " 3 digits"
)
GQA_16 = "gqa-16"
_ALMOST = 1e-9  # rounding of the last bit is ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A printed value of ``figure`` that differs by more than ``tolerance``."""

    figure: Figure
    quantity: str
    printed: float
    recomputed: float
    tolerance: float
    #: The reason, if it is known.
    note: str = ""


def disagreements(
    figures: Iterable[Figure],
    workload: Workload,
    flops: Callable[[ModelShape], Flops | None] = lambda _: None,
) -> list[Disagreement]:
    """Return the printed values of ``figures`` that do not follow, in their order.

    Tokens per second and days follow from the step time. Model FLOPs follow from the model's shape
    by the formula that their convention names. MFU follows from the printed FLOPs, the step time
    and the dense peak of gpus.yaml. ``flops``: of one sample by the plugin's own formula, None for
    llmb's.
    """
    return [
        disagreement
        for figure in figures
        if figure.step_time_s is not None  # figures of other metrics have no other printed values
        for disagreement in _checked(figure, workload.sizes[figure.model_size].trained_model, flops)
        if abs(disagreement.printed - disagreement.recomputed) > disagreement.tolerance + _ALMOST
    ]


def _checked(
    figure: Figure, model: ModelShape, flops: Callable[[ModelShape], Flops | None]
) -> Iterator[Disagreement]:
    seconds, gbs = figure.seconds_per_step, figure.gbs
    if seconds is None or gbs is None or figure.seq_length is None or figure.num_layers is None:
        return
    rate = tokens_per_second(figure.seq_length, gbs, seconds)
    if figure.tokens_per_second is not None:
        yield Disagreement(
            figure=figure,
            quantity=TOKENS,
            printed=figure.tokens_per_second,
            recomputed=rate,
            tolerance=1,
        )
    if figure.days_per_1t_tokens is not None:
        yield Disagreement(
            figure=figure,
            quantity=DAYS,
            printed=figure.days_per_1t_tokens,
            recomputed=days_to_train(1e12, rate),
            tolerance=10.0**-figure.days_digits,
        )
    if figure.mfu is None or figure.model_flops is None:
        return
    model = model if model.layers == figure.num_layers else replace(model, layers=figure.num_layers)
    yield _flops(figure, model, flops(model))
    if (peak := peak_of(figure)) is not None:
        note, tflops = "", model_tflops_per_gpu(gbs, figure.model_flops, seconds, figure.scale)
        if (
            figure.peak_tflops is not None
            and abs(100 * figure.mfu - 100 * mfu(tflops, figure.peak_tflops)) < 0.01
        ):
            note = f"follows from a peak of {figure.peak_tflops:g} TFLOPS, not {peak:g}"
        yield Disagreement(
            figure=figure,
            quantity=MFU,
            printed=round(100 * figure.mfu, 2),
            recomputed=100 * mfu(tflops, peak),
            tolerance=0.01,
            note=note,
        )


def _flops(figure: Figure, model: ModelShape, own_formula: Flops | None) -> Disagreement:
    """Compare the printed FLOPs of one sample with those of the model's shape."""
    assert figure.model_flops is not None
    recomputed = model_flops_old(model) if figure.flops_convention == OLD else model_flops(model)
    note = ""
    if figure.flops_convention == GQA_16 and model.pattern is None:
        note = f"follows with 16 query groups, the model has {model.kv_groups}"
    elif own_formula is not None and figure.flops_convention == own_formula.convention:
        recomputed = own_formula.total
    elif figure.flops_convention not in CONVENTIONS:
        note = f"the formula '{figure.flops_convention}' is unknown"
    return Disagreement(
        figure=figure,
        quantity=FLOPS,
        printed=figure.model_flops,
        recomputed=recomputed,
        tolerance=recomputed * FLOPS_TOLERANCE,
        note=note,
    )
