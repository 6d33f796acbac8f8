# SPDX-License-Identifier: Apache-2.0
"""Environment variables of jobs: which ones may be set, and what replaces those of NVIDIA's launch scripts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from llmb.errors import KeyFaultError
from llmb.system.secrets import SECRETS_FILE, is_secret_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The replacement of a variable: a ``key`` of a job list, an ``option``, or a ``note`` where there is neither.

    ``{}`` is replaced by the variable's value.
    """

    key: str = ""
    option: str = ""
    note: str = ""

    def hint(self, value: str, *, of_list: bool) -> str:
        """What to write instead; ``of_list``: the variable is in a job list."""
        found = (self.key or self.option) if of_list else (self.option or self.key)
        return f"write {found.format(value)}" if found else self.note


def _param(name: str) -> Replacement:
    return Replacement(key=f"overrides: {{{{params: {{{{{name}: {{}}}}}}}}}}", option=f"--set {name}={{}}")


_MODEL = Replacement(note="omit it: the workload's table has the model's shape and parallelism")
_BINDING = Replacement(note="omit it: llmb binds each rank to the NUMA node of its GPU")
_LAST_STEP = Replacement(note="omit it: save_checkpoint, --save-checkpoint saves one after the last step")

REPLACEMENTS: Mapping[str, Replacement] = {
    "JOB_TOTAL_GPUS": Replacement(key="scales: [{}]", option="--scale {}"),
    "NUM_NODES": Replacement(note="write the number of GPUs: scales, --scale"),
    "MODEL_SIZE": Replacement(note="write the size after the workload's name: pretrain_nemotron4_340b, or -s 340b"),
    "DTYPE": Replacement(key="dtypes: [{}]", option="--dtype {}"),
    "GPU_TYPE": Replacement(option="--gpu-type {}"),
    "GPUS_PER_NODE": Replacement(key="gpus_per_node: {}", option="--gpus-per-node {}"),
    "MAX_STEPS": Replacement(key="max_steps: {}", option="--max-steps {}"),
    "RUN_CONF_MAX_STEPS": Replacement(key="max_steps: {}", option="--max-steps {}"),
    "TIME_LIMIT": Replacement(key="time_limit: '{}'", option="--time-limit {}"),
    "GBS": Replacement(key="gbs: {}", option="--gbs {}"),
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
    "STRONG_SCALING": Replacement(key="strong_scaling: {}", option="--strong-scaling"),
    "FP8_RECIPE": Replacement(key="fp8: delayed, or fp8: current", option="--set fp8=delayed or --set fp8=current"),
    "ENABLE_PROFILE": Replacement(key="profile: {}", option="--profile"),
    "PROFILE_START_STEP": Replacement(key="profile_start: {}", option="--profile-start {}"),
    "PROFILE_STOP_STEP": Replacement(key="profile_stop: {}", option="--profile-stop {}"),
    "PROFILE_RANKS": Replacement(key="profile_ranks: {}", option="--profile-ranks {}"),
    "ENABLE_GPU_METRICS": Replacement(key="gpu_metrics: {}", option="--gpu-metrics"),
    "ENABLE_NCCLTRACE": Replacement(key="nccl_trace: {}", option="--nccl-trace"),
    "ENABLE_CHECKPOINT": Replacement(key="save_checkpoint: {}", option="--save-checkpoint"),
    "LOAD_CHECKPOINT_PATH": Replacement(key="load_checkpoint: {}", option="--load-checkpoint {}"),
    "CHECKPOINT_INTERVAL": _LAST_STEP,
    "ENABLE_VBOOST": Replacement(key="vboost: {}", option="--vboost or --no-vboost"),
    "RUN_CONF_IMAGE": Replacement(key="image: {}", option="--image {}"),
    "RUN_CONF_MOUNTS": Replacement(key="mounts: [{}]", option="--mount {}"),
    "CPU_PER_TASK_PINNING": _BINDING,
    "ADDITIONAL_SLURM_PARAMS": Replacement(note="write each of them: --slurm-arg KEY=VALUE, or slurm.args in the file"),
    "SBATCH_RESERVATION": Replacement(option="--slurm-arg reservation={}"),
    "SBATCH_QOS": Replacement(option="--slurm-arg qos={}"),
}


def unread(environ: Mapping[str, str], read: Iterable[str]) -> Iterator[str]:
    """The variables of those scripts in ``environ`` that are not ``read``, each with what to write instead."""
    known = frozenset(read)
    for name, replacement in REPLACEMENTS.items():
        if name not in known and (value := environ.get(name, "").strip()):
            yield f"{name} ({replacement.hint(value, of_list=False)})"


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RENDEZVOUS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"})
_PREFIXES = ("LLMB_", "SLURM_")
_PORT = "MASTER_PORT"
_PORTS = range(1024, 65536)


def check_name(name: str) -> None:
    """Raise KeyFaultError for a name that a job's environment may not have."""
    check_passed(name)
    if is_secret_name(name):
        raise KeyFaultError(
            f"{name} looks like a secret; a job's environment is written into its script and record",
            hint=f"export it, or write it to {SECRETS_FILE}: llmb passes it by name where the workload needs it; "
            "pass_environment in cluster_config.yaml names further variables to pass from the shell",
        )


def check_passed(name: str) -> None:
    """Raise KeyFaultError for a name that may not be passed from the submitting shell either; secrets may."""
    if not _NAME.fullmatch(name):
        message = f"'{name}' is not a valid name of a variable"
        raise KeyFaultError(message, hint="use letters, digits and _, and no digit first")
    if name == "PATH":
        message = "PATH is set by the node or the image: with another the job's script may not find its programs"
        raise KeyFaultError(message, hint="omit it")
    if name.startswith("SBATCH_"):
        message = f"{name} is an option of sbatch, not a variable of a job"
        raise KeyFaultError(message, hint="set it in 'slurm' of cluster_config.yaml, or by --slurm-arg")
    if name in _RENDEZVOUS or name.startswith(_PREFIXES):
        message = f"{name} is set by llmb or the scheduler: with another value the ranks would not find each other"
        raise KeyFaultError(message, hint="omit it; the scale sets the number of ranks")


def check_values(env: Mapping[str, str]) -> None:
    """Raise KeyFaultError for an invalid value; only MASTER_PORT has a rule."""
    port = env.get(_PORT)
    if port is not None and not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) in _PORTS):
        message = f"{_PORT} must be a port from {_PORTS[0]} to {_PORTS[-1]}, not '{port}'"
        raise KeyFaultError(message, _PORT, hint="omit it: llmb chooses one for each job")


def check_effects(env: Mapping[str, str | bool], *, of_list: bool = True) -> None:
    """Raise KeyFaultError for variables of NVIDIA's launch scripts: no program of llmb reads them.

    ``of_list``: they are in a job list, else in ``--env``.
    """
    found = {
        name: REPLACEMENTS[name].hint(str(value).lower() if isinstance(value, bool) else value, of_list=of_list)
        for name, value in env.items()
        if name in REPLACEMENTS
    }
    if found:
        names = " and ".join(filter(None, [", ".join([*found][:-1]), [*found][-1]]))
        verb = "configures" if len(found) == 1 else "configure"
        message = f"{names} {verb} NVIDIA's launch scripts and would have no effect on a job here"
        hints = [f"{name}: {hint}" if len(found) > 1 else hint for name, hint in found.items()]
        raise KeyFaultError(message, next(iter(found)), hint="; ".join(hints))


def _check_listed(env: Mapping[str, str | bool]) -> None:
    check_values({name: str(value) for name, value in env.items()})
    check_effects(env)


# In a job list. YAML's true and false become True and False, as in NVIDIA's lists.
JobEnvironment = Annotated[dict[Annotated[str, check_name], bool | str], _check_listed]
Environment = Annotated[dict[Annotated[str, check_name], str], check_values]  # as llmb.text.typed reads it from a file
