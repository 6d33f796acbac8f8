# SPDX-License-Identifier: Apache-2.0
"""Does the sums of published tables again: which printed figures do not follow from their step times. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from llmb.stats.measure import days_to_train, mfu, model_tflops_per_gpu, tokens_per_second
from llmb.workload.model import GQA, HYBRID, OLD, ModelShape, model_flops, model_flops_old
from llmb.workload.published import Figure, peak_of
from llmb.workload.spec import Workload

TOKENS, DAYS, FLOPS, MFU = "tokens/s", "days for 1T tokens", "model FLOPs", "MFU %"
FLOPS_TOLERANCE = 0.005  # a fraction: releases print them with three digits
TOLERANCE = f"one unit of the last printed digit; {100 * FLOPS_TOLERANCE:g} % for model FLOPs, printed with 3 digits"
GQA_16 = "gqa-16"
_ALMOST = 1e-9  # a sum's last bit decides nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A printed value of ``figure`` that is off by more than ``tolerance`` from what follows; ``note``: how it came."""

    figure: Figure
    quantity: str
    printed: float
    recomputed: float
    tolerance: float
    note: str = ""


def disagreements(figures: Iterable[Figure], workload: Workload) -> list[Disagreement]:
    """The printed values of ``figures`` that do not follow, in their order.

    Tokens per second and days follow from the step time; model FLOPs from the model's shape by the formula that their
    convention names; MFU from those printed FLOPs, the step time and the dense peak of gpus.yaml.
    """
    return [
        found
        for figure in figures
        for found in _checked(figure, workload.sizes[figure.model_size].model)
        if abs(found.printed - found.recomputed) > found.tolerance + _ALMOST
    ]


def _checked(figure: Figure, model: ModelShape) -> Iterator[Disagreement]:
    rate = tokens_per_second(figure.seq_length, figure.gbs, figure.step_time_s)
    if figure.tokens_per_second is not None:
        yield Disagreement(
            figure=figure, quantity=TOKENS, printed=figure.tokens_per_second, recomputed=rate, tolerance=1
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
    yield _flops(figure, model if model.layers == figure.num_layers else replace(model, layers=figure.num_layers))
    if (peak := peak_of(figure)) is not None:
        note = ""
        if figure.peak_tflops is not None and abs(100 * figure.mfu - _percent(figure, figure.peak_tflops)) < 0.01:
            note = f"follows from a peak of {figure.peak_tflops:g} TFLOPS, not {peak:g}"
        yield Disagreement(
            figure=figure,
            quantity=MFU,
            printed=round(100 * figure.mfu, 2),
            recomputed=_percent(figure, peak),
            tolerance=0.01,
            note=note,
        )


def _percent(figure: Figure, peak: float) -> float:
    assert figure.model_flops is not None
    return 100 * mfu(model_tflops_per_gpu(figure.gbs, figure.model_flops, figure.step_time_s, figure.scale), peak)


def _flops(figure: Figure, model: ModelShape) -> Disagreement:
    """The printed FLOPs of one sample beside those of the model's own shape."""
    assert figure.model_flops is not None
    own = model_flops_old(model) if figure.flops_convention == OLD else model_flops(model)
    note = ""
    if figure.flops_convention == GQA_16 and model.pattern is None:
        note = f"follows with 16 query groups, the model has {model.kv_groups}"
    elif figure.flops_convention not in (GQA, HYBRID, OLD):
        note = f"the formula '{figure.flops_convention}' is not known here"
    return Disagreement(
        figure=figure,
        quantity=FLOPS,
        printed=figure.model_flops,
        recomputed=own,
        tolerance=own * FLOPS_TOLERANCE,
        note=note,
    )
