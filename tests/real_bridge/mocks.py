# SPDX-License-Identifier: Apache-2.0
"""Mocks of the CUDA libraries that Megatron-Bridge imports, so that it builds its configurations on
a CPU.

`install()` must come after torch and transformers are imported (these look for the libraries too)
and before Megatron-Bridge is. Nothing here computes: every name is an empty class that can be
subscripted and used as a decorator.
"""

import abc
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
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
FAMILIES = {
    *VERSIONS,
    "transformer_engine_torch",
    "webdataset",
    "megatron.energon",
    "fused_weight_gradient_mlp_cuda",
}
# Compute capability of each GPU type: functions for experts ask the GPU which library can send
# tokens between them.
CAPABILITIES = {
    "h100": (9, 0),
    "b200": (10, 0),
    "b300": (10, 3),
    "gb200": (10, 0),
    "gb300": (10, 3),
}
# What the config.json of each open repository says about the architecture, with the class of
# transformers that reads it.
Settings = Mapping[str, Any]
_QWEN: Settings = {
    "vocab_size": 151936,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
}
_DEEPSEEK: Settings = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "rms_norm_eps": 1e-6,
}
OPEN: Mapping[str, tuple[str, str, Settings]] = {
    "Qwen/Qwen3-30B-A3B": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            **_QWEN,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
        },
    ),
    "Qwen/Qwen3-235B-A22B": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            **_QWEN,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 94,
            "num_attention_heads": 64,
        },
    ),
    "deepseek-ai/DeepSeek-V3": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **_DEEPSEEK,
            "vocab_size": 129280,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "n_routed_experts": 256,
            "routed_scaling_factor": 2.5,
            "n_group": 8,
            "topk_group": 4,
            "first_k_dense_replace": 3,
            "num_nextn_predict_layers": 1,
            "max_position_embeddings": 163840,
            "rope_theta": 10000,
            "rope_scaling": {
                "type": "yarn",
                "factor": 40,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096,
            },
        },
    ),
    "moonshotai/Kimi-K2-Instruct": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **_DEEPSEEK,
            "vocab_size": 163840,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "n_routed_experts": 384,
            "routed_scaling_factor": 2.827,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 0,
            "max_position_embeddings": 131072,
            "rope_theta": 50000.0,
            "rope_scaling": {
                "type": "yarn",
                "factor": 32.0,
                "beta_fast": 1.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096,
            },
        },
    ),
    "openai/gpt-oss-120b": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {
            "vocab_size": 201088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_hidden_layers": 36,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 150000,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        },
    ),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": (
        "NemotronHConfig",
        "NemotronHForCausalLM",
        {
            "vocab_size": 131072,
            "hidden_size": 4096,
            "hybrid_override_pattern": (
                "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*"
                "EMEMEMEME"
            ),
            "num_hidden_layers": 88,
            "intermediate_size": 2688,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "chunk_size": 128,
            "n_routed_experts": 512,
            "num_experts_per_tok": 22,
            "n_shared_experts": 1,
            "moe_intermediate_size": 2688,
            "moe_latent_size": 1024,
            "moe_shared_expert_intermediate_size": 5376,
            "routed_scaling_factor": 5.0,
            "num_nextn_predict_layers": 1,
            "mtp_hybrid_override_pattern": "*E",
            "max_position_embeddings": 262144,
            "layer_norm_epsilon": 1e-5,
        },
    ),
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


# By module; construct.py adds layers.
NAMES: dict[str, dict[str, Any]] = {
    "transformer_engine.pytorch.optimizers": {"FusedAdam": FusedAdam}
}


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
        module.__dict__.update(NAMES.get(module.__name__, {}))


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


def add_missing_file() -> None:
    """Let the library read te_quant.cfg of Nemotron 3, which its wheel lacks: by its name."""
    with contextlib.suppress(ImportError):  # Megatron core 0.16.1 has no such module
        utils = importlib.import_module("megatron.core.quantization.utils")
        vars(utils)["load_quantization_recipe"] = lambda recipe_path: Path(recipe_path).name


def pretend_gpu(gpu: str) -> None:
    """Let torch answer as on a machine with this type of GPU."""
    import torch

    major, minor = CAPABILITIES[gpu]
    values = SimpleNamespace(major=major, minor=minor, name=f"NVIDIA {gpu.upper()}")
    setattr(torch.cuda, "get_device_properties", lambda *_: values)  # noqa: B010


def config_of(name: str, *_: Any, **__: Any) -> Any:
    """The configuration of one of the repositories, as transformers reads it."""
    import transformers

    if str(name) in OPEN:
        kind, architecture, settings = OPEN[str(name)]
        return getattr(transformers, kind)(
            architectures=[architecture],
            tie_word_embeddings=False,
            torch_dtype="bfloat16",
            **settings,
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
