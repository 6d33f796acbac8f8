# SPDX-License-Identifier: Apache-2.0
"""The content of an environment and its lock file: packages with versions, hashes and sources."""

import hashlib
import json
import re
from abc import ABC
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from llmb.contract.needs import Venv
from llmb.core.names import listed
from llmb.core.values import dataclass
from llmb_installer.answers.schema import CPU_WHEELS
from llmb_installer.step import InstallStep, digest_of

_NAMED = 4  # packages that a plan shows
VenvType = Literal["auto", "uv", "venv", "conda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSource:
    """The source of torch: ``index`` for torch alone, else pip's own indexes.

    ``cpu_index`` replaces pip's indexes when they would install CUDA's libraries. None keeps pip's.
    """

    index: str | None = None
    cpu_index: str | None = None


def torch_line(requirements: Iterable[str]) -> str | None:
    """Return the requirement line that asks for torch itself (not torchvision), if there is one."""
    return next(
        (
            line
            for line in requirements
            if re.match(r"torch(?![\w.-])", line.strip(), re.IGNORECASE)
        ),
        None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvSpec(InstallStep, ABC):
    """The environment ``need`` at ``folder`` with ``python`` (None: the one that runs this).

    ``tool`` auto is uv if it is installed, else venv. All packages come from the folder
    ``wheelhouse`` if it is set. ``architecture`` is the one of the machines that will use it.
    ``fetch_python`` lets uv download a missing Python.
    """

    kind: ClassVar[str] = "venv"
    need: Venv
    folder: Path
    python: str | None
    torch: TorchSource
    tool: VenvType = "auto"
    wheelhouse: Path | None = None
    architecture: str = "x86_64"
    fetch_python: bool = False

    @property
    def digest(self) -> str:
        """The identity of the content: the same for uv and venv, a wheelhouse and an index."""
        tool: VenvType = "conda" if self.tool == "conda" else "auto"
        return digest_of(replace(self, tool=tool, wheelhouse=None, fetch_python=False))

    @property
    def name(self) -> str:
        return self.need.name

    @property
    def title(self) -> str:
        """The packages, and the source of torch."""
        source, torch = "", torch_line(self.need.requirements) is not None
        if self.wheelhouse is not None:
            source = f", all from {self.wheelhouse}"
        elif torch and self.torch.index is not None:
            source = f"; torch from {self.torch.index}"
        elif torch and self.torch.cpu_index is not None:
            source = "; torch for CPUs"
        package_lines = [*self.need.requirements, *self.need.from_source]
        return f"Python environment with {listed(package_lines, _NAMED)}{source}"

    @property
    def path(self) -> Path:
        return self.folder


_HEAD = """\
# The packages of the environment {name}, as llmb-install chose them; a later installation takes the very same.
# Delete this file to have the versions chosen anew.
# for {wanted}
"""
_MADE_FOR, _TORCH, _HASHED, _PLAIN = (
    "# made for ",
    "# torch, from ",
    "# packages with hashes",
    "# sources at a commit",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Requirement lines of pip: ``hashed``, ``plain`` (a repository at a commit), and of ``torch``.

    ``torch`` comes from ``torch_index``. ``made_for`` is the digest of the requirements.
    ``failed_index``, which the file omits, is an index that gave no torch.
    """

    made_for: str
    hashed: tuple[str, ...]
    plain: tuple[str, ...] = ()
    torch_index: str | None = None
    torch: tuple[str, ...] = ()
    failed_index: str | None = None

    @property
    def names(self) -> set[str]:
        return {package_of(line) for line in (*self.hashed, *self.plain, *self.torch)}

    def only(self, names: Collection[str]) -> Self:

        def chosen(lines: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(line for line in lines if package_of(line) in names)

        return replace(
            self, hashed=chosen(self.hashed), plain=chosen(self.plain), torch=chosen(self.torch)
        )


def normalized(name: str) -> str:
    """Return a package's name as pip compares names: ``Nemo_Toolkit`` is ``nemo-toolkit``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package_of(line: str) -> str:
    """Return the normalized name of the package that a requirement line asks for."""
    return normalized(re.split(r"[\s@=<>!~;\[]", line.strip(), maxsplit=1)[0])


def path_of(step: VenvSpec, install: Path) -> Path:
    return install / ".llmb" / "locks" / f"{step.name}.txt"


def made_for(step: VenvSpec, version: str) -> str:
    """Return the digest of all that the choice of packages depends on.

    ``version`` is Python's, ``X.Y``.
    """
    need, torch = step.need, step.torch
    content = [
        need.requirements,
        need.constraints,
        torch.index,
        torch.cpu_index,
        version,
        step.architecture,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def to_text(lock: Lock, name: str, purpose: str) -> str:
    """Return the lock as a file that ``pip install --require-hashes -r`` can read."""
    text = _HEAD.format(name=name, wanted=purpose) + f"{_MADE_FOR}{lock.made_for}\n"
    if lock.torch_index is not None:
        text += f"{_TORCH}{lock.torch_index}\n" + _lines(lock.torch)
    text += f"{_HASHED}\n" + _lines(lock.hashed)
    return text + (f"{_PLAIN}\n" + _lines(lock.plain) if lock.plain else "")


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line.replace(' --hash=', _FOLD)}\n" for line in lines)


_FOLD = " \\\n    --hash="


def from_text(text: str) -> Lock | None:
    """Parse a lock file; None if it is not one of llmb-install."""
    requirements_digest, index = "", None
    parts: dict[str, list[str]] = {"torch": [], "hashed": [], "plain": []}
    part = "hashed"
    for line in text.replace(_FOLD, " --hash=").splitlines():
        if line.startswith(_MADE_FOR):
            requirements_digest = line.removeprefix(_MADE_FOR)
        elif line.startswith(_TORCH):
            part, index = "torch", line.removeprefix(_TORCH)
        elif line in (_HASHED, _PLAIN):
            part = "hashed" if line == _HASHED else "plain"
        elif line.strip() and not line.startswith("#"):
            parts[part].append(line)
    if not requirements_digest:
        return None
    return Lock(
        made_for=requirements_digest,
        hashed=tuple(parts["hashed"]),
        plain=tuple(parts["plain"]),
        torch=tuple(parts["torch"]),
        torch_index=index,
    )


def find(step: VenvSpec, install: Path, version: str) -> Lock | None:
    """Return the lock of an earlier installation with the same requirements, if there is one."""
    try:
        lock = from_text(path_of(step, install).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return lock if lock is not None and lock.made_for == made_for(step, version) else None


def cuda_packages(report: dict[str, Any]) -> list[str]:
    """Return the packages in pip's report that only a machine with an NVIDIA GPU uses."""
    names = [normalized(item["metadata"]["name"]) for item in report["install"]]
    return [name for name in names if re.match(r"(nvidia|cuda)-|(pytorch-)?triton$", name)]


def index_for(source: TorchSource, report: dict[str, Any]) -> str | None:
    """Return the index for torch alone, None for pip's own.

    ``report`` is what pip would install from its own.
    """
    if source.index is not None:
        return source.index
    return source.cpu_index if cuda_packages(report) else None


def is_optional(source: TorchSource) -> bool:
    """Return True if torch may come from pip's own indexes, larger, when its index is unreachable.

    That is PyTorch's index of CPU builds, which sites with an index of their own often cannot
    reach. An index that the answers name is required.
    """
    return source.index is None and source.cpu_index == CPU_WHEELS.text
