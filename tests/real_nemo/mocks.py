# SPDX-License-Identifier: Apache-2.0
"""Mocks of Transformer Engine, mamba_ssm, causal_conv1d and Apex: parameters and signatures, almost
no kernels.

With them, Megatron defines and constructs its own classes where there is no CUDA. A layer's
parameters are split over the tensor parallel ranks as the real ones are; a forward pass is refused.
The one kernel is that of Apex.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

VERSION = "2.2.0"  # of Transformer Engine in the image 25.04.01
# of Apex; computes a weight's gradient into its buffer
FUSED_GRADIENT = "fused_weight_gradient_mlp_cuda"
FAMILIES = (
    "transformer_engine",
    "transformer_engine_torch",
    "mamba_ssm",
    "causal_conv1d",
    FUSED_GRADIENT,
)
LOADED_EARLY = (
    "transformer_engine.common.recipe",
    "transformer_engine.pytorch.attention",
    "transformer_engine.pytorch.module.base",
    "transformer_engine.pytorch.cpu_offload",
    "transformer_engine.pytorch.distributed",
    "transformer_engine.pytorch.optimizers",
    "transformer_engine.pytorch.tensor",
    "transformer_engine_torch",
    "mamba_ssm.ops.triton.layernorm_gated",
)


class TransformerEngineBaseModule(torch.nn.Module):  # type: ignore[misc]
    """The base class that Megatron checks layers for."""

    def forward(self, *_: Any, **__: Any) -> Any:
        """Refuse: there are no kernels."""
        raise NotImplementedError(f"{type(self).__name__} is a stand-in, which computes nothing")


class Linear(TransformerEngineBaseModule):
    """A weight, split over the ranks by output (``column``) or input (``row``)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        tp_size: int = 1,
        parallel_mode: str | None = None,
        params_dtype: Any = None,
        device: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.tp_size = tp_size
        out_features = split(out_features, tp_size if parallel_mode == "column" else 1)
        in_features = split(in_features, tp_size if parallel_mode == "row" else 1)
        make = {"dtype": params_dtype, "device": device}
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, **make))
        self.weight.tensor_model_parallel = parallel_mode is not None
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(out_features, **make))
            self.bias.tensor_model_parallel = parallel_mode == "column"


class LayerNormLinear(Linear):
    """A norm of the input, complete on every rank, followed by a Linear."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        normalization: str = "LayerNorm",
        params_dtype: Any = None,
        device: Any = None,
        **others: Any,
    ) -> None:
        super().__init__(
            in_features, out_features, params_dtype=params_dtype, device=device, **others
        )
        make = {"dtype": params_dtype, "device": device}
        self.layer_norm_weight = torch.nn.Parameter(torch.empty(in_features, **make))
        if normalization == "LayerNorm":
            self.layer_norm_bias = torch.nn.Parameter(torch.empty(in_features, **make))


class RMSNorm(TransformerEngineBaseModule):
    """A weight for each unit."""

    def __init__(
        self, hidden_size: int, *, params_dtype: Any = None, device: Any = None, **_: Any
    ) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(
            torch.empty(hidden_size, dtype=params_dtype, device=device)
        )


class LayerNorm(RMSNorm):
    """A weight and a bias for each unit."""

    def __init__(
        self, hidden_size: int, *, params_dtype: Any = None, device: Any = None, **_: Any
    ) -> None:
        super().__init__(hidden_size, params_dtype=params_dtype, device=device)
        self.bias = torch.nn.Parameter(torch.empty(hidden_size, dtype=params_dtype, device=device))


class DotProductAttention(TransformerEngineBaseModule):
    """No parameters."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class GroupedLinear(TransformerEngineBaseModule):
    """For mixtures of experts, which no workload here has."""


class GatedRMSNorm(torch.nn.Module):  # type: ignore[misc]
    """mamba_ssm's norm after the scan: a weight for each unit of this rank."""

    def __init__(
        self, hidden_size: int, *, device: Any = None, dtype: Any = None, **_: Any
    ) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))


class CudaRNGStatesTracker:
    """Keeps random states by name."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Remove all states."""
        self.states_: dict[str, Any] = {}

    def set_states(self, states: dict[str, Any]) -> None:
        """Set the states."""
        self.states_ = states

    def get_states(self) -> dict[str, Any]:
        """All states."""
        return self.states_

    def add(self, name: str, seed: int) -> None:
        """Add a state."""
        self.states_[name] = seed

    @contextlib.contextmanager
    def fork(self, name: str = "") -> Iterator[None]:
        """Do nothing: the meta device draws no numbers."""
        yield


class FusedAdam(torch.optim.Adam):  # type: ignore[misc]
    """The optimizer's signature, which NeMo checks before it uses a precision-aware Adam."""

    def __init__(
        self,
        params: Any,
        *,
        master_weights: bool = False,
        use_decoupled_grad: bool = False,
        store_param_remainders: bool = False,
        exp_avg_dtype: Any = None,
        exp_avg_sq_dtype: Any = None,
        master_weight_dtype: Any = None,
        **others: Any,
    ) -> None:
        super().__init__(params, **others)


class Format:
    """The kinds of FP8."""

    E4M3, E5M2, HYBRID = "E4M3", "E5M2", "HYBRID"


class DelayedScaling:
    """Accepts settings."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


class Float8CurrentScaling(DelayedScaling):
    """Accepts settings."""


class QuantizedTensor:
    """The type of FP8 parameters; none is created here."""


@contextlib.contextmanager
def fp8_model_init(*_: Any, **__: Any) -> Iterator[None]:
    """Does nothing: the number of parameters does not depend on it."""
    yield


def get_cpu_offload_context(*_: Any, **__: Any) -> tuple[Any, Any]:
    """No offloading."""
    return contextlib.nullcontext(), None


def accumulate_gradient(values: Any, gradient: Any, buffer: Any) -> None:
    """Add a linear layer's weight gradient, of inputs ``values`` and outputs' ``gradient``, to
    ``buffer``.
    """
    buffer.add_(gradient.t().matmul(values))
    CALLS[tuple(buffer.shape)] += 1


CALLS: Counter[tuple[int, ...]] = Counter()  # of accumulate_gradient, by the weight's shape


def split(size: int, ways: int) -> int:
    """``size`` per rank of ``ways``. Raises AssertionError if it does not divide, as Transformer
    Engine does.
    """
    assert size % ways == 0, f"{size} is not divisible by {ways}"
    return size // ways


NAMES: dict[str, dict[str, Any]] = {
    "transformer_engine": {"__version__": VERSION},
    "transformer_engine.common.recipe": {
        "Format": Format,
        "DelayedScaling": DelayedScaling,
        "Float8CurrentScaling": Float8CurrentScaling,
    },
    "transformer_engine.pytorch": {
        "Linear": Linear,
        "LayerNormLinear": LayerNormLinear,
        "LayerNorm": LayerNorm,
        "RMSNorm": RMSNorm,
        "DotProductAttention": DotProductAttention,
        "GroupedLinear": GroupedLinear,
        "fp8_model_init": fp8_model_init,
    },
    "transformer_engine.pytorch.module.base": {
        "TransformerEngineBaseModule": TransformerEngineBaseModule
    },
    "transformer_engine.pytorch.distributed": {"CudaRNGStatesTracker": CudaRNGStatesTracker},
    "transformer_engine.pytorch.optimizers": {"FusedAdam": FusedAdam},
    "transformer_engine.pytorch.tensor": {"QuantizedTensor": QuantizedTensor},
    "transformer_engine.pytorch.cpu_offload": {"get_cpu_offload_context": get_cpu_offload_context},
    "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": GatedRMSNorm},
    FUSED_GRADIENT: {
        "wgrad_gemm_accum_fp32": accumulate_gradient,
        "wgrad_gemm_accum_fp16": accumulate_gradient,
    },
}


class StandIn(ModuleType):
    """A module that has every public name: those without a mock are empty classes."""

    def __getattr__(self, name: str) -> Any:
        """An empty class of this name."""
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"apply": None})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the ``families``."""

    def __init__(self, families: Collection[str]) -> None:
        self.families = families

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a module of a family, as a package."""
        if fullname.partition(".")[0] not in self.families:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty mock."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Add the names that have mocks."""
        vars(module).update(NAMES.get(module.__name__, {}))


def install(families: Collection[str] = FAMILIES) -> None:
    """Make the ``families`` importable. Call it before the first import of NeMo or Megatron."""
    sys.meta_path.insert(0, Finder(families))
    for name in LOADED_EARLY:
        if name.partition(".")[0] in families:
            importlib.import_module(name)
