# SPDX-License-Identifier: Apache-2.0
"""The shape of a model, and its number of parameters."""

from collections.abc import Collection
from dataclasses import fields
from functools import cache
from typing import Any

from llmb.core.values import dataclass
from llmb.errors import KeyFaultError


def require_positive(value: Any, *, unless: Collection[str] = ()) -> None:
    """Raise KeyFaultError for the first whole number below 1, except the fields ``unless``."""
    kind: type = type(value)
    for name in _field_names(kind):
        number = getattr(value, name)
        if type(number) is int and number < 1 and name not in unless:
            raise KeyFaultError(f"'{name}' must be 1 or more, not {number}", name, value=number)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaShape:
    """A Mamba-2 layer: ``heads`` of ``head_dim``, inner width ``expand``·hidden, scan ``chunk``."""

    heads: int
    head_dim: int
    expand: int
    chunk: int
    state: int
    groups: int

    def __post_init__(self) -> None:
        require_positive(self)

    @property
    def inner(self) -> int:
        """The inner width. That of most models is ``expand``·hidden."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """A mixture of experts in place of the MLP.

    A hybrid names its layers with experts in its pattern.
    """

    #: Their number, without the shared ones.
    experts: int
    #: The experts that each token uses, besides all shared ones.
    top_k: int
    #: The width of one expert, None for the model's.
    ffn: int | None = None
    #: The number of experts that each token uses.
    shared_experts: int = 0
    #: The width of one shared expert, None for ``ffn``.
    shared_ffn: int | None = None
    #: The number of layers at the beginning that have an MLP instead.
    dense_layers: int = 0
    #: Of the layers after these, the first and then each such one has experts.
    every: int = 1
    #: The width of the vector that the experts work on, None for the hidden size. Two projections
    #: per layer lead to it and back. Shared experts have the hidden size.
    latent: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, unless=("shared_experts", "dense_layers"))
        for name in ("shared_experts", "dense_layers"):
            if getattr(self, name) < 0:
                raise KeyFaultError(f"'{name}' must be 0 or more, not {getattr(self, name)}", name)
        if self.top_k > self.experts:
            raise KeyFaultError(
                f"'top_k' is {self.top_k} of {self.experts} experts", "top_k", value=self.top_k
            )
        if self.shared_ffn is not None and not self.shared_experts:
            raise KeyFaultError("needs 'shared_experts'", "shared_ffn", value=self.shared_ffn)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaShape:
    """Multi-head latent attention (DeepSeek)."""

    #: The width of the vector that queries come from; None: they are projected at once.
    q_rank: int | None = None
    #: The width of the vector that keys and values come from.
    kv_rank: int
    #: Of a query and a key, without the ``rope_dim`` of the position.
    head_dim: int
    rope_dim: int
    #: Of a value.
    value_dim: int

    def __post_init__(self) -> None:
        require_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowShape:
    """Attention to the last tokens alone, in some of the layers."""

    #: The token itself and those before it.
    tokens: int
    #: The number of layers that have it.
    layers: int

    def __post_init__(self) -> None:
        require_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpShape:
    """Multi-token prediction: further layers behind the last one, each with a use of the head.

    Each also projects two hidden vectors, of the layer before and of the next token, to one.
    """

    #: How many further tokens are predicted.
    depth: int
    #: The layers of each depth in a hybrid, in the letters of its pattern; None for one layer like
    #: the last.
    pattern: str | None = None

    def __post_init__(self) -> None:
        require_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of a model. Widths are in elements."""

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_groups: int
    vocab: int
    #: In tokens.
    seq_length: int
    #: The MLP has a gate in addition to its two matrices (SwiGLU).
    gated: bool = False
    #: None for hidden / heads.
    head_dim: int | None = None
    #: One letter for each layer of a hybrid: ``M`` Mamba-2, ``-`` MLP, ``*`` attention, ``E``
    #: experts.
    pattern: str | None = None
    mamba: MambaShape | None = None
    #: Its experts, None for a dense model.
    moe: MoeShape | None = None
    #: Its attention, None for query groups.
    mla: MlaShape | None = None
    #: None if all layers attend to all tokens before.
    window: WindowShape | None = None
    #: None if only the next token is predicted.
    mtp: MtpShape | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        if self.heads % self.kv_groups:
            message = f"{self.heads} 'heads' do not divide into {self.kv_groups} 'kv_groups'"
            raise KeyFaultError(message, "kv_groups", value=self.kv_groups)
        self._check_window_and_mtp()
        if self.pattern is None:
            if self.moe is not None and self.moe.dense_layers >= self.layers:
                message = (
                    f"of {self.layers} layers, {self.moe.dense_layers} are dense, so none has"
                    " experts"
                )
                raise KeyFaultError(message, "moe", "dense_layers", value=self.moe.dense_layers)
            return
        if self.mamba is None:
            raise KeyFaultError(
                "a model with a layer pattern needs its 'mamba' shape",
                code="key-missing",
                value="mamba",
            )
        if self.mla is not None:
            raise KeyFaultError(
                "a model with a layer pattern has attention with query groups", "mla"
            )
        letters = "M-*" if self.moe is None else "M-*E"
        foreign = sorted(set(self.pattern) - {*letters})
        if len(self.pattern) != self.layers or foreign:
            allowed = f"{', '.join(letters[:-1])} and {letters[-1]}"
            fault = (
                f"contains {', '.join(map(repr, foreign))}"
                if foreign
                else f"has {len(self.pattern)}"
            )
            message = f"'pattern' must be {self.layers} letters out of {allowed}, it {fault}"
            raise KeyFaultError(message, "pattern", value=self.pattern)
        if self.moe is not None and (
            "E" not in self.pattern or self.moe.dense_layers or self.moe.every > 1
        ):
            raise KeyFaultError(
                "the pattern names the layers with experts: write E for each, without"
                " 'dense_layers' and 'every'",
                "moe",
            )

    def _check_window_and_mtp(self) -> None:
        """Raise KeyFaultError for a window or further predictions that the model cannot have."""
        if self.window is not None:
            attending = self.layers if self.pattern is None else self.pattern.count("*")
            if self.mla is not None or self.window.layers > attending:
                message = f"{self.window.layers} of {attending} layers attend to a window"
                if self.mla is not None:
                    message = "a window needs attention with query groups"
                raise KeyFaultError(message, "window", "layers", value=self.window.layers)
        if self.mtp is not None:
            letters = "" if self.pattern is None else "M-*" if self.moe is None else "M-*E"
            pattern = self.mtp.pattern or ""
            if bool(pattern) != bool(letters) or set(pattern) - {*letters}:
                message = f"'pattern' is {self.mtp.pattern!r}; the layers of each depth are "
                message += f"letters out of {letters}" if letters else "like the last one"
                raise KeyFaultError(message, "mtp", "pattern", value=self.mtp.pattern)

    def count_layers(self, letter: str) -> int:
        """Return how many layers of a hybrid are ``letter``, with those of further predictions."""
        further = (self.mtp.pattern or "") * self.mtp.depth if self.mtp is not None else ""
        return ((self.pattern or "") + further).count(letter)

    def expert_layers(self) -> tuple[bool, ...]:
        """For each layer whether it has experts."""
        if self.moe is None:
            return (False,) * self.layers
        if self.pattern is not None:
            return tuple(letter == "E" for letter in self.pattern)
        first, period = self.moe.dense_layers, self.moe.every
        return tuple(
            number >= first and (number - first) % period == 0 for number in range(self.layers)
        )


_CONVOLUTION = 4  # tokens in Mamba-2's convolution, in every published model


def parameters(shape: ModelShape) -> int:
    """The number of parameters, with separate input and output embeddings, as in all models here.

    Layers for multi-token prediction are not among them, as in published counts.
    Source: the layers of Megatron core. A framework that pads the vocabulary has more rows in both
    embeddings.
    """
    # LayerNorm has a bias, RMSNorm has not
    norm = shape.hidden * (2 if shape.architecture == "nemotron" else 1)
    attention = norm + attention_weights(shape)
    mlp = norm + matrices(shape) * shape.hidden * shape.ffn
    sparse = norm + _expert_parameters(shape, shape.moe) if shape.moe is not None else 0
    count = sum(shape.expert_layers())
    if shape.pattern is None:
        layers = shape.layers * attention + (shape.layers - count) * mlp + count * sparse
    else:
        kinds = {"M": _mamba_parameters(shape, norm), "-": mlp, "*": attention, "E": sparse}
        layers = sum(kinds[letter] for letter in shape.pattern)
    return 2 * shape.vocab * shape.hidden + layers + norm


def matrices(shape: ModelShape) -> int:
    """The matrices of an MLP or an expert: 3 with a gate, else 2."""
    return 3 if shape.gated else 2


def attention_weights(shape: ModelShape) -> int:
    """The weights of one attention layer, with the norms of the latent vectors."""
    hidden, heads, mla = shape.hidden, shape.heads, shape.mla
    if mla is None:
        return 2 * hidden * (shape.head_dim or hidden // heads) * (heads + shape.kv_groups)
    queries = heads * (mla.head_dim + mla.rope_dim)
    query = hidden * queries if mla.q_rank is None else mla.q_rank * (hidden + queries + 1)
    key_value = mla.kv_rank * (hidden + heads * (mla.head_dim + mla.value_dim) + 1)
    return query + key_value + hidden * mla.rope_dim + heads * mla.value_dim * hidden


def _expert_parameters(shape: ModelShape, moe: MoeShape) -> int:
    """The router, all experts and all shared experts of one layer."""
    routed = moe.experts * (moe.latent or shape.hidden) * (moe.ffn or shape.ffn)
    projections = 2 * shape.hidden * moe.latent if moe.latent is not None else 0
    shared = shape.hidden * shared_width(shape)
    return shape.hidden * moe.experts + projections + matrices(shape) * (routed + shared)


def shared_width(shape: ModelShape) -> int:
    """The width of all shared experts of a layer together, 0 without."""
    moe = shape.moe
    return 0 if moe is None else moe.shared_experts * (moe.shared_ffn or moe.ffn or shape.ffn)


def _mamba_parameters(shape: ModelShape, norm: int) -> int:
    assert shape.mamba is not None
    mamba = shape.mamba
    inner, states = mamba.inner, 2 * mamba.groups * mamba.state
    projections = shape.hidden * (2 * inner + states + mamba.heads) + inner * shape.hidden
    convolution = (inner + states) * (_CONVOLUTION + 1)
    return norm + projections + convolution + 3 * mamba.heads + inner
