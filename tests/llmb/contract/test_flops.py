# SPDX-License-Identifier: Apache-2.0
"""Tests parameters and FLOPs of mixtures of experts against papers and the formulas of NeMo and
Megatron-LM.
"""

import math
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.flops import Flops, causal_flops, flops_convention, flops_of, model_flops
from llmb.contract.model import (
    MambaShape,
    MlaShape,
    ModelShape,
    MoeShape,
    MtpShape,
    WindowShape,
    parameters,
)
from llmb.errors import KeyFaultError

MIXTRAL = ModelShape(
    architecture="mixtral",
    layers=32,
    hidden=4096,
    ffn=14336,
    heads=32,
    kv_groups=8,
    gated=True,
    vocab=32000,
    seq_length=4096,
    moe=MoeShape(experts=8, top_k=2),
)
DEEPSEEK_V3 = ModelShape(
    architecture="deepseek",
    layers=61,
    hidden=7168,
    ffn=18432,
    heads=128,
    kv_groups=128,
    gated=True,
    vocab=129280,
    seq_length=4096,
    moe=MoeShape(experts=256, top_k=8, ffn=2048, shared_experts=1, dense_layers=3),
    mla=MlaShape(q_rank=1536, kv_rank=512, head_dim=128, rope_dim=64, value_dim=128),
)
GPT_OSS = ModelShape(
    architecture="gpt_oss",
    layers=36,
    hidden=2880,
    ffn=2880,
    heads=64,
    head_dim=64,
    kv_groups=8,
    gated=True,
    vocab=201088,
    seq_length=4096,
    moe=MoeShape(experts=128, top_k=4),
    window=WindowShape(tokens=128, layers=18),
)
NEMOTRON_3_SUPER = ModelShape(
    architecture="nemotronh",
    layers=88,
    hidden=4096,
    ffn=2688,
    heads=32,
    head_dim=128,
    kv_groups=2,
    vocab=131072,
    seq_length=8192,
    pattern=(
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
    ),
    mamba=MambaShape(heads=128, head_dim=64, expand=2, chunk=128, state=128, groups=8),
    moe=MoeShape(experts=512, top_k=22, latent=1024, shared_experts=1, shared_ffn=5376),
    mtp=MtpShape(depth=2, pattern="*E"),
)

HYBRID = replace(
    NEMOTRON_3_SUPER, layers=14, ffn=16384, pattern="M-*-M-*-M-*-*-", moe=None, mtp=None
)


# Billions, as published.
@pytest.mark.parametrize(
    ("shape", "total"),
    [(MIXTRAL, 46.7), (DEEPSEEK_V3, 671.0), (GPT_OSS, 116.8), (NEMOTRON_3_SUPER, 120.7)],
)
def test_parameters_as_the_papers_have_them(shape: ModelShape, total: float) -> None:
    assert round(parameters(shape) / 1e9, 1) == total


def test_mixtral_has_the_parameters_of_its_files_on_the_model_hub() -> None:
    assert parameters(MIXTRAL) == 46_702_792_704


def test_the_convention_of_a_dense_model() -> None:
    assert flops_convention(replace(MIXTRAL, moe=None)) == "gqa"


def test_flops_of_mixtral_by_the_formula_of_nemo() -> None:
    # nemo.utils.flops_formulas.mixtral: s·L·h²·(12 + 12·g/a + 18·k·f/h + 12·s/h + 6·v/(L·h))
    seq, layers, hidden = 4096, 32, 4096
    each = (
        12
        + 12 * 8 / 32
        + 18 * 2 * 14336 / hidden
        + 12 * seq / hidden
        + 6 * 32000 / (layers * hidden)
    )
    assert model_flops(MIXTRAL) == pytest.approx(seq * layers * hidden**2 * each, rel=1e-12)
    assert flops_convention(MIXTRAL) == "gqa-moe"


def test_flops_of_deepseek_v3_by_the_formula_of_megatron() -> None:
    # num_floating_point_operations of Megatron-LM for latent attention: 6 operations for each
    # weight that a token uses and for half of the square of attention. It counts the two norms of
    # the latent vectors too, 2,048 weights a layer.
    weights = (
        7168 * 1536 + 1536 * 128 * 192 + 7168 * 512 + 512 * 128 * 256 + 7168 * 64 + 128 * 128 * 7168
    )
    square = 4096 * 128 * 192 / 2 + 4096 * 128 * 128 / 2
    mlp = 3 * 3 * 7168 * 18432 + 58 * 3 * 7168 * 2048 * (8 + 1)
    assert model_flops(DEEPSEEK_V3) == 4096 * 6 * (61 * (weights + square) + mlp + 7168 * 129280)
    megatron = 4096 * 6 * (61 * (weights + 512 + 1536 + square) + mlp + 7168 * 129280)
    assert model_flops(DEEPSEEK_V3) == pytest.approx(megatron, rel=1e-5)
    assert flops_convention(DEEPSEEK_V3) == "mla-moe"


# Megatron-Bridge 0.6.0 computed these for NVIDIA's own configurations (flop_utils.py), per token. It
# has the norms too, and for hybrids no projections of multi-token prediction: 0.5 % of the last.
@pytest.mark.parametrize(
    ("shape", "printed", "share"),
    [
        (replace(DEEPSEEK_V3, mtp=MtpShape(depth=1)), 259_992_950_784, 1e-5),
        (GPT_OSS, 32_630_404_608, 1e-9),
        (NEMOTRON_3_SUPER, 84_727_037_952, 0.005),
    ],
    ids=["multi-token prediction", "windows", "latent experts"],
)
def test_flops_as_megatron_bridge_prints_them(
    shape: ModelShape, printed: float, share: float
) -> None:
    assert causal_flops(shape) / shape.seq_length == pytest.approx(printed, rel=share)


def test_a_window_as_wide_as_the_sequence_is_the_causal_square() -> None:
    wide = replace(GPT_OSS, window=WindowShape(tokens=4096, layers=36))
    full = replace(GPT_OSS, window=None)
    assert causal_flops(wide) == pytest.approx(causal_flops(full), rel=1e-3)
    assert model_flops(GPT_OSS) < model_flops(full)


@pytest.mark.parametrize("mtp", [None, MtpShape(depth=2, pattern="*-")])
def test_a_window_of_a_hybrid_saves_the_pairs_of_tokens_outside(mtp: MtpShape | None) -> None:
    """A pair of tokens costs 6 operations for each number of its query and of its value."""
    full = replace(HYBRID, mtp=mtp)
    windowed = replace(full, window=WindowShape(tokens=128, layers=3))
    seq, pair = full.seq_length, 12 * full.heads * 128
    inside = sum(min(position + 1, 128) for position in range(seq))
    saved = model_flops(full) - model_flops(windowed)
    assert saved == pytest.approx(3 * pair * (seq**2 - inside), rel=1e-9)
    # of the causal half, without the diagonal
    saved = causal_flops(full) - causal_flops(windowed)
    assert saved == pytest.approx(3 * pair * (seq**2 / 2 - inside), rel=1e-9)
    assert parameters(windowed) == parameters(full)


def test_a_window_of_a_hybrid_as_wide_as_the_sequence_is_the_causal_square() -> None:
    wide = replace(HYBRID, window=WindowShape(tokens=8192, layers=4))
    assert causal_flops(wide) == pytest.approx(causal_flops(HYBRID), rel=1e-3)
    assert model_flops(wide) == causal_flops(wide)


def test_a_gate_of_a_hybrid_costs_its_matrices() -> None:
    """Of 6 operations for each further weight."""
    gated = replace(HYBRID, gated=True)
    weights = 7 * HYBRID.hidden * HYBRID.ffn  # of seven layers
    assert model_flops(gated) - model_flops(HYBRID) == 6 * HYBRID.seq_length * weights
    assert parameters(gated) - parameters(HYBRID) == weights
    assert flops_of(gated).formulas["MLP"] == "6·7 layers·3·8192·4096·16384"


def test_further_predictions_cost_their_layer_and_the_head() -> None:
    """As one more layer, its share of the head and the projection of two hidden vectors."""
    further = model_flops(replace(MIXTRAL, mtp=MtpShape(depth=1))) - model_flops(MIXTRAL)
    layer = model_flops(replace(MIXTRAL, layers=33)) - model_flops(MIXTRAL)
    assert further - layer == pytest.approx(4096 * 6 * 4096 * (32000 + 2 * 4096), rel=1e-9)
    assert parameters(replace(MIXTRAL, mtp=MtpShape(depth=1))) == parameters(MIXTRAL)


@pytest.mark.parametrize(
    ("shape", "changes", "path"),
    [
        (GPT_OSS, {"window": WindowShape(tokens=128, layers=37)}, ("window", "layers")),
        (DEEPSEEK_V3, {"window": WindowShape(tokens=128, layers=1)}, ("window", "layers")),
        (MIXTRAL, {"mtp": MtpShape(depth=1, pattern="*E")}, ("mtp", "pattern")),
        (NEMOTRON_3_SUPER, {"mtp": MtpShape(depth=1)}, ("mtp", "pattern")),
        (NEMOTRON_3_SUPER, {"mtp": MtpShape(depth=1, pattern="*X")}, ("mtp", "pattern")),
    ],
)
def test_windows_and_predictions_that_cannot_be(
    shape: ModelShape, changes: dict[str, Any], path: tuple[str, ...]
) -> None:
    with pytest.raises(KeyFaultError) as caught:
        replace(shape, **changes)
    assert caught.value.path == path


def test_only_experts_that_a_token_uses_cost_operations() -> None:
    more = replace(MIXTRAL, moe=MoeShape(experts=64, top_k=2))
    assert (model_flops(more), parameters(more) > 6 * parameters(MIXTRAL)) == (
        model_flops(MIXTRAL),
        True,
    )
    terms = flops_of(replace(MIXTRAL, moe=MoeShape(experts=8, top_k=4))).terms
    assert terms["experts"] == 2 * flops_of(MIXTRAL).terms["experts"]


def test_as_many_operations_as_a_dense_model_of_the_same_active_width() -> None:
    narrow = replace(
        MIXTRAL, moe=MoeShape(experts=8, top_k=2, ffn=4096, shared_experts=2, shared_ffn=3072)
    )
    assert model_flops(narrow) == pytest.approx(model_flops(replace(MIXTRAL, moe=None)), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, "EEEEEE"),
        ({"dense_layers": 2}, "--EEEE"),
        ({"every": 2}, "E-E-E-"),  # as moe_layer_freq 2 of Megatron
        ({"dense_layers": 1, "every": 2}, "-E-E-E"),
        ({"dense_layers": 5}, "-----E"),
    ],
)
def test_which_layers_have_experts(changes: dict[str, int], layers: str) -> None:
    shape = replace(MIXTRAL, layers=6, moe=MoeShape(experts=8, top_k=2, **changes))
    assert "".join("E" if one else "-" for one in shape.expert_layers()) == layers
    every = model_flops(replace(MIXTRAL, layers=6))
    without = model_flops(replace(MIXTRAL, layers=6, moe=None))
    wanted = (layers.count("E") * every + layers.count("-") * without) / 6
    assert model_flops(shape) == pytest.approx(wanted, rel=1e-12)


def test_explained_terms_have_their_numbers() -> None:
    flops = flops_of(DEEPSEEK_V3)
    assert (
        [*flops.terms]
        == [*flops.formulas]
        == ["attention", "MLP", "experts", "shared experts", "embedding"]
    )
    assert flops.formulas["experts"] == "4096·18·58·7168·8·2048"
    for part in ("MLP", "experts", "shared experts", "embedding"):
        assert math.prod(map(int, flops.formulas[part].split("·"))) == flops.terms[part]


@pytest.mark.parametrize(
    ("moe", "path"),
    [
        ({"experts": 8, "top_k": 9}, ("top_k",)),
        ({"experts": 0, "top_k": 1}, ("experts",)),
        ({"experts": 8, "top_k": 2, "shared_experts": -1}, ("shared_experts",)),
        ({"experts": 8, "top_k": 2, "shared_ffn": 64}, ("shared_ffn",)),
    ],
)
def test_experts_that_cannot_be(moe: dict[str, int], path: tuple[str, ...]) -> None:
    with pytest.raises(KeyFaultError) as caught:
        MoeShape(**moe)
    assert caught.value.path == path


def test_a_model_without_a_layer_of_experts_is_refused() -> None:
    with pytest.raises(KeyFaultError) as caught:
        replace(MIXTRAL, layers=2, moe=MoeShape(experts=8, top_k=2, dense_layers=2))
    assert caught.value.path == ("moe", "dense_layers")


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"convention": "own", "terms": {"all": float("nan")}}, ("terms", "all")),
        ({"convention": "own", "terms": {"all": -1.0}}, ("terms", "all")),
        ({"convention": "own", "terms": {"all": float("inf")}}, ("terms", "all")),
        ({"convention": "own", "terms": {"all": "1e15"}}, ("terms", "all")),
        ({"convention": "own", "terms": {"all": True}}, ("terms", "all")),
        ({"convention": "own", "terms": {"all": 0}}, ("terms",)),
        ({"convention": "own", "terms": {}}, ("terms",)),
        ({"convention": "", "terms": {"all": 1}}, ("convention",)),
        ({"convention": None, "terms": {"all": 1}}, ("convention",)),
        ({"convention": "own", "terms": 1e15}, ("terms",)),
    ],
)
def test_operations_that_cannot_be(values: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(KeyFaultError) as caught:
        Flops(**values)
    assert caught.value.path == path
