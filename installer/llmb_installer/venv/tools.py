# SPDX-License-Identifier: Apache-2.0
"""Which tool makes an environment: uv where there is one, Python's own venv, or conda."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmb.errors import LlmbError

CONDAS = ("micromamba", "mamba", "conda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The maker of an environment, its program where it has one, and uv for the packages where there is one."""

    maker: Literal["uv", "venv", "conda"]
    program: str | None = None
    uv: str | None = None


def find_uv(environ: Mapping[str, str]) -> str | None:
    """uv on PATH, else beside the Python that runs this."""
    return shutil.which("uv", path=environ.get("PATH")) or shutil.which("uv", path=str(Path(sys.executable).parent))


def choose(asked: Literal["auto", "uv", "venv", "conda"], environ: Mapping[str, str], *, here: bool) -> Tools:
    """The tools for what was asked. On a node nothing but Python itself is counted on. Raises LlmbError."""
    if not here:
        if asked in ("uv", "conda"):
            message = f"environments of {asked} are made on this machine alone"
            raise LlmbError(message, hint="set 'venv_type: venv' or 'method: here' in the answers")
        return Tools(maker="venv")
    uv = find_uv(environ)
    if asked == "venv" or (asked == "auto" and uv is None):
        return Tools(maker="venv")
    if asked == "conda":
        return _conda(environ, uv)
    if uv is None:
        raise LlmbError("there is no uv here", hint="pip install uv, or set 'venv_type: venv' in the answers")
    return Tools(maker="uv", program=uv, uv=uv)


def _conda(environ: Mapping[str, str], uv: str | None) -> Tools:
    found = next(filter(None, (shutil.which(name, path=environ.get("PATH")) for name in CONDAS)), None)
    found = found or environ.get("CONDA_EXE") or environ.get("MAMBA_EXE")
    if found is None:
        hint = "load its module or activate it first, or set 'venv_type: venv' in the answers"
        raise LlmbError(f"there is none of {', '.join(CONDAS)} here", hint=hint)
    return Tools(maker="conda", program=found, uv=uv)
