# SPDX-License-Identifier: Apache-2.0
"""A step that copies the programs that compute nodes run into the install directory."""

import hashlib
import shutil
from pathlib import Path
from typing import ClassVar

from llmb.core.values import dataclass
from llmb.errors import Fault
from llmb.kit import programs
from llmb_installer.step import BuildContext, Facts, InstallStep, StepCost

NAME = "of compute nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsStep(InstallStep):
    """Stage the installed programs into ``install``. ``content`` is their sha256 in hex."""

    kind: ClassVar[str] = "programs"
    install: Path
    content: str

    @property
    def name(self) -> str:
        """Always the same: there is one such step."""
        return NAME

    @property
    def title(self) -> str:
        return f"The programs that compute nodes run ({self.content[:12]})"

    @property
    def path(self) -> Path:
        return programs.path(self.install, self.content)

    def check(self, context: BuildContext) -> StepCost:
        """Estimate no cost: they are small."""
        return StepCost(fetch=0, disk=0)

    def build(self, context: BuildContext) -> Facts:
        """Copy them unless they are complete."""
        facts = {"digest": self.content}
        if verify(NAME, facts, self.install, deep=True):
            shutil.rmtree(self.path, ignore_errors=True)
        programs.stage(self.install)
        return facts


def is_there(name: str, facts: Facts, install: Path) -> bool:
    return programs.path(install, str(facts.get("digest"))).is_dir()


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Return True if they have the content that names their folder.

    The files are small and always read.
    """
    folder, total = programs.path(install, str(facts.get("digest"))), hashlib.sha256()
    if not folder.is_dir():
        return [Fault(message=f"{folder} is missing", code="folder-missing", value=str(folder))]
    for path in sorted(
        folder.rglob("*.py"),
        key=lambda path: path.relative_to(folder / programs.PACKAGE).as_posix(),
    ):
        text = path.read_text(encoding="utf-8")
        total.update(f"{path.relative_to(folder).as_posix()}\0{len(text)}\0{text}\0".encode())
    if total.hexdigest() == facts.get("digest"):
        return []
    return [Fault(message=f"{folder} was changed", code="folder-changed", value=str(folder))]


def remove(name: str, facts: Facts, install: Path) -> None:
    """Keep them: queued runs may still need them."""


def describe(name: str, facts: Facts) -> str:
    return f"programs {str(facts.get('digest'))[:12]}"
