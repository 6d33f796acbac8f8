# SPDX-License-Identifier: Apache-2.0
"""The variables that NVIDIA sets for a row of Megatron-Bridge.

Source: scripts/performance of Megatron-Bridge 0.3.1 and 0.6.0, and the recipes of wheel 0.6.0.
tests/real_bridge compares them.
"""

from llmb.builtin.bridge.bridge_rows import BridgeRow, BridgeSize
from llmb.contract.job import Training

_CUDNN_NORMS = {"NVTE_NORM_FWD_USE_CUDNN": "1", "NVTE_NORM_BWD_USE_CUDNN": "1"}
_EXPANDABLE = "expandable_segments:True"
_FULL = "full_iteration"
# Functions of 0.6 for 405b on 256 GPUs that are those of another type, with its variables.
_BORROWED = {
    **dict.fromkeys((("b200", dtype) for dtype in ("bf16", "fp8_cs", "fp8_mx")), "gb200"),
    **dict.fromkeys((("b300", dtype) for dtype in ("fp8_cs", "fp8_mx", "nvfp4")), "gb300"),
}
_CHUNK = "2097152"  # bytes of a transfer between pipeline stages


def launcher(gpu: str) -> dict[str, str]:
    """Return the variables that every release's launcher exports: nothing comes from the hub."""
    exported = {
        "TOKENIZERS_PARALLELISM": "False",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "0",
    }
    return (
        {**exported, "NCCL_NET_GDR_LEVEL": "PHB", "NCCL_NET_GDR_C2C": "1"}
        if gpu == "gb200"
        else exported
    )


# From 512 GPUs on NVIDIA's exemplar-performance splits InfiniBand's connections (launch.sh).
_SPLIT_FROM = 512
_SPLIT_ON = {
    "llama3_70b": ("b300",),
    "llama31_405b": ("b300",),
    "nemotronh_56b": ("b300", "gb200", "gb300"),
    "qwen3_235b_a22b": ("b200", "b300", "gb200", "gb300"),
}
_SPLIT_WITH_BF16 = "qwen3_235b_a22b"  # and not with fp8


def at_scale(model: str, gpu: str, gpus: int, dtype: str) -> dict[str, str]:
    """Return the variables that NVIDIA's benchmark adds on many GPUs, which no function has."""
    is_split = gpus >= _SPLIT_FROM and gpu in _SPLIT_ON.get(model, ())
    is_split = is_split and (dtype == "bf16" or model != _SPLIT_WITH_BF16)
    return {"NCCL_IB_QPS_PER_CONNECTION": "4"} if is_split else {}


# Models that a minor version does not bind to cores on b300 (setup_experiment.py), and since 0.4
# another one with bf16 alone.
_UNBOUND = {
    "0.3": (),
    "0.4": ("deepseek_v3",),
    "0.5": ("deepseek_v3", "llama"),
    "0.6": ("deepseek_v3", "llama", "kimi"),
}
_UNBOUND_BF16 = "nemotron_3_super"


def binds_cores(bridge: str, model: str, gpu: str, dtype: str) -> bool:
    """Return True if version ``bridge`` binds ranks to two cores: on b300, 0.3.1 for every model.

    Source: executors.py and setup_experiment.py of scripts/performance.
    """
    if gpu != "b300":
        return False
    minor = bridge.rpartition(".")[0]
    if minor != "0.3" and model == _UNBOUND_BF16 and dtype == "bf16":
        return False
    return not model.startswith(_UNBOUND[minor])


def variables(
    bridge: str,
    size: BridgeSize,
    row: BridgeRow,
    training: Training,
    *,
    gpu: str,
    dtype: str,
    count: int,
) -> dict[str, str]:
    """Return the ranks' variables for version ``bridge``, without the launcher's.

    ``count``: the GPUs of NVIDIA's function for the row.
    """
    if bridge != "0.3.1" and (size.model, count) == ("llama31_405b", 256):
        gpu = _BORROWED.get((gpu, dtype), gpu)
    values = {
        "TORCH_NCCL_HIGH_PRIORITY": "1",
        "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
        "NCCL_NVLS_ENABLE": "0",
        "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
        "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
        "CUDA_DEVICE_MAX_CONNECTIONS": _connections(bridge, training, gpu),
    }
    if _norms_by_cudnn(size.model, gpu, dtype):
        values |= _CUDNN_NORMS
    if (size.model, gpu, dtype) == ("llama3_8b", "h100", "fp8_cs"):
        values["NCCL_CTA_POLICY"] = "1"
    if dtype == "nvfp4":
        values["NVTE_USE_FAST_MATH"] = "1"
    return values | (
        _of_031(size.model, gpu, dtype)
        if bridge == "0.3.1"
        else _since_06(size, row, training, gpu)
    )


def _connections(bridge: str, training: Training, gpu: str) -> str:
    """Return 1 on Hopper to keep a communication kernel ahead of the product that it overlaps."""
    if gpu != "h100":
        return "32"
    return "1" if training.tp > 1 or training.cp > 1 else "8" if bridge == "0.3.1" else "32"


def _norms_by_cudnn(model: str, gpu: str, dtype: str) -> bool:
    if gpu == "h100":
        return (model, dtype) == ("llama3_8b", "fp8_cs")
    dtypes = {"llama3_70b": ("bf16", "fp8_cs"), "llama31_405b": ("fp8_cs",)}.get(model, ())
    return gpu in ("gb200", "gb300") and dtype in dtypes


def _of_031(model: str, gpu: str, dtype: str) -> dict[str, str]:
    is_tight = model == "llama31_405b" and gpu == "gb200" and dtype in ("fp8_cs", "fp8_mx")
    return {"PYTORCH_CUDA_ALLOC_CONF": _EXPANDABLE} if is_tight else {}


def _since_06(size: BridgeSize, row: BridgeRow, training: Training, gpu: str) -> dict[str, str]:
    captures_all = row.graphs == "local" and _FULL in row.graph_scope
    values = {"NVTE_FWD_LAYERNORM_SM_MARGIN": "20", "NVTE_BWD_LAYERNORM_SM_MARGIN": "20"}
    if captures_all:
        values["TORCH_NCCL_AVOID_RECORD_STREAMS"] = "0"
    if row.nccl_ub:
        values |= {"NCCL_NVLS_ENABLE": "1", "NCCL_CTA_POLICY": "1"}
    if not row.fsdp:
        reuse = ",graph_capture_record_stream_reuse:True" if captures_all else ""
        values |= {"NCCL_GRAPH_REGISTER": "0", "PYTORCH_CUDA_ALLOC_CONF": f"{_EXPANDABLE}{reuse}"}
    if training.pp > 1 and size.model in ("llama3_70b", "llama31_405b"):
        values["NCCL_P2P_NET_CHUNKSIZE"] = _CHUNK
    if gpu == "b300":
        values["NCCL_IGNORE_CPU_AFFINITY"] = "1"
    return values
