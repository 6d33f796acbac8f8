# SPDX-License-Identifier: Apache-2.0
"""The shape of a model, and the floating-point operations that one training sample costs."""

from dataclasses import dataclass, fields
from typing import Any

from llmb.errors import KeyFaultError


def require_positive(value: Any, *, unless: str = "") -> None:
    """Raise KeyFaultError for the first whole number of a dataclass below 1, except the field ``unless``."""
    for field in fields(value):
        number = getattr(value, field.name)
        if type(number) is int and number < 1 and field.name != unless:
            raise KeyFaultError(f"'{field.name}' must be 1 or more, not {number}", field.name, value=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaShape:
    """A Mamba-2 layer: ``heads`` of ``head_dim``, inner width ``expand``·hidden, scan ``chunk``, SSM ``state``."""

    heads: int
    head_dim: int
    expand: int
    chunk: int
    state: int
    groups: int

    def __post_init__(self) -> None:
        require_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of a model; widths in elements, ``seq_length`` in tokens.

    ``pattern``: one letter for each layer of a hybrid: ``M`` Mamba-2, ``-`` MLP, ``*`` attention; ``gated``: the MLP
    has a gate in addition to its two matrices (SwiGLU); ``head_dim``: None for hidden / heads.
    """

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_groups: int
    vocab: int
    seq_length: int
    gated: bool = False
    head_dim: int | None = None
    pattern: str | None = None
    mamba: MambaShape | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        if self.heads % self.kv_groups:
            message = f"{self.heads} 'heads' do not divide into {self.kv_groups} 'kv_groups'"
            raise KeyFaultError(message, "kv_groups", value=self.kv_groups)
        if self.pattern is None:
            return
        if self.mamba is None:
            raise KeyFaultError(
                "a model with a layer pattern needs its 'mamba' shape", code="key-missing", value="mamba"
            )
        if len(self.pattern) != self.layers or set(self.pattern) - set("M-*"):
            message = f"'pattern' must be {self.layers} letters out of M, - and *, it has {len(self.pattern)}"
            raise KeyFaultError(message, "pattern", value=self.pattern)


_CONVOLUTION = 4  # tokens in Mamba-2's convolution, in every published model


def parameters(shape: ModelShape) -> int:
    """The number of parameters, with separate input and output embeddings, as in all models here.

    Source: the layers of Megatron core. A framework that pads the vocabulary has more rows in both embeddings.
    """
    norm = shape.hidden * (2 if shape.architecture == "nemotron" else 1)  # LayerNorm has a bias, RMSNorm has not
    head_dim = shape.head_dim or shape.hidden // shape.heads
    attention = norm + 2 * shape.hidden * head_dim * (shape.heads + shape.kv_groups)
    mlp = norm + (3 if shape.gated else 2) * shape.hidden * shape.ffn
    if shape.pattern is None:
        layers = shape.layers * (attention + mlp)
    else:
        kinds = {"M": _mamba_parameters(shape, norm), "-": mlp, "*": attention}
        layers = sum(kinds[letter] for letter in shape.pattern)
    return 2 * shape.vocab * shape.hidden + layers + norm


def _mamba_parameters(shape: ModelShape, norm: int) -> int:
    assert shape.mamba is not None
    mamba = shape.mamba
    inner, states = mamba.heads * mamba.head_dim, 2 * mamba.groups * mamba.state
    projections = shape.hidden * (2 * inner + states + mamba.heads) + inner * shape.hidden
    convolution = (inner + states) * (_CONVOLUTION + 1)
    return norm + projections + convolution + 3 * mamba.heads + inner


GQA = "gqa"
HYBRID = "hybrid-mamba2"
OLD = "mha-4h"


def flops_convention(shape: ModelShape) -> str:
    """The name of the formula of ``model_flops`` for this shape; MFUs of different formulas cannot be compared."""
    return GQA if shape.pattern is None else HYBRID


def model_flops(shape: ModelShape) -> float:
    """Forward and backward operations for one sample of ``seq_length`` tokens, by ``flops_convention(shape)``.

    Without a pattern, the formula of release 25.05: attention with query groups, over the full, not the causal, square.
    For a hybrid, the formula published for Nemotron-H: multiply-accumulates of all layers and the head, six operations
    each.
    """
    return shape.seq_length * sum(_dense_terms(shape)) if shape.pattern is None else 6.0 * sum(_hybrid_terms(shape))


def model_flops_old(shape: ModelShape) -> float:
    """The formula of releases 24.11 and 25.04 (``mha-4h``): one query group per head, and ffn = 4·hidden."""
    attention = 24 * shape.layers * shape.hidden**2 + 12 * shape.layers * shape.hidden * shape.seq_length
    mlp = 48 * shape.layers * shape.hidden**2
    return float(shape.seq_length * (attention + mlp + 6 * shape.vocab * shape.hidden))


def _dense_terms(shape: ModelShape) -> tuple[float, int, int]:
    layers, hidden = shape.layers, shape.hidden
    attention = 12 * layers * hidden**2 * (1 + shape.kv_groups / shape.heads + shape.seq_length / hidden)
    mlp = (18 if shape.gated else 12) * layers * hidden * shape.ffn
    return attention, mlp, 6 * shape.vocab * hidden


def _hybrid_terms(shape: ModelShape) -> tuple[int, int, int, int]:
    assert shape.pattern is not None
    assert shape.mamba is not None
    seq, hidden, mamba = shape.seq_length, shape.hidden, shape.mamba
    head_dim = shape.head_dim or hidden // shape.heads
    mlp = 2 * seq * hidden * shape.ffn
    attention = 2 * seq * hidden * (shape.heads * head_dim + shape.kv_groups * head_dim + seq)
    projections = mamba.heads * mamba.head_dim * 3 + mamba.groups * mamba.state * 2 + mamba.heads
    scan = mamba.expand * mamba.chunk + 2 * mamba.expand * mamba.state
    block = seq * hidden * (projections + scan) + seq * mamba.chunk * mamba.state * mamba.groups
    count = shape.pattern.count
    return mlp * count("-"), attention * count("*"), block * count("M"), seq * hidden * shape.vocab


def flops_terms(shape: ModelShape) -> dict[str, float]:
    """The terms of ``model_flops`` by part of the model: operations of one sample."""
    if shape.pattern is None:
        parts = ("attention", "MLP", "embedding")
        return {part: shape.seq_length * term for part, term in zip(parts, _dense_terms(shape), strict=True)}
    parts_of_hybrid = ("MLP", "attention", "Mamba-2", "head")
    return {part: 6.0 * term for part, term in zip(parts_of_hybrid, _hybrid_terms(shape), strict=True)}


def flops_formulas(shape: ModelShape) -> dict[str, str]:
    """The formula of each term of ``flops_terms`` with its numbers, except for Mamba layers."""
    layers, hidden, seq = shape.layers, shape.hidden, shape.seq_length
    if shape.pattern is None:
        groups = f"{shape.kv_groups}/{shape.heads}"
        return {
            "attention": f"{seq}·12·{layers}·{hidden}²·(1 + {groups} + {seq}/{hidden})",
            "MLP": f"{seq}·{18 if shape.gated else 12}·{layers}·{hidden}·{shape.ffn}",
            "embedding": f"{seq}·6·{shape.vocab}·{hidden}",
        }
    count, dim = shape.pattern.count, shape.head_dim or hidden // shape.heads
    width = f"{shape.heads}·{dim} + {shape.kv_groups}·{dim} + {seq}"
    return {
        "MLP": f"6·{count('-')} layers·2·{seq}·{hidden}·{shape.ffn}",
        "attention": f"6·{count('*')} layers·2·{seq}·{hidden}·({width})",
        "Mamba-2": f"6·{count('M')} layers·(projections, scan and state of {seq} tokens)",
        "head": f"6·{seq}·{hidden}·{shape.vocab}",
    }
