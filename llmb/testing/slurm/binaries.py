# SPDX-License-Identifier: Apache-2.0
"""The programs of a Slurm cluster, and the Debian packages that hold them."""

import os
import shutil

from llmb.errors import LlmbError

_CLUSTER = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sinfo": "slurm-client",
}
_ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core"}


def missing_packages(*, accounting: bool) -> list[str]:
    """The Debian packages to install before a cluster can start; none when all are there."""
    wanted = _CLUSTER | (_ACCOUNTING if accounting else {})
    return list(dict.fromkeys(package for program, package in wanted.items() if _find(program) is None))


def path_of(program: str) -> str:
    """The full path of a program, of those for administrators too. Raises LlmbError."""
    found = _find(program)
    if found is None:
        package = (_CLUSTER | _ACCOUNTING).get(program, program)
        raise LlmbError(f"there is no program '{program}' here", hint=f"on Debian: apt-get install {package}")
    return found


def search_path() -> str:
    """PATH with the folders of administrators' programs."""
    return ":".join([os.environ.get("PATH", "/usr/bin:/bin"), "/usr/sbin", "/sbin"])


def _find(program: str) -> str | None:
    return shutil.which(program, path=search_path())
