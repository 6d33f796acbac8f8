# SPDX-License-Identifier: Apache-2.0
"""What this machine has for making environments of Python, and what it is."""

import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 10)  # the oldest Python that the programs of compute nodes run on


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFound:
    """This machine: ``pythons`` are programs by version (``3.12``), ``venv_types`` what can be made, best first."""

    architecture: str
    pythons: Mapping[str, str]
    venv_types: tuple[str, ...]


def find_machine(environ: Mapping[str, str] | None = None) -> MachineFound:
    """Look at this machine; starts no process."""
    search = (os.environ if environ is None else environ).get("PATH", os.defpath)
    tools = [("uv", "uv"), ("venv", None), ("conda", "conda")]
    kinds = [kind for kind, program in tools if program is None or shutil.which(program, path=search)]
    return MachineFound(architecture=platform.machine(), pythons=_pythons(search), venv_types=tuple(kinds))


def _pythons(search: str) -> dict[str, str]:
    """The Pythons on PATH by version, the first of each, oldest first."""
    found: dict[tuple[int, int], str] = {}
    for folder in filter(None, search.split(os.pathsep)):
        for path in sorted(Path(folder).glob("python3.*")):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            version = (3, int(match[1])) if match else (0, 0)
            if version >= OLDEST and version not in found and os.access(path, os.X_OK):
                found[version] = str(path)
    return {f"{major}.{minor}": found[major, minor] for major, minor in sorted(found)}
