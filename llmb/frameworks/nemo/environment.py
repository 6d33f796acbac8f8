# SPDX-License-Identifier: Apache-2.0
"""The variables that NeMo's ranks run with, by GPU type, parallelism and model."""

from collections.abc import Mapping

from llmb.runs.job import Job
from llmb.workload.spec import NemoRecipe

_ALWAYS: Mapping[str, str] = {
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TOKENIZERS_PARALLELISM": "False",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FLASH_ATTN": "1",
    "NVTE_FUSED_ATTN": "1",
    "NEMO_LOG_MEMORY_USAGE": "1",
    # Streaming multiprocessors that the norms leave to the communication beside them.
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
}
_BLACKWELL = ("b200", "gb200")


def environment_of(job: Job, nemo: NemoRecipe, gpu: str, *, asks_hub: bool = False) -> dict[str, str]:
    """What the ranks of ``job`` need on the known GPU type ``gpu``; the job's own variables come over these.

    ``asks_hub``: whether they fetch files from the model hub.

    Source: the launch scripts of releases 25.04 to 25.07.
    """
    found = {**_ALWAYS, "TRANSFORMERS_OFFLINE": "0" if asks_hub else "1"}
    if job.tp > 1 or job.cp > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if gpu in _BLACKWELL else "1"
    if job.pp > 1:
        found["NCCL_P2P_NET_CHUNKSIZE"] = "2097152"
    if gpu == "gb200":
        found["NCCL_NET_GDR_LEVEL"] = "PHB"
    return {**found, **nemo.environment}
