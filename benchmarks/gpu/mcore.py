# SPDX-License-Identifier: Apache-2.0
"""python -m gpu.mcore JSON: trains megatron-core's own layers, without Transformer Engine.

The lines of the steps have the format of Megatron's training loop, which is not part of the core.
"""

import contextlib
import json
import sys
import time
from typing import Any

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig

RATE = 1e-4


def squared_relu(values: torch.Tensor) -> torch.Tensor:
    """The activation of Nemotron's MLP."""
    return torch.relu(values) ** 2


def build(shape: dict[str, Any], device: str) -> Any:
    """Return the model on ``device``: bf16 on a GPU, fp32 on a CPU."""
    if shape["architecture"] == "nemotronh":
        raise SystemExit("the Mamba layers of megatron-core need Transformer Engine")
    is_gpu = device == "cuda"
    is_llama = shape["architecture"] == "llama"
    config = TransformerConfig(
        num_layers=shape["layers"],
        hidden_size=shape["hidden"],
        ffn_hidden_size=shape["ffn"],
        num_attention_heads=shape["heads"],
        num_query_groups=shape["kv_groups"],
        gated_linear_unit=shape["gated"],
        activation_func=torch.nn.functional.silu if is_llama else squared_relu,
        normalization="RMSNorm" if is_llama else "LayerNorm",
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=is_gpu,
        params_dtype=torch.bfloat16 if is_gpu else torch.float32,
        pipeline_dtype=torch.bfloat16 if is_gpu else torch.float32,
        use_cpu_initialization=not is_gpu,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(normalization=config.normalization),
        vocab_size=shape["vocab"],
        max_sequence_length=shape["sequence"],
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    return model.to(device)


def join(device: str) -> None:
    """Make this process the only rank."""
    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=torch.distributed.HashStore(),
        rank=0,
        world_size=1,
    )
    parallel_state.initialize_model_parallel()
    if device == "cuda":
        tensor_parallel.model_parallel_cuda_manual_seed(1234)
    else:
        torch.manual_seed(1234)
        # The rotary embedding asks for the GPU's number, whatever the device of the model.
        torch.cuda.current_device = lambda: torch.device("cpu")
        # Dropout, which is off, would take the random state of a GPU.
        tracker = tensor_parallel.get_cuda_rng_tracker()
        tracker.fork = lambda *name: contextlib.nullcontext()


def main(shape: dict[str, Any]) -> None:
    """Train for a few steps with plain gradient descent: Adam's moments would not fit."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    join(device)
    model = build(shape, device)
    count = sum(weight.numel() for weight in model.parameters())
    print(f"number of parameters: {count}")
    length, steps = shape["sequence"], shape["steps"]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    position = torch.arange(length, device=device)[None]
    mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=device), 1)[None, None]
    for step in range(1, steps + 1):
        tokens = torch.randint(shape["vocab"], (1, length + 1), device=device)
        began = time.perf_counter()
        loss = model(tokens[:, :-1], position, mask, labels=tokens[:, 1:]).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()  # waits for the GPU
        milliseconds = (time.perf_counter() - began) * 1000
        print(
            f" iteration {step:8d}/{steps:8d} | consumed samples: {step:12d} |"
            f" elapsed time per iteration (ms): {milliseconds:.1f} | learning rate: {RATE:.6E} |"
            f" global batch size: {1:5d} | lm loss: {value:.6E} |",
            flush=True,
        )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
