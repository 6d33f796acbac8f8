# SPDX-License-Identifier: Apache-2.0
"""The variables that steered NVIDIA's launch scripts, and what says the same here: no program of llmb reads them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """What takes the place of a variable: a ``key`` of a job list, an ``option``; ``note`` where neither does.

    ``{}`` stands for the variable's value.
    """

    key: str = ""
    option: str = ""
    note: str = ""

    def hint(self, value: str, *, of_list: bool) -> str:
        """What to write; ``of_list``: the variable is in a job list."""
        found = (self.key or self.option) if of_list else (self.option or self.key)
        return f"write {found.format(value)}" if found else self.note


def _param(name: str) -> Instead:
    return Instead(key=f"overrides: {{{{params: {{{{{name}: {{}}}}}}}}}}", option=f"--set {name}={{}}")


_MODEL = Instead(note="leave it out: the workload's table says how the model is made and split")
_BINDING = Instead(note="leave it out: llmb binds each rank to the NUMA node of its GPU")
_LAST_STEP = Instead(note="leave it out: save_checkpoint, --save-checkpoint saves one after the last step")

INSTEAD: Mapping[str, Instead] = {
    "JOB_TOTAL_GPUS": Instead(key="scales: [{}]", option="--scale {}"),
    "NUM_NODES": Instead(note="write the number of GPUs: scales, --scale"),
    "MODEL_SIZE": Instead(note="write the size behind the workload's name: pretrain_nemotron4_340b, -s 340b"),
    "DTYPE": Instead(key="dtypes: [{}]", option="--dtype {}"),
    "GPU_TYPE": Instead(option="--gpu-type {}"),
    "GPUS_PER_NODE": Instead(key="gpus_per_node: {}", option="--gpus-per-node {}"),
    "MAX_STEPS": Instead(key="max_steps: {}", option="--max-steps {}"),
    "RUN_CONF_MAX_STEPS": Instead(key="max_steps: {}", option="--max-steps {}"),
    "TIME_LIMIT": Instead(key="time_limit: '{}'", option="--time-limit {}"),
    "GBS": Instead(key="gbs: {}", option="--gbs {}"),
    "MBS": _param("mbs"),
    "TP": _param("tp"),
    "PP": _param("pp"),
    "CP": _param("cp"),
    "VP": _param("vp"),
    "NUM_LAYERS": _param("num_layers"),
    "HIDDEN_SIZE": _MODEL,
    "FSDP": _MODEL,
    "CONFIG_VARIANT": _MODEL,
    "OPTIMIZATION_NAME": _MODEL,
    "STRONG_SCALING": Instead(key="strong_scaling: {}", option="--strong-scaling"),
    "FP8_RECIPE": Instead(key="fp8: delayed, or fp8: current", option="--set fp8=delayed or --set fp8=current"),
    "ENABLE_PROFILE": Instead(key="profile: {}", option="--profile"),
    "PROFILE_START_STEP": Instead(key="profile_start: {}", option="--profile-start {}"),
    "PROFILE_STOP_STEP": Instead(key="profile_stop: {}", option="--profile-stop {}"),
    "PROFILE_RANKS": Instead(key="profile_ranks: {}", option="--profile-ranks {}"),
    "ENABLE_GPU_METRICS": Instead(key="gpu_metrics: {}", option="--gpu-metrics"),
    "ENABLE_NCCLTRACE": Instead(key="nccl_trace: {}", option="--nccl-trace"),
    "ENABLE_CHECKPOINT": Instead(key="save_checkpoint: {}", option="--save-checkpoint"),
    "LOAD_CHECKPOINT_PATH": Instead(key="load_checkpoint: {}", option="--load-checkpoint {}"),
    "CHECKPOINT_INTERVAL": _LAST_STEP,
    "ENABLE_VBOOST": Instead(key="vboost: {}", option="--vboost or --no-vboost"),
    "RUN_CONF_IMAGE": Instead(key="image: {}", option="--image {}"),
    "RUN_CONF_MOUNTS": Instead(key="mounts: [{}]", option="--mount {}"),
    "CPU_PER_TASK_PINNING": _BINDING,
    "ADDITIONAL_SLURM_PARAMS": Instead(note="write each of them: --slurm-arg KEY=VALUE, or slurm.args in the file"),
    "SBATCH_RESERVATION": Instead(option="--slurm-arg reservation={}"),
    "SBATCH_QOS": Instead(option="--slurm-arg qos={}"),
}


def unread(environ: Mapping[str, str], read: Iterable[str]) -> Iterator[str]:
    """The variables of a shell that steered those scripts and are not ``read``, each with what to write."""
    known = frozenset(read)
    for name, instead in INSTEAD.items():
        if name not in known and (value := environ.get(name, "").strip()):
            yield f"{name} ({instead.hint(value, of_list=False)})"
