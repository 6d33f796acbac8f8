# SPDX-License-Identifier: Apache-2.0
"""A fake of NVIDIA's library of a node's GPUs, whose values follow a script (nvml.c)."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmb.core import shell

_SOURCE = Path(__file__).with_name("nvml.c")
_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From ``second`` after the library's start on, GPU ``gpu`` (-1: each) has this value.

    ``key``: as nvml.c names them. A function's name with the value 0 makes it NOT_SUPPORTED.
    """

    key: str
    value: float
    second: float = 0.0
    gpu: int = -1


def has_compiler() -> bool:
    """Return True if this machine can build the library."""
    return shutil.which("cc") is not None


def build(folder: Path) -> Path:
    """Compile the library into ``folder``, for LD_LIBRARY_PATH, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / _LIBRARY
    if not library.exists():
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE)]
        compiled = shell.run(command)
        assert compiled.code == 0, compiled.err
    return library


def environment(library: Path, script: Path, changes: Iterable[Change]) -> dict[str, str]:
    """Write ``script`` and return the variables by which a program uses it and the ``library``."""
    lines = (f"{at.second} {at.gpu} {at.key} {at.value}\n" for at in changes)
    script.write_text("".join(lines))
    return {"LD_LIBRARY_PATH": str(library.parent), "NVML_SCRIPT": str(script)}
