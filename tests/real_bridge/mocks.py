# SPDX-License-Identifier: Apache-2.0
"""Mocks of the CUDA libraries that Megatron-Bridge imports, so that it builds its configurations on
a CPU.

`install()` must come after torch and transformers are imported (these look for the libraries too)
and before Megatron-Bridge is. Nothing here computes: every name is an empty class that can be
subscripted and used as a decorator.
"""

import abc
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import typing
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

# Megatron compares the versions; those of image 26.02.01.
VERSIONS = {
    "transformer_engine": "2.12.0",
    "triton": "3.6.0",
    "modelopt": "0.41.0",
    "diffusers": "0.36.0",
}
# fused_weight_gradient_mlp_cuda: without it gradient_accumulation_fusion would be False on a CPU
# and True in the image.
FAMILIES = {*VERSIONS, "megatron.energon", "fused_weight_gradient_mlp_cuda"}
# Compute capability of each GPU type: functions for experts ask the GPU which library can send
# tokens between them.
CAPABILITIES = {
    "h100": (9, 0),
    "b200": (10, 0),
    "b300": (10, 3),
    "gb200": (10, 0),
    "gb300": (10, 3),
}
# What the config.json of each repository with experts says about the architecture: layers, hidden,
# ffn, ffn of an expert, heads.
EXPERTS = {
    "Qwen/Qwen3-30B-A3B": (48, 2048, 6144, 768, 32),
}
# What the gated config.json of each repository says about the architecture.
HUB = {
    "meta-llama/Meta-Llama-3-8B": (32, 4096, 14336, 32),
    "meta-llama/Meta-Llama-3-70B": (80, 8192, 28672, 64),
    "meta-llama/Meta-Llama-3.1-405B": (126, 16384, 53248, 128),
}


class Subscriptable(abc.ABCMeta):
    """The type of the mocks: ``Mock[int]`` is the mock, as is any attribute of it."""

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __getattr__(cls, name: str) -> Any:
        """A mock for every public attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Mock


class Mock(metaclass=Subscriptable):
    """A mock of a class, a function or a decorator."""

    def __new__(cls, *arguments: Any, **_: Any) -> Any:
        """A decorator returns what it decorates."""
        return (
            arguments[0] if len(arguments) == 1 and callable(arguments[0]) else super().__new__(cls)
        )

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """Called with one function, as a decorator is, it returns that."""
        return arguments[0] if len(arguments) == 1 else self


class FusedAdam:
    """The optimizer whose signature Megatron inspects before it accepts a precision-aware Adam."""

    def __init__(
        self,
        params: Any = None,
        *,
        exp_avg_dtype: Any = None,
        exp_avg_sq_dtype: Any = None,
        master_weight_dtype: Any = None,
        use_decoupled_grad: bool = False,
        store_param_remainders: bool = False,
    ) -> None: ...


class Library(ModuleType):
    """A module that has every public name."""

    def __getattr__(self, name: str) -> Any:
        """A mock of this name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Mock,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the mocked libraries."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a module of a mocked library, as a package."""
        if not any(fullname == family or fullname.startswith(f"{family}.") for family in FAMILIES):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty library."""
        return Library(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Add the names that are read."""
        module.__dict__["__version__"] = VERSIONS.get(module.__name__, "0")
        if module.__name__ == "transformer_engine.pytorch.optimizers":
            module.__dict__["FusedAdam"] = FusedAdam


def install() -> None:
    """Mock the libraries, their versions, and the hub's configurations; imports torch and
    transformers first.
    """
    import torch  # noqa: F401
    import transformers

    real = importlib.metadata.version

    def version(name: str) -> str:
        return VERSIONS.get(name.replace("-", "_")) or real(name)

    setattr(importlib.metadata, "version", version)  # noqa: B010
    sys.meta_path.append(Finder())
    if not hasattr(typing, "override"):  # Megatron-Bridge 0.6 is for Python 3.12
        setattr(typing, "override", lambda function: function)  # noqa: B010
    # Its releases for Python 3.11 have no such name, and Megatron 0.19 compares it.
    vars(importlib.import_module("nvidia_resiliency_ext")).setdefault("__version__", "0.6.0")
    if not os.environ.get("LLMB_TEST_REAL_HUB"):
        setattr(transformers.AutoConfig, "from_pretrained", staticmethod(config_of))  # noqa: B010


def pretend_gpu(gpu: str) -> None:
    """Let torch answer as on a machine with this type of GPU."""
    import torch

    major, minor = CAPABILITIES[gpu]
    values = SimpleNamespace(major=major, minor=minor, name=f"NVIDIA {gpu.upper()}")
    setattr(torch.cuda, "get_device_properties", lambda *_: values)  # noqa: B010


def config_of(name: str, *_: Any, **__: Any) -> Any:
    """The configuration of one of the repositories, as transformers reads it."""
    import transformers

    if str(name) in EXPERTS:
        layers, hidden, ffn, expert_ffn, heads = EXPERTS[str(name)]
        return transformers.Qwen3MoeConfig(
            architectures=["Qwen3MoeForCausalLM"],
            vocab_size=151936,
            hidden_size=hidden,
            intermediate_size=ffn,
            moe_intermediate_size=expert_ffn,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=4,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            norm_topk_prob=True,
            max_position_embeddings=40960,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            tie_word_embeddings=False,
            torch_dtype="bfloat16",
        )
    layers, hidden, ffn, heads = HUB[str(name)]
    return transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=128256,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        max_position_embeddings=131072 if "3.1" in str(name) else 8192,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
    )
