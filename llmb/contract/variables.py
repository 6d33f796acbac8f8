# SPDX-License-Identifier: Apache-2.0
"""Environment variables that jobs may have, from a configuration, a job list or --env."""

import re
from collections.abc import Mapping
from typing import Annotated

from llmb.core.secrets import SECRETS_FILE, is_secret_name
from llmb.errors import KeyFaultError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RENDEZVOUS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"})
_PREFIXES = ("LLMB_", "SLURM_")
_PORT = "MASTER_PORT"
_PORTS = range(1024, 65536)


def check_name(name: str) -> None:
    """Raise KeyFaultError for a name that a job's environment may not have."""
    check_passed(name)
    if is_secret_name(name):
        raise _secret(f"{name} looks like a secret")


def _secret(what: str, *path: str) -> KeyFaultError:
    """Return the fault, which does not quote the value."""
    return KeyFaultError(
        f"{what}; a job's environment is written into its script and record",
        *path,
        hint=(
            f"export it, or write it to {SECRETS_FILE}: llmb passes it by name where the"
            " workload needs it; pass_environment in cluster_config.yaml names further"
            " variables to pass from the shell"
        ),
        value="<secret>",
    )


def check_passed(name: str) -> None:
    """Raise KeyFaultError for a name that may not come from the shell either. Secrets may."""
    if not _NAME.fullmatch(name):
        message = f"'{name}' is not a valid name of a variable"
        raise KeyFaultError(message, hint="use letters, digits and _, and no digit first")
    if name == "PATH":
        raise KeyFaultError(
            "PATH is set by the node or the image: with another the job's script may not find its"
            " programs",
            hint="omit it",
        )
    if name.startswith("SBATCH_"):
        raise KeyFaultError(
            f"{name} is an option of sbatch, not a variable of a job",
            hint="set it in 'slurm' of cluster_config.yaml, or by the option of that name",
        )
    if name in _RENDEZVOUS or name.startswith(_PREFIXES):
        raise KeyFaultError(
            f"{name} is set by llmb or the scheduler: with another value the ranks would not find"
            " each other",
            hint="omit it; the scale sets the number of ranks",
        )


def check_values(env: Mapping[str, str]) -> None:
    """Raise KeyFaultError for a value that looks like a secret, and a MASTER_PORT that is none."""
    if env:
        from llmb.core.secret_patterns import looks_secret

        for name, value in env.items():
            if looks_secret(value):
                raise _secret(f"the value of {name} looks like a secret", name)
    port = env.get(_PORT)
    if port is not None and not (
        port.isascii() and port.isdecimal() and len(port) < 6 and int(port) in _PORTS
    ):
        message = f"{_PORT} must be a port from {_PORTS[0]} to {_PORTS[-1]}, not '{port}'"
        raise KeyFaultError(message, _PORT, hint="omit it: llmb chooses one for each job")


# as llmb.core.typed reads it from a file
Environment = Annotated[dict[Annotated[str, check_name], str], check_values]
