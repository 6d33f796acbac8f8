# SPDX-License-Identifier: Apache-2.0
"""A step that makes a Python environment."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from llmb.workload.needs import Venv
from llmb_installer.step import Context, Estimate, Facts, Step, digest_of
from llmb_installer.venv import contents, create, repair
from llmb_installer.venv.lock import TorchSource, torch_line

# Packages whose versions a summary shows.
SHOWN = ("torch", "transformers", "nemo_toolkit", "nemo-toolkit", "megatron-core")
_NAMED = 4  # packages that a plan shows
VenvType = Literal["auto", "uv", "venv", "conda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvStep(Step):
    """Make the environment ``need`` at ``folder`` with ``python`` (None: the one that runs this).

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
        """The environment's name."""
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
        more = f" and {len(wanted) - _NAMED} more" if len(wanted) > _NAMED else ""
        return f"Python environment with {', '.join(wanted[:_NAMED])}{more}{source}"

    @property
    def path(self) -> Path:
        """The link to the environment in use."""
        return self.folder

    def is_whole(self, facts: Facts) -> bool:
        """Whether no file of a package is missing; contents are not read."""
        faults = contents.faults(self.folder, facts, deep=False)
        return not any(fault.code == contents.DAMAGED for fault in faults)

    def is_repairable(self, install: Path) -> bool:
        """Whether the environment in use is this one, with damaged packages at most; contents are not read."""
        return repair.is_likely(self, install)

    def check(self, context: Context) -> Estimate:
        """Check for the tool and the Python; estimate the size of the packages. Raises LlmbError."""
        return create.check(self, context)

    def build(self, context: Context) -> Facts:
        """Repair the environment in use, or build another and switch to it. Raises LlmbError."""
        return create.build(self, context)


is_there, verify = contents.is_there, contents.verify


def remove(name: str, facts: Facts, install: Path) -> None:
    """Delete the link, then every build of this name."""
    link = contents.folder_of(name, install)
    if link.is_symlink():
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    contents.sweep(link.parent, name)


def describe(name: str, facts: Facts) -> str:
    """Its Python and its main packages."""
    packages = facts.get("packages", {})
    names = [f"{package} {packages[package]}" for package in SHOWN if package in packages]
    count = f"{len(packages)} package{'s' * (len(packages) != 1)}"
    return ", ".join([f"Python {facts.get('python')}", *names, count])
