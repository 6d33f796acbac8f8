# SPDX-License-Identifier: Apache-2.0
"""What an environment has to contain, where it is made, and where its packages come from."""

import re
from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from llmb.text.names import listed
from llmb.workload.needs import Venv
from llmb_installer.step import Step, digest_of

_NAMED = 4  # packages that a plan shows
VenvType = Literal["auto", "uv", "venv", "conda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSource:
    """Where torch comes from: ``index`` for torch alone, else pip's own indexes.

    ``cpu_index`` replaces pip's indexes when they would install CUDA's libraries; None keeps pip's.
    """

    index: str | None = None
    cpu_index: str | None = None


def torch_line(requirements: Iterable[str]) -> str | None:
    """The requirement line that asks for torch itself (not torchvision), if there is one."""
    return next((line for line in requirements if re.match(r"torch(?![\w.-])", line.strip(), re.IGNORECASE)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvSpec(Step, ABC):
    """The environment ``need`` at ``folder`` with ``python`` (None: the one that runs this).

    ``tool`` auto is uv where it is installed, else venv. All packages come from the folder ``wheelhouse`` if given.
    ``architecture`` is that of the machines that will use it. ``fetch_python`` lets uv download a missing Python.
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
        """Identifies the content: uv and venv make the same, and so do a wheelhouse and an index."""
        tool: VenvType = "conda" if self.tool == "conda" else "auto"
        return digest_of(replace(self, tool=tool, wheelhouse=None, fetch_python=False))

    @property
    def name(self) -> str:
        return self.need.name

    @property
    def title(self) -> str:
        """Its packages, and the source of torch."""
        source, torch = "", torch_line(self.need.requirements) is not None
        if self.wheelhouse is not None:
            source = f", all from {self.wheelhouse}"
        elif torch and self.torch.index is not None:
            source = f"; torch from {self.torch.index}"
        elif torch and self.torch.cpu_index is not None:
            source = "; torch for CPUs"
        wanted = [*self.need.requirements, *self.need.from_source]
        return f"Python environment with {listed(wanted, _NAMED)}{source}"

    @property
    def path(self) -> Path:
        return self.folder
