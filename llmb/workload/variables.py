# SPDX-License-Identifier: Apache-2.0
"""Environment variables of jobs: which ones may be set, and what replaces those of NVIDIA's launch scripts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from llmb.system.secrets import SECRETS_FILE, is_secret_name
from llmb.text.typed import KeyFaultError


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


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RENDEZVOUS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"})
_PREFIXES = ("LLMB_", "SLURM_")
_PORT = "MASTER_PORT"
_PORTS = range(1024, 65536)


def check_name(name: str) -> None:
    """Raise KeyFaultError for a name that no job's environment may have: its message begins with the name."""
    check_passed(name)
    if is_secret_name(name):
        raise KeyFaultError(
            f"{name} looks like a secret; a job's environment is written into its script and record",
            hint=f"export it, or keep it in {SECRETS_FILE}: llmb passes it on by name where the workload needs it; "
            "pass_environment in cluster_config.yaml names what else to take from the shell",
        )


def check_passed(name: str) -> None:
    """Raise KeyFaultError for a name that may not be taken from the submitting shell either; a secret may."""
    if not _NAME.fullmatch(name):
        message = f"'{name}' is not a name that a shell can give a variable"
        raise KeyFaultError(message, hint="letters, digits and _, no digit first")
    if name == "PATH":
        message = "PATH is the node's or the image's own: with another the job's script may not find its programs"
        raise KeyFaultError(message, hint="leave it out")
    if name.startswith("SBATCH_"):
        message = f"{name} is an option of sbatch, and no variable of a job"
        raise KeyFaultError(message, hint="'slurm' in cluster_config.yaml takes it, or --slurm-arg")
    if name in _RENDEZVOUS or name.startswith(_PREFIXES):
        message = f"{name} is set by llmb or the scheduler: with another value the ranks would not find each other"
        raise KeyFaultError(message, hint="leave it out; the scale says how many ranks there are")


def check_values(env: Mapping[str, str]) -> None:
    """Raise KeyFaultError for a value that its variable cannot have; MASTER_PORT alone has a rule."""
    port = env.get(_PORT)
    if port is not None and not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) in _PORTS):
        message = f"{_PORT} must be a port from {_PORTS[0]} to {_PORTS[-1]}, not '{port}'"
        raise KeyFaultError(message, _PORT, hint="leave it out: llmb chooses one for each job")


def check_effects(env: Mapping[str, str | bool], *, of_list: bool = True) -> None:
    """Raise KeyFaultError for variables that steer NVIDIA's launch scripts: no program of llmb reads them.

    ``of_list``: they are in a job list, else in ``--env``.
    """
    found = {name: INSTEAD[name].hint(_word(value), of_list=of_list) for name, value in env.items() if name in INSTEAD}
    if found:
        names = " and ".join(filter(None, [", ".join([*found][:-1]), [*found][-1]]))
        verb = "steers" if len(found) == 1 else "steer"
        message = f"{names} {verb} NVIDIA's launch scripts, and would change nothing of a job here"
        hints = [f"{name}: {hint}" if len(found) > 1 else hint for name, hint in found.items()]
        raise KeyFaultError(message, next(iter(found)), hint="; ".join(hints))


def _word(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _check_listed(env: Mapping[str, str | bool]) -> None:
    check_values({name: str(value) for name, value in env.items()})
    check_effects(env)


# As a job list has it. YAML's true and false become the texts that Python has for them, as in the lists of NVIDIA.
JobEnvironment = Annotated[dict[Annotated[str, check_name], bool | str], _check_listed]
Environment = Annotated[dict[Annotated[str, check_name], str], check_values]  # as llmb.text.typed reads it from a file
