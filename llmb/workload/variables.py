# SPDX-License-Identifier: Apache-2.0
"""Which environment variables a configuration, a job list or `--env` may set, and why not the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from llmb.system.secrets import SECRETS_FILE, is_secret_name
from llmb.text.typed import KeyFaultError

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


Environment = Annotated[dict[Annotated[str, check_name], str], check_values]  # as llmb.text.typed reads it from a file
