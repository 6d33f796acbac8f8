# SPDX-License-Identifier: Apache-2.0
"""The variables that told the older launch scripts what to run, for `llmb-run single`: they count below its options."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from llmb.errors import Fault, InputFaults, UsageError
from llmb.workload.switches import absolute_image, parse_clock, parse_mount
from llmb.workload.variables import unread


def _text(value: str) -> str:
    return value.strip()


def _word(value: str) -> str:
    return value.strip().lower()


def _count(value: str) -> int:
    if not value.strip().isdecimal() or int(value) < 1:
        raise ValueError("must be a whole number from 1")
    return int(value)


def _step(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError("must be a whole number from 0")
    return int(value)


def _flag(value: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if value.strip().lower() not in words:
        raise ValueError("must be true or false")
    return words[value.strip().lower()]


def _image(value: str) -> str:
    return absolute_image(value)


def _clock(value: str) -> str:
    parse_clock(value)
    return value.strip()


def _mounts(value: str) -> tuple[str, ...]:
    return tuple(parse_mount(item) for item in value.split(",") if item.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable: the flag whose value it gives, how it is read, and how a later error speaks of its value."""

    flag: str
    read: Callable[[str], Any]
    spoken: str = ""


VARIABLES: Mapping[str, Variable] = {
    "JOB_TOTAL_GPUS": Variable(flag="scale", read=_count, spoken="{} GPUs|scale {}"),
    "MODEL_SIZE": Variable(flag="size", read=_text, spoken="size '{}'"),
    "DTYPE": Variable(flag="dtype", read=_word, spoken="dtype '{}'"),
    "GPU_TYPE": Variable(flag="gpu_type", read=_word, spoken="GPU type '{}'"),
    "GPUS_PER_NODE": Variable(flag="gpus_per_node", read=_count, spoken="nodes of {}|{} ranks on each node"),
    "MAX_STEPS": Variable(flag="max_steps", read=_count, spoken="step {}|not {}"),
    "GBS": Variable(flag="gbs", read=_count, spoken="global batch {}"),
    "TIME_LIMIT": Variable(flag="time_limit", read=_clock),
    "STRONG_SCALING": Variable(flag="strong_scaling", read=_flag, spoken="strong scaling"),
    "ENABLE_PROFILE": Variable(flag="profile", read=_flag, spoken="a profile and|for a profile"),
    "PROFILE_START_STEP": Variable(flag="profile_start", read=_step, spoken="from step {}"),
    "PROFILE_STOP_STEP": Variable(flag="profile_stop", read=_count, spoken="step {}"),
    "PROFILE_RANKS": Variable(flag="profile_ranks", read=_text, spoken="profile_ranks '{}'"),
    "ENABLE_GPU_METRICS": Variable(flag="gpu_metrics", read=_flag),
    "ENABLE_NCCLTRACE": Variable(flag="nccl_trace", read=_flag, spoken="NCCL trace"),
    "ENABLE_CHECKPOINT": Variable(flag="save_checkpoint", read=_flag, spoken="save a checkpoint"),
    "LOAD_CHECKPOINT_PATH": Variable(flag="load_checkpoint", read=_text, spoken="load|loads a checkpoint"),
    "ENABLE_VBOOST": Variable(flag="vboost", read=_flag),
    "RUN_CONF_IMAGE": Variable(flag="image", read=_image, spoken="'image'"),
    "RUN_CONF_MOUNTS": Variable(flag="mounts", read=_mounts, spoken="'mounts'"),
}
_GPUS, _NODES, _CLUSTER_TYPE = "JOB_TOTAL_GPUS", "NUM_NODES", "CLUSTER_TYPE"
# How messages speak of what --set gives, where not by its name.
_PARAMS = {"gbs": "global batch {}", "max_steps": "step {}|not {}", "num_layers": "{} layers"}
_OF_PROFILES = ("PROFILE_START_STEP", "PROFILE_STOP_STEP", "PROFILE_RANKS", "ENABLE_GPU_METRICS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """What the variables come to: the flags with their values, the variables used by name, and a sentence for each."""

    flags: dict[str, Any]
    used: dict[str, str]
    said: tuple[str, ...]


def read_variables(flags: Mapping[str, Any], given: Collection[str], environ: Mapping[str, str]) -> Direct:
    """``flags`` with the values of the variables in ``environ`` for those that are not ``given`` on the command line.

    An empty variable is as good as none. Raises InputFaults that name each variable with a wrong value.
    """
    values, used, beaten, faults = dict(flags), dict[str, str](), list[str](), list[Fault]()
    for name, variable in {**VARIABLES, _NODES: Variable(flag="num_nodes", read=_count)}.items():
        text = environ.get(name, "")
        if not text.strip():
            continue
        option = "scale" if name == _NODES else variable.flag
        if option in given:
            beaten.append(f"{name} (--{option.replace('_', '-')} is given)")
            continue
        try:
            values[variable.flag] = variable.read(text)
            used[name] = text.strip()
        except ValueError as error:
            faults.append(Fault(place=f"{name}={text}", message=str(error), hint=f"unset {name}, or mend it"))
    if faults:
        raise InputFaults(faults)
    idle = [name for name in _OF_PROFILES if name in used and not values["profile"]]
    for name in idle:
        values[VARIABLES[name].flag] = flags[VARIABLES[name].flag]
        del used[name]
    beaten += [f"{name} (ENABLE_PROFILE is not true)" for name in idle if environ[name].strip().lower() != "false"]
    beaten += unread(environ, (*VARIABLES, _NODES))
    said = [f"from the environment: {' '.join(f'{name}={text}' for name, text in used.items())}"] if used else []
    said += [f"not used: {', '.join(beaten)}"] if beaten else []
    return Direct(flags=values, used=used, said=tuple(said))


def scale_of_nodes(flags: Mapping[str, Any], per_node: int) -> int:
    """The GPU count that NUM_NODES of release 24.11 stands for, with ``per_node`` GPUs on each.

    Raises UsageError where JOB_TOTAL_GPUS says another.
    """
    nodes: int = flags["num_nodes"]
    gpus = nodes * per_node
    if flags["scale"] not in (None, gpus):
        message = f"NUM_NODES={nodes} of {per_node} GPUs are {gpus} GPUs, and {_GPUS} says {flags['scale']}"
        raise UsageError(message, hint=f"unset NUM_NODES or {_GPUS}")
    return gpus


def check_cluster_type(environ: Mapping[str, str], cluster_type: str) -> None:
    """Raise UsageError where CLUSTER_TYPE asks for another kind of cluster than the install directory is for."""
    wanted = environ.get(_CLUSTER_TYPE, "").strip().lower()
    if wanted and wanted != cluster_type:
        message = f"{_CLUSTER_TYPE}={wanted}: this install directory is for cluster type {cluster_type}"
        raise UsageError(message, hint=f"--install names another, or unset {_CLUSTER_TYPE}")


def name_variables(error: UsageError, used: Mapping[str, str], given: Mapping[str, str]) -> InputFaults:
    """The error with each fault that speaks of a value placed where the value came from.

    ``given`` has the pairs of --set, ``used`` the variables: both are words of one command line.
    """
    faults = error.faults if isinstance(error, InputFaults) else [Fault(message=error.message, hint=error.hint)]
    hint = error.hint if isinstance(error, InputFaults) else None
    return InputFaults([_placed(fault, used, given) for fault in faults], hint=hint)


def _placed(fault: Fault, used: Mapping[str, str], given: Mapping[str, str]) -> Fault:
    if fault.place:
        return fault
    named = [f"--set {name}={text}" for name, text in given.items() if _speaks(fault, _PARAMS.get(name, name), text)]
    named += [f"{name}={text}" for name, text in used.items() if name != _GPUS and _of_variable(fault, name, text)]
    if not named and _GPUS in used and _of_variable(fault, _GPUS, used[_GPUS]):  # most messages speak of it as well
        named = [f"{_GPUS}={used[_GPUS]}"]
    return Fault(place=" ".join(named), message=fault.message, hint=fault.hint)


def _of_variable(fault: Fault, name: str, text: str) -> bool:
    variable = VARIABLES.get(name)
    return variable is not None and bool(variable.spoken) and _speaks(fault, variable.spoken, variable.read(text))


def _speaks(fault: Fault, spoken: str, value: Any) -> bool:
    """Whether the message has one of the forms as whole words."""
    forms = (re.escape(form.format(value)) for form in spoken.split("|"))
    return any(re.search(rf"(?<!\w){form}(?!\w)", fault.message) for form in forms)
