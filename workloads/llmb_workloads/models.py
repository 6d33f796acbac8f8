# SPDX-License-Identifier: Apache-2.0
"""The three architectures as transformers has them, built from a shape with random weights."""

from typing import Any

import torch
import transformers

from llmb_workloads.torch_recipe import TorchModel


def build(shape: TorchModel, device: str = "cpu") -> Any:
    """Build a causal language model on `device`. Device "meta" builds any size without memory."""
    config, model = {
        "llama": (_llama, transformers.LlamaForCausalLM),
        "nemotron": (_nemotron, transformers.NemotronForCausalLM),
        "nemotronh": (_nemotronh, transformers.NemotronHForCausalLM),
    }[shape.architecture]
    with torch.device(device):
        return model(config(shape))


def parameter_count(model: Any) -> int:
    """All weights, embedding and output included."""
    return sum(weight.numel() for weight in model.parameters())


def _common(shape: TorchModel) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_groups,
        "head_dim": shape.head_dim or shape.hidden // shape.heads,
        "max_position_embeddings": shape.seq_length,
        "tie_word_embeddings": False,
        "use_cache": False,
        # No text, so no token means a beginning, an end or a filling.
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def _llama(shape: TorchModel) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        **_common(shape),
        num_hidden_layers=shape.layers,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )


def _nemotron(shape: TorchModel) -> transformers.NemotronConfig:
    # The class brings LayerNorm1p, a layer norm whose weight is kept as its distance from 1.
    return transformers.NemotronConfig(
        **_common(shape),
        num_hidden_layers=shape.layers,
        hidden_act="relu2",
        norm_eps=1e-5,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    )


def _nemotronh(shape: TorchModel) -> transformers.NemotronHConfig:
    assert shape.mamba is not None
    return transformers.NemotronHConfig(
        **_common(shape),
        # The pattern and not a list of layer types: the names in that list differ between releases.
        hybrid_override_pattern=shape.pattern,
        mlp_hidden_act="relu2",
        mamba_num_heads=shape.mamba.heads,
        mamba_head_dim=shape.mamba.head_dim,
        expand=shape.mamba.expand,
        chunk_size=shape.mamba.chunk,
        ssm_state_size=shape.mamba.state,
        n_groups=shape.mamba.groups,
    )
