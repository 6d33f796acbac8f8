# SPDX-License-Identifier: Apache-2.0
"""Finds the tool that makes an environment, and the Python that it is made with."""

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from llmb.core import files
from llmb.core.shell import StoppedError
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb_installer.execution.runner import NoNodeError
from llmb_installer.step import Commands, Progress

CONDAS = ("micromamba", "mamba", "conda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tool that makes an environment, and uv if it installs the packages.

    ``program`` is None for venv.
    """

    maker: Literal["uv", "venv", "conda"]
    program: str | None = None
    uv: str | None = None


def find_uv(environ: Mapping[str, str]) -> str | None:
    """Return uv on PATH, else next to the Python that runs this."""
    return shutil.which("uv", path=environ.get("PATH")) or shutil.which(
        "uv", path=str(Path(sys.executable).parent)
    )


def choose(
    venv_type: Literal["auto", "uv", "venv", "conda"], environ: Mapping[str, str], *, is_here: bool
) -> Tools:
    """Return the tools for the answer ``venv_type``; on a node only venv. Raises LlmbError."""
    if not is_here:
        if venv_type in ("uv", "conda"):
            message = f"{venv_type} makes environments on this machine only, not on a node"
            hint = "set 'venv_type: venv' or 'method: here' in the answers"
            raise LlmbError(message, hint=hint, code="tool-not-on-nodes", key=venv_type)
        return Tools(maker="venv")
    uv = find_uv(environ)
    if venv_type == "venv" or (venv_type == "auto" and uv is None):
        return Tools(maker="venv")
    if venv_type == "conda":
        return _conda(environ, uv)
    if uv is None:
        hint = "pip install uv, or set 'venv_type: venv' in the answers"
        raise LlmbError("uv is not installed", hint=hint, code="no-uv")
    return Tools(maker="uv", program=uv, uv=uv)


def _conda(environ: Mapping[str, str], uv: str | None) -> Tools:
    program = next(
        filter(None, (shutil.which(name, path=environ.get("PATH")) for name in CONDAS)), None
    )
    program = program or environ.get("CONDA_EXE") or environ.get("MAMBA_EXE")
    if program is None:
        hint = "load its module or activate it first, or set 'venv_type: venv' in the answers"
        raise LlmbError(f"none of {', '.join(CONDAS)} is installed", hint=hint, code="no-conda")
    return Tools(maker="conda", program=program, uv=uv)


# pyenv has shims for versions that it does not run: only a Python that answers is used.
_PROBE = (
    "import sys; print('%d.%d %s' % (*sys.version_info[:2], sys.executable)); import venv,"
    " ensurepip"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """A Python that runs: its program and its version ``X.Y``.

    ``has_venv``: its module venv is complete.
    """

    program: str
    version: str
    has_venv: bool


def find(python_answer: str | None, commands: Commands, *, fetch: bool) -> Python:
    """Return the Python of the answer: ``3.12``, a program, or None for the one that runs this.

    On a node, None is its python3. With ``fetch`` uv may download a missing version. Raises
    LlmbError with the ways to get it.
    """
    is_here = commands.context.runner.where == "here"
    if python_answer is None:
        candidates = iter([sys.executable] if is_here else ["python3"])
    elif is_version(python_answer):
        candidates = _places(python_answer, commands, is_here=is_here, fetch=fetch)
    else:
        candidates = iter(
            [str(files.expand(python_answer)) if "/" in python_answer else python_answer]
        )
    without_venv: Python | None = None
    for program in candidates:
        python = _probe(program, commands)
        if python is None or (
            python_answer is not None
            and is_version(python_answer)
            and python.version != python_answer
        ):
            continue
        if python.has_venv:
            return python
        without_venv = without_venv or python  # still good for uv
    if without_venv is None:
        raise missing(python_answer, commands.context.runner.where)
    return without_venv


def is_version(text: str) -> bool:
    """Return True if ``text`` is ``X.Y`` and not a program."""
    return re.fullmatch(r"\d+\.\d+", text) is not None


def missing(python_answer: str | None, machine: str) -> LlmbError:
    """Return the error for a missing Python, with the ways to get it."""
    place = "on this machine" if machine == "here" else f"on a node ({machine})"
    if python_answer is not None and not is_version(python_answer):
        return LlmbError(
            f"Python '{python_answer}' is missing {place}",
            hint="set 'python' in the answers to another program or version",
            code="no-python",
            value=python_answer,
        )
    version = python_answer or "3"
    ways = (
        f"uv python install {version}, or your system's package (Debian: python{version}"
        f" python{version}-venv)"
    )
    hint = f"install it: {ways}; or set 'python' in the answers to its path, or 'venv_type: conda'"
    return LlmbError(
        f"Python {version} is missing {place}", hint=hint, code="no-python", value=version
    )


def _places(version: str, commands: Commands, *, is_here: bool, fetch: bool) -> Iterator[str]:
    """Yield programs that may be Python ``version``, the most likely first."""
    name, environ = f"python{version}", commands.environ
    if not is_here:
        yield name
        return
    if own_version() == version:
        yield sys.executable
    for folder in environ.get("PATH", "").split(":"):
        if program := shutil.which(name, path=folder or None):
            yield program
    root = Path(environ.get("PYENV_ROOT") or files.expand(environ.get("HOME", "~")) / ".pyenv")
    yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/{name}"), reverse=True))
    if (uv := find_uv(environ)) is not None:
        yield from _by_uv(uv, version, commands, fetch=fetch)


def _by_uv(uv: str, version: str, commands: Commands, *, fetch: bool) -> Iterator[str]:
    """Yield the Python ``version`` that uv has, or downloads."""
    argv = [uv, "python", "find", "--quiet", "--managed-python", "--no-python-downloads", version]
    answer = commands.read(argv)
    if answer.code != 0 and fetch:
        commands.run(f"uv python install {version}", [uv, "python", "install", version])
        answer = commands.read(argv)
    if answer.code == 0:
        yield answer.out.strip()


def _probe(program: str, commands: Commands) -> Python | None:
    """Return the Python behind ``program``, None if it does not run."""
    try:
        answer = commands.read([program, "-I", "-c", _PROBE])
    except NoNodeError:
        raise
    except LlmbError:  # there is no such program
        return None
    match = re.match(r"(\d+\.\d+) (.+)", answer.out)
    if match is None:
        return None
    return Python(program=match[2], version=match[1], has_venv=answer.code == 0)


def own_version() -> str:
    """Return the version ``X.Y`` of the Python that runs this."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def no_venv(python: Python) -> LlmbError:
    """Return the error for a Python without a complete module venv, as on Debian."""
    message = f"{python.program} cannot make environments: its module venv or ensurepip is missing"
    package = f"python{python.version}-venv"
    hint = f"install it (Debian: apt-get install {package}), or uv (pip install uv)"
    return LlmbError(message, hint=hint, code="no-venv", value=python.version)


_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = r"\(([\d.]+) ?([kMG]?B|[KMG]iB)\)"
_BEGUN = re.compile(rf"\s*Downloading (\S+) {_SIZE}")  # pip: a file or URL; uv: a package
_ENDED = re.compile(r"\s*Downloaded (\S+)")  # uv only: several at a time
_AT = re.compile(r"Progress (\d+) of (\d+)")  # pip with --progress-bar raw: bytes of the file


class Downloads:
    """Reads the output of programs one after another, and reports downloads to ``progress``."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.done, self.total = 0, 0
        self._reported = 0
        self.running: dict[str, int] = {}  # bytes of each package that is being downloaded
        self._rest, self._partly, self._is_pip = b"", 0, False

    def __call__(self, output: bytes) -> None:
        """Read a part of the output, which may end within a line."""
        *lines, self._rest = (self._rest + output).replace(b"\r", b"\n").split(b"\n")
        changed = [self._read(line.decode("utf-8", "replace")) for line in lines]
        if any(changed):
            with contextlib.suppress(StoppedError):  # the program is ended by whoever waits for it
                received = self.done + self._partly
                self.progress.total(self.total)
                self.progress.advance(received - self._reported)
                self._reported = received
                self.progress.say(self._names())

    def _names(self) -> str:
        """Return the largest package that is being downloaded, and the number of others."""
        largest, other_count = (
            max(self.running, key=lambda name: self.running[name], default=""),
            len(self.running) - 1,
        )
        return f"{largest} and {other_count} more" if other_count > 0 else largest

    def _read(self, line: str) -> bool:
        """Read a line, and return True if it reports a download."""
        if (begun := _BEGUN.match(line)) is not None:
            name = begun[1].rpartition("/")[2]
            self._is_pip = name.endswith((".whl", ".gz", ".zip", ".metadata"))
            if self._is_pip:
                self._finish_all()
                name = name.partition("-")[0]
            self.running[name] = int(float(begun[2]) * _UNITS[begun[3]])
            self.total += self.running[name]
            return True
        if (ended := _ENDED.match(line)) is not None:
            self.done += self.running.pop(ended[1], 0)
            return True
        if (position := _AT.match(line)) is not None and self.running:
            self._partly = min(int(position[1]), *self.running.values())
            return True
        if self._is_pip and self.running and line.strip():  # pip downloads one file at a time
            self._finish_all()
            return True
        return False

    def _finish_all(self) -> None:
        self.done += sum(self.running.values())
        self.running.clear()
        self._partly = 0
