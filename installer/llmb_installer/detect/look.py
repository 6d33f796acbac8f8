# SPDX-License-Identifier: Apache-2.0
"""Looks at everything once, for the questions and their defaults."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmb_installer.detect.installed import Damaged, Installed, find_installed
from llmb_installer.detect.machine import MachineFound, find_machine
from llmb_installer.detect.runai_environment import RunaiFound, find_runai
from llmb_installer.detect.scheduler import SlurmFound, find_slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """All that was found; ``slurm`` None where its commands are not here, ``home`` is the user's folder.

    ``named``: the folder of LLMB_INSTALL, be it there or not; ``damaged`` in the place of ``installed``, where that has
    a configuration that cannot be used.
    """

    home: Path
    cwd: Path
    machine: MachineFound
    slurm: SlurmFound | None = None
    runai: RunaiFound = field(default_factory=RunaiFound)
    installed: Installed | None = None
    damaged: Damaged | None = None
    named: Path | None = None

    @property
    def cluster_type(self) -> str:
        """The cluster type that this looks like: Slurm by its commands, Run:ai by its variables, else this machine."""
        is_part = self.slurm is not None and "configuration source" not in self.slurm.fault  # else only its packages
        return "slurm" if is_part else "runai" if self.runai.is_there else "local"


def look(environ: Mapping[str, str], cwd: Path, install: Path | None = None) -> Detected:
    """Look around as the user of ``environ``; ``install`` is the folder that was named."""
    here = shutil.which("sbatch", path=environ.get("PATH")) is not None
    named = environ.get("LLMB_INSTALL")
    there = find_installed(install, environ, cwd)
    return Detected(
        home=Path(environ.get("HOME") or "~").expanduser(),
        cwd=cwd,
        machine=find_machine(environ),
        slurm=find_slurm(environ) if here else None,
        runai=find_runai(environ),
        installed=there if isinstance(there, Installed) else None,
        damaged=there if isinstance(there, Damaged) else None,
        named=Path(named).expanduser().absolute() if named else None,
    )
