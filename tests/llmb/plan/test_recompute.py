# SPDX-License-Identifier: Apache-2.0
"""Tests that printed figures are recomputed, and reported when they do not follow."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.flops import model_flops
from llmb.contract.gpus import known_types
from llmb.contract.spec import Workload
from llmb.contract.window import Window, days_to_train, mfu, model_tflops_per_gpu, tokens_per_second
from llmb.plan.published import Figure
from llmb.plan.recompute import DAYS, FLOPS, MFU, TOKENS, disagreements

KEY, SIZE = "pretrain_nemotron4", "15b"


@pytest.fixture
def workload(workloads: dict[str, Workload]) -> Workload:
    return workloads[KEY]


@pytest.fixture
def right(workload: Workload) -> Figure:
    """A figure whose printed values all follow, rounded as releases round them."""
    model, seconds, gbs, gpus = workload.sizes[SIZE].trained_model, 2.693, 256, 64
    flops = float(f"{model_flops(model):.3g}")
    rate = tokens_per_second(model.seq_length, gbs, seconds)
    peak = known_types()["h100"].peak_tflops["bf16"]
    return Figure(
        release="1",
        source="s",
        window=Window(11, 44),
        steps=50,
        workload=KEY,
        model_size=SIZE,
        dtype="bf16",
        gpu_type="h100",
        scale=gpus,
        gbs=gbs,
        seq_length=model.seq_length,
        num_layers=model.layers,
        value=seconds,
        tokens_per_second=round(rate),
        days_per_1t_tokens=round(days_to_train(1e12, rate), 2),
        mfu=round(mfu(model_tflops_per_gpu(gbs, flops, seconds, gpus), peak), 4),
        model_flops=flops,
        flops_convention="gqa",
    )


def quantities(figure: Figure, workload: Workload) -> list[str]:
    return [one.quantity for one in disagreements([figure], workload)]


def changed(figure: Figure, field: str, value: Any) -> Figure:
    return replace(figure, **{field: value})


def test_what_follows_is_not_reported(right: Figure, workload: Workload) -> None:
    assert (right.tokens_per_second, right.days_per_1t_tokens, right.mfu) == (389371, 29.73, 0.5782)
    assert disagreements([right], workload) == []


def test_what_is_not_printed_is_not_checked(right: Figure, workload: Workload) -> None:
    bare = replace(
        right, tokens_per_second=None, days_per_1t_tokens=None, mfu=None, model_flops=None
    )
    assert disagreements([bare], workload) == []


@pytest.mark.parametrize(
    ("field", "value", "quantity"),
    [
        ("tokens_per_second", 389373.0, TOKENS),
        ("days_per_1t_tokens", 29.75, DAYS),
        ("mfu", 0.5784, MFU),
    ],
)
def test_a_printed_value_that_is_off_by_more_than_a_digit(
    field: str, value: float, quantity: str, right: Figure, workload: Workload
) -> None:
    assert quantities(changed(right, field, value), workload) == [quantity]


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens_per_second", 389370.0), ("days_per_1t_tokens", 29.72), ("mfu", 0.5783)],
)
def test_a_digit_that_was_rounded_the_other_way_is_none(
    field: str, value: float, right: Figure, workload: Workload
) -> None:
    assert quantities(changed(right, field, value), workload) == []


def test_days_in_whole_numbers_are_checked_as_such(right: Figure, workload: Workload) -> None:
    assert quantities(replace(right, days_per_1t_tokens=30, days_digits=0), workload) == []
    assert quantities(replace(right, days_per_1t_tokens=31, days_digits=0), workload) == [DAYS]


def test_flops_of_another_formula_are_reported_with_the_mfu_that_they_gave(
    right: Figure, workload: Workload
) -> None:
    assert right.mfu is not None
    old = replace(right, model_flops=434.5e12, mfu=0.6526, flops_convention="mha-4h")
    assert quantities(old, workload) == []
    (one,) = disagreements([replace(old, flops_convention="gqa")], workload)
    assert (one.quantity, one.printed, one.note) == (FLOPS, 434.5e12, "")
    (one,) = disagreements([replace(old, flops_convention="their own")], workload)
    assert "'their own'" in one.note


def test_another_peak_is_named_where_it_explains_the_mfu(
    right: Figure, workload: Workload, wording: Callable[..., None]
) -> None:
    assert right.mfu is not None
    lower = replace(right, mfu=round(right.mfu * 989 / 1000, 4))
    (one,) = disagreements([replace(lower, peak_tflops=1000.0)], workload)
    assert one.quantity == MFU
    wording("list", one.note)
    (one,) = disagreements([replace(lower, peak_tflops=1200.0)], workload)
    assert one.note == ""


def test_an_mfu_without_a_known_peak_is_not_checked(right: Figure, workload: Workload) -> None:
    assert disagreements([replace(right, mfu=0.99, gpu_type="x100")], workload) == []
