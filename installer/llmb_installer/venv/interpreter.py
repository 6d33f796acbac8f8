# SPDX-License-Identifier: Apache-2.0
"""Finds the Python that an environment is to be made with, and says how to get one that is missing."""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmb.errors import LlmbError
from llmb_installer.execution.runner import NoNodeError
from llmb_installer.execution.subprocesses import Commands
from llmb_installer.venv import tools

# A shim of pyenv may be there for a version that is not chosen: only a Python that answers counts.
_PROBE = "import sys; print('%d.%d %s' % (*sys.version_info[:2], sys.executable)); import venv, ensurepip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """A Python that answers: its program, its version ``X.Y``, and whether its module venv is complete."""

    program: str
    version: str
    has_venv: bool


def find(wanted: str | None, commands: Commands, *, fetch: bool) -> Python:
    """The Python ``wanted``: ``3.12``, a program, or None for the one that runs this (on a node, its python3).

    With ``fetch`` uv may fetch a version that is not here. Raises LlmbError with the ways to get it.
    """
    here = commands.context.runner.where == "here"
    if wanted is None:
        candidates = iter([sys.executable] if here else ["python3"])
    elif is_version(wanted):
        candidates = _places(wanted, commands, here=here, fetch=fetch)
    else:
        candidates = iter([str(Path(wanted).expanduser()) if "/" in wanted else wanted])
    found: Python | None = None
    for program in candidates:
        python = _probe(program, commands)
        if python is None or (wanted is not None and is_version(wanted) and python.version != wanted):
            continue
        if python.has_venv:
            return python
        found = found or python  # still good for uv
    if found is None:
        raise missing(wanted, commands.context.runner.where)
    return found


def is_version(wanted: str) -> bool:
    """Whether it is ``X.Y`` and not a program."""
    return re.fullmatch(r"\d+\.\d+", wanted) is not None


def missing(wanted: str | None, where: str) -> LlmbError:
    """What to say when it is not there."""
    place = "here" if where == "here" else f"on a node ({where})"
    if wanted is not None and not is_version(wanted):
        return LlmbError(f"there is no Python '{wanted}' {place}", hint="set 'python' in the answers to one that is")
    version = wanted or "3"
    ways = f"uv python install {version}, or your system's package (Debian: python{version} python{version}-venv)"
    hint = f"get it by {ways}; or set 'python' in the answers to the path of one, or 'venv_type: conda'"
    return LlmbError(f"there is no Python {version} {place}", hint=hint)


def _places(version: str, commands: Commands, *, here: bool, fetch: bool) -> Iterator[str]:
    """Programs that may be Python ``version``, the likeliest first."""
    name, environ = f"python{version}", commands.environ
    if not here:
        yield name
        return
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        yield sys.executable
    for folder in environ.get("PATH", "").split(":"):
        if found := shutil.which(name, path=folder or None):
            yield found
    root = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "~")).expanduser() / ".pyenv")
    yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/{name}"), reverse=True))
    if (uv := tools.find_uv(environ)) is not None:
        yield from _by_uv(uv, version, commands, fetch=fetch)


def _by_uv(uv: str, version: str, commands: Commands, *, fetch: bool) -> Iterator[str]:
    """The Python ``version`` that uv has, or fetches."""
    argv = [uv, "python", "find", "--quiet", "--managed-python", "--no-python-downloads", version]
    found = commands.read(argv)
    if found.code != 0 and fetch:
        commands.run(f"uv python install {version}", [uv, "python", "install", version])
        found = commands.read(argv)
    if found.code == 0:
        yield found.out.strip()


def _probe(program: str, commands: Commands) -> Python | None:
    """What the program says of itself; None when it does not run."""
    try:
        said = commands.read([program, "-I", "-c", _PROBE])
    except NoNodeError:
        raise
    except LlmbError:  # there is no such program
        return None
    match = re.match(r"(\d+\.\d+) (.+)", said.out)
    if match is None:
        return None
    return Python(program=match[2], version=match[1], has_venv=said.code == 0)


def own_version() -> str:
    """The version ``X.Y`` of the Python that runs this."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
