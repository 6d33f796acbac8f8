# SPDX-License-Identifier: Apache-2.0
"""Joins the layers of a configuration: cluster_config.yaml < the user's file < SBATCH_*."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.contract.gpus import GpuTypes, known_types
from llmb.contract.sbatch import (
    OWN_OPTIONS,
    SlurmConfig,
    SlurmOptions,
    check_slurm_args,
    long_name,
)
from llmb.contract.schema import ClusterConfig, GpuTypeConfig
from llmb.core import files, typed, yamlfile
from llmb.core.values import dataclass
from llmb.errors import Fault, InputFaults, KeyFaultError
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.read_config import ClusterTypes, read_config

# Each option of sbatch with the variables that set it, the older spelling last.
_VARIABLES = {
    "account": ("SBATCH_ACCOUNT", "SLURM_ACCOUNT"),
    "partition": ("SBATCH_PARTITION", "SLURM_PARTITION"),
    "gres": ("SBATCH_GPUS_PER_NODE", "SLURM_GPUS_PER_NODE"),
    "qos": ("SBATCH_QOS",),
    "reservation": ("SBATCH_RESERVATION",),
}
_OVERRIDDEN_BY = {"gres": ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")}
NO_ARGS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """~/.config/llmb/config.yaml: the settings of one user of a shared install."""

    account: str | None = None
    partition: str | None = None
    experiments_root: Path | None = None


def load_config(
    install: Path,
    environ: Mapping[str, str],
    slurm_args: Mapping[str, object] = NO_ARGS,
    types: Callable[[], GpuTypes] = known_types,
    *,
    cluster_types: Callable[[], ClusterTypes],
    any_type: bool = False,
) -> tuple[ClusterConfig, list[str]]:
    """Return the configuration of ``install``, and a note for each layer above the file.

    ``slurm_args``: the sbatch options of the command line, only for the notes: ``with_slurm_args``
    adds them. ``types`` returns every known GPU type and is called if the file names one that llmb
    does not know. ``cluster_types``: every known cluster type. ``any_type``: as of
    ``read_config``. Raises InputFaults with file, line and the nearest valid key.
    """
    document = yamlfile.load(install / CONFIG_FILE)
    gpu_types = known_types() if _named_types(document.data) <= known_types().keys() else types()
    config = read_config(document, types=gpu_types, cluster_types=cluster_types, any_type=any_type)
    notes: list[str] = []
    named = config.llmb_install
    if named not in (Path(), install) and not (named.is_dir() and named.samefile(install)):
        notes.append(f"{install} is used; its {CONFIG_FILE} still has llmb_install: {named}")
    config = replace(config, llmb_install=install)
    user_file = files.expand(environ.get("XDG_CONFIG_HOME") or "~/.config") / "llmb" / "config.yaml"
    if user_file.is_file():
        config = _with_user(config, typed.read(UserConfig, yamlfile.load(user_file)))
        notes.append(f"{user_file} overrides {CONFIG_FILE}")
    if config.slurm is not None:
        over = dict.fromkeys(_options(config.slurm.args), f"slurm.args of {CONFIG_FILE}")
        over |= dict.fromkeys(_options(slurm_args), "the command line")
        options = _variables(environ, over, notes)
        config = replace(
            config.with_slurm(_set(config.slurm, options)),
            gpu_types=_without(config.gpu_types, options),
        )
    return config, notes


def _named_types(data: Any) -> set[str]:
    """Return the GPU types that a configuration names. Reading it finds what else is wrong."""
    if not isinstance(data, dict):
        return set()
    names = [data.get("gpu_type")]
    if isinstance(entries := data.get("gpu_types"), dict):
        names += [
            *entries,
            *(entry.get("like") for entry in entries.values() if isinstance(entry, dict)),
        ]
    return {name for name in names if isinstance(name, str)}


def with_slurm_args(config: ClusterConfig, args: Mapping[str, str | bool]) -> ClusterConfig:
    """Return the configuration with sbatch's options ``args`` above all. Raises UsageError."""
    if not args:
        return config
    if not config.traits.sbatch_options:
        faults = [_refused(name, config) for name in map(long_name, args)]
        raise InputFaults(faults, code="option-without-effect")
    try:
        check_slurm_args(args)
    except KeyFaultError as error:
        raise InputFaults([error.as_fault("--slurm-arg")]) from error
    slurm = config.slurm or SlurmConfig()
    # The time limit is part of the job, and its launch has it.
    options = {name: value for name, value in args.items() if long_name(name) != "time"}
    return config.with_slurm(replace(slurm, args={**slurm.args, **options}))


def _refused(name: str, config: ClusterConfig) -> Fault:
    option = f"--{name}" if name in OWN_OPTIONS else f"--slurm-arg {name}"
    return Fault(
        message=f"{option} is an option of Slurm, and this cluster has type {config.cluster_type}",
        hint=config.traits.instead_of(name),
        code="option-without-effect",
        key=option,
        value=config.cluster_type,
    )


def _with_user(config: ClusterConfig, user: UserConfig) -> ClusterConfig:
    if user.experiments_root is not None:
        config = replace(config, experiments_root=user.experiments_root)
    options: dict[str, str | int | None] = {
        name: value
        for name in ("account", "partition")
        if (value := getattr(user, name)) is not None
    }
    return config if config.slurm is None else config.with_slurm(_set(config.slurm, options))


def _options(args: Mapping[str, object]) -> list[str]:
    """Return the options' long names, without a GPU count of null or false.

    Such a count leaves the number to another option.
    """
    return [name for key, value in args.items() if (name := long_name(key)) in _VARIABLES or value]


def _variables(
    environ: Mapping[str, str], over: Mapping[str, str], notes: list[str]
) -> dict[str, str | int | None]:
    """Return the options that the shell's variables set.

    ``over``: the options that override them, each with its source.
    """
    options: dict[str, str | int | None] = {}
    # In an allocation, Slurm itself sets these for the allocation.
    allocation_prefix = "SLURM_" if environ.get("SLURM_JOB_ID") else None
    for option, names in _VARIABLES.items():
        usable = (
            name
            for name in names
            if allocation_prefix is None or not name.startswith(allocation_prefix)
        )
        name = next((name for name in usable if environ.get(name)), None)
        if name is None:
            continue
        value = environ[name]
        if (
            higher := next(
                (
                    overriding
                    for overriding in _OVERRIDDEN_BY.get(option, (option,))
                    if overriding in over
                ),
                None,
            )
        ) is not None:
            notes.append(f"{name}={value} is not used: {over[higher]} sets {higher}")
            continue
        options[option] = None if value.lower() == "null" else value
        if option == "gres":
            options |= {
                "gres": int(value) if value.isdecimal() else options["gres"],
                "gpus_per_node": None,
            }
        notes.append(f"{name}={value} is used as the {option} of GPU jobs")
    return options


def _without(
    types: dict[str, GpuTypeConfig], options: Mapping[str, object]
) -> dict[str, GpuTypeConfig]:
    """The GPU types without the options that a higher layer sets for all GPU jobs."""
    fields = {"partition": ("partition",), "gres": ("gres", "gpus_per_node")}
    unset = {name: None for option, names in fields.items() if option in options for name in names}
    return {name: replace(gpu_type, **unset) for name, gpu_type in types.items()}


def _set(slurm: SlurmConfig, options: dict[str, str | int | None]) -> SlurmConfig:
    return replace(slurm, gpu=SlurmOptions({**slurm.gpu.given, **options}))
