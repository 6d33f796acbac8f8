# SPDX-License-Identifier: Apache-2.0
"""Which environment variables a configuration, a job list or `--env` may set, and why not the others."""

import re
from collections.abc import Mapping
from typing import Annotated

from llmb.system.secrets import SECRETS_FILE, is_secret_name
from llmb.text.typed import KeyFaultError
from llmb.workload.launchvars import INSTEAD

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
