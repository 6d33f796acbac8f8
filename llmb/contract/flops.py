# SPDX-License-Identifier: Apache-2.0
"""The floating-point operations that one training sample costs, by published formulas."""

import math
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from llmb.contract.model import (
    ModelShape,
    WindowShape,
    attention_weights,
    matrices,
    shared_width,
)
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

GQA = "gqa"
HYBRID = "hybrid-mamba2"
OLD = "mha-4h"
_MOE = "-moe"
MLA = "mla"
CONVENTIONS = (GQA, HYBRID, OLD, MLA, GQA + _MOE, MLA + _MOE, HYBRID + _MOE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Forward and backward operations for one sample, by part of the model."""

    #: The name of the formula. MFUs of different formulas cannot be compared.
    convention: str
    #: Operations by part of the model.
    terms: Mapping[str, float]
    #: The formula of each part, with its numbers.
    formulas: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name: object = self.convention
        parts: object = self.terms
        if not isinstance(name, str) or not name.strip():
            raise KeyFaultError(
                f"convention is {name!r}, not the name of a formula", "convention", value=name
            )
        if not isinstance(parts, Mapping) or not parts:
            raise KeyFaultError(
                f"terms is {parts!r}, not operations by part of the model", "terms", value=parts
            )
        for part, value in parts.items():
            is_invalid = isinstance(value, bool) or not isinstance(value, int | float)
            if is_invalid or not math.isfinite(value) or value < 0:
                raise KeyFaultError(
                    f"terms.{part} is {value!r}, not a number of operations",
                    "terms",
                    part,
                    value=value,
                )
        if not self.total > 0:
            raise KeyFaultError("terms has no operation", "terms", value=parts)

    @property
    def total(self) -> float:
        """The operations for one sample."""
        return float(sum(self.terms.values()))


def flops_convention(shape: ModelShape) -> str:
    """The name of the formula of ``flops_of`` for this shape."""
    base = HYBRID if shape.pattern is not None else GQA if shape.mla is None else MLA
    return base if shape.moe is None else base + _MOE


def model_flops(shape: ModelShape) -> float:
    """Return the operations for one sample, by the formula ``flops_convention(shape)``."""
    return flops_of(shape).total


@lru_cache(maxsize=256)  # thousands of runs have few shapes
def flops_of(shape: ModelShape) -> Flops:
    """The operations for one sample of ``seq_length`` tokens, by part of the model.

    ``gqa``: the formula of release 25.05: attention with query groups over the full, not the
    causal, square. ``mla``: latent attention over the causal half of the square, as Megatron-LM
    (num_floating_point_operations) and NeMo 2.3 (flops_formulas.deepseekv3) compute it, without the
    norms. ``-moe``: with the experts that a token uses, routed and shared. The router is omitted,
    as in both. For a hybrid, the formula published for Nemotron-H: multiply-accumulates of all
    layers and the head, six operations each.

    A layer with a window attends to the tokens in it alone; latent experts have their two
    projections; multi-token prediction has its layers, projections and uses of the head. Source:
    training/utils/flop_utils.py of Megatron-Bridge 0.6.0, which omits the projections of
    multi-token prediction in hybrids.
    """
    parts = _transformer(shape) if shape.pattern is None else _hybrid(shape)
    nonzero = {part: value for part, value in parts.items() if value[0]}
    terms = {part: term for part, (term, _) in nonzero.items()}
    formulas = {part: formula for part, (_, formula) in nonzero.items()}
    return Flops(convention=flops_convention(shape), terms=terms, formulas=formulas)


def causal_flops(shape: ModelShape) -> float:
    """Return the operations for one sample, with only the causal half of the attention's square.

    Megatron-Bridge and the releases of Megatron-LM since 2025 count so. ``mla`` does in any case.
    """
    if shape.mla is not None:
        return model_flops(shape)
    layers = shape.count_layers("*") if shape.pattern is not None else _depth(shape)
    if shape.window is not None:
        layers -= shape.window.layers  # a window is counted causally in any case
    return model_flops(shape) - 6.0 * layers * _attention_width(shape) * shape.seq_length**2


def model_flops_old(shape: ModelShape) -> float:
    """Return the operations by the formula ``mha-4h`` of releases 24.11 and 25.04.

    One query group per head, and ffn = 4·hidden.
    """
    attention = (
        24 * shape.layers * shape.hidden**2 + 12 * shape.layers * shape.hidden * shape.seq_length
    )
    mlp = 48 * shape.layers * shape.hidden**2
    return float(shape.seq_length * (attention + mlp + 6 * shape.vocab * shape.hidden))


_Term = tuple[float, str]


def _transformer(shape: ModelShape) -> dict[str, _Term]:
    seq, hidden, times = shape.seq_length, shape.hidden, 6 * matrices(shape)
    further = _depth(shape) - shape.layers
    layers = shape.expert_layers()
    sparse = sum(layers) + further * layers[-1]
    dense = _depth(shape) - sparse
    return {
        "attention": _attention(shape) if shape.mla is None else _latent_attention(shape),
        "MLP": (
            seq * times * dense * hidden * shape.ffn,
            f"{seq}·{times}·{dense}·{hidden}·{shape.ffn}",
        ),
        **_experts(shape, sparse),
        "embedding": (seq * 6 * shape.vocab * hidden, f"{seq}·6·{shape.vocab}·{hidden}"),
        **_further_heads(shape),
    }


def _depth(shape: ModelShape) -> int:
    """Return the layers of a transformer with those for multi-token prediction."""
    return shape.layers + (shape.mtp.depth if shape.mtp is not None else 0)


def _attention_width(shape: ModelShape) -> int:
    return shape.heads * (shape.head_dim or 0) or shape.hidden


def _further_heads(shape: ModelShape) -> dict[str, _Term]:
    """The projections and uses of the head of multi-token prediction."""
    if shape.mtp is None:
        return {}
    seq, hidden, depth = shape.seq_length, shape.hidden, shape.mtp.depth
    formula = f"{seq}·6·{depth}·{hidden}·({shape.vocab} + 2·{hidden})"
    return {"multi-token heads": (seq * 6 * depth * hidden * (shape.vocab + 2 * hidden), formula)}


def _attention(shape: ModelShape) -> _Term:
    if shape.window is not None:
        return _windowed_attention(shape, shape.window, _depth(shape))
    layers, hidden, seq = _depth(shape), shape.hidden, shape.seq_length
    groups = f"(1 + {shape.kv_groups}/{shape.heads} + {seq}/{hidden})"
    per_pair = 1 + shape.kv_groups / shape.heads + seq / hidden
    width = shape.heads * (shape.head_dim or 0)
    if width in (0, hidden):
        return seq * (12 * layers * hidden**2 * per_pair), f"{seq}·12·{layers}·{hidden}²·{groups}"
    # Heads that are wider or narrower than hidden / heads, as Megatron-LM's ratio of the query
    # projection.
    return seq * (
        12 * layers * hidden * width * per_pair
    ), f"{seq}·12·{layers}·{hidden}·{width}·{groups}"


def _windowed_attention(shape: ModelShape, window: WindowShape, layers: int) -> _Term:
    """Return the attention of ``layers`` of which some have the ``window``.

    Each token of a layer with a window attends to the mean number of tokens in it.
    """
    seq, hidden, width = shape.seq_length, shape.hidden, _attention_width(shape)
    tokens = min(window.tokens, seq)
    mean = tokens - tokens * (tokens - 1) / (2 * seq)
    full = layers - window.layers
    projections = 12 * layers * hidden * width * (1 + shape.kv_groups / shape.heads)
    value = seq * (projections + 12 * width * (full * seq + window.layers * mean))
    formula = (
        f"{seq}·12·{width}·({layers}·{hidden}·(1 + {shape.kv_groups}/{shape.heads})"
        f" + {full}·{seq} + {window.layers}·{mean:.1f})"
    )
    return value, formula


def _latent_attention(shape: ModelShape) -> _Term:
    mla = shape.mla
    assert mla is not None
    seq, layers = shape.seq_length, _depth(shape)
    # without the two norms
    projections = attention_weights(shape) - mla.kv_rank - (mla.q_rank or 0)
    width = mla.head_dim + mla.rope_dim + mla.value_dim
    value = 6 * layers * seq * (projections + seq * shape.heads * width / 2)
    return value, f"6·{layers} layers·{seq}·({projections} weights + {seq}·{shape.heads}·{width}/2)"


def _experts(shape: ModelShape, count: int) -> dict[str, _Term]:
    """The experts of ``count`` layers that a token uses."""
    moe = shape.moe
    if moe is None:
        return {}
    seq, hidden, times = shape.seq_length, shape.hidden, 6 * matrices(shape)
    width, shared = moe.ffn or shape.ffn, shared_width(shape)
    inner, latent = moe.latent or hidden, moe.latent or 0
    per_matrix = f"{seq}·{times}·{count}"
    return {
        "experts": (
            seq * times * count * inner * moe.top_k * width,
            f"{per_matrix}·{inner}·{moe.top_k}·{width}",
        ),
        "latent projections": (
            seq * 12 * count * hidden * latent,
            f"{seq}·12·{count}·{hidden}·{latent}",
        ),
        "shared experts": (
            seq * times * count * hidden * shared,
            f"{per_matrix}·{hidden}·{shared}",
        ),
    }


def _hybrid(shape: ModelShape) -> dict[str, _Term]:
    assert shape.mamba is not None
    seq, hidden, mamba = shape.seq_length, shape.hidden, shape.mamba
    inner, times = mamba.inner, matrices(shape)
    mlp = times * seq * hidden * shape.ffn
    projections = inner * 3 + mamba.groups * mamba.state * 2 + mamba.heads
    scan = inner * (mamba.chunk + 2 * mamba.state) + mamba.chunk * mamba.state * mamba.groups
    block = seq * (hidden * projections + scan)
    dense, mambas = (shape.count_layers(letter) for letter in "-M")
    return {
        "MLP": (6.0 * mlp * dense, f"6·{dense} layers·{times}·{seq}·{hidden}·{shape.ffn}"),
        **_experts(shape, shape.count_layers("E")),
        "attention": _hybrid_attention(shape, shape.count_layers("*")),
        "Mamba-2": (
            6.0 * block * mambas,
            f"6·{mambas} layers·(projections, scan and state of {seq} tokens)",
        ),
        "head": (6.0 * seq * hidden * shape.vocab, f"6·{seq}·{hidden}·{shape.vocab}"),
        **_further_heads(shape),
    }


def _hybrid_attention(shape: ModelShape, layers: int) -> _Term:
    if shape.window is not None:
        return _windowed_attention(shape, shape.window, layers)
    seq, hidden = shape.seq_length, shape.hidden
    head_dim = shape.head_dim or hidden // shape.heads
    query, groups = shape.heads * head_dim, shape.kv_groups * head_dim
    attention = 2 * seq * (hidden * (query + groups) + query * seq)
    width = f"{hidden}·({query} + {groups}) + {query}·{seq}"
    return 6.0 * attention * layers, f"6·{layers} layers·2·{seq}·({width})"
