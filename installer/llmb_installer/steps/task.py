# SPDX-License-Identifier: Apache-2.0
"""A step that runs a workload's own command once, after everything else that it needs."""

import shutil
from pathlib import Path
from typing import ClassVar

from llmb.contract import needs
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb_installer.step import (
    BuildContext,
    Commands,
    Facts,
    InstallStep,
    StepCost,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep(InstallStep):
    """Run the command of ``need`` in ``install``, which LLMB_INSTALL names."""

    kind: ClassVar[str] = "task"
    need: needs.Task
    install: Path

    @property
    def name(self) -> str:
        return self.need.name

    @property
    def title(self) -> str:
        return f"Run once: {' '.join(self.need.argv)}"

    @property
    def path(self) -> Path | None:
        """The first of what it creates."""
        return next(iter(self._paths), None)

    @property
    def _paths(self) -> list[Path]:
        return [self.install / name for name in self.need.creates]

    def check(self, context: BuildContext) -> StepCost:
        """Estimate nothing: the cost is unknown."""
        return StepCost()

    def build(self, context: BuildContext) -> Facts:
        """Run it.

        Raises LlmbError with the end of its output, or if something it ``creates`` is missing.
        """
        if not self.need.argv:
            raise LlmbError("its command is empty", hint="report it to the plugin's author")
        environ = {**context.environ, "LLMB_INSTALL": str(self.install)}
        Commands(context=context, environ=environ).run(
            self.need.name, self.need.argv, cwd=self.install
        )
        if missing := [str(path) for path in self._paths if not path.exists()]:
            message = (
                f"{self.need.name} ended without an error, and did not create {', '.join(missing)}"
            )
            hint = f"report it to the plugin's author; its output: {context.log}"
            raise LlmbError(
                message, hint=hint, code="not-created", key=self.need.name, value=tuple(missing)
            )
        return {"argv": list(self.need.argv), "creates": list(self.need.creates)}


def _created(facts: Facts, install: Path) -> list[Path]:
    return [install / str(name) for name in facts.get("creates", [])]


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Return True if all that it creates exists. Always for a task that names nothing."""
    return all(path.exists() for path in _created(facts, install))


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Return the missing paths of all that it creates. The contents are its workload's."""
    missing = [path for path in _created(facts, install) if not path.exists()]
    return [
        Fault(message=f"{path} is missing", code="created-missing", value=str(path))
        for path in missing
    ]


def remove(name: str, facts: Facts, install: Path) -> None:
    """Delete what it creates, and of a link only the link.

    What else it did cannot be undone. Raises LlmbError.
    """
    root = install.resolve()
    for path in _created(facts, install):
        if path == install or not path.parent.resolve().is_relative_to(root):
            message = f"{path} is outside of {install}: llmb does not remove it"
            raise LlmbError(
                message, hint="remove it yourself", code="path-outside", key=name, value=str(path)
            )
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def describe(name: str, facts: Facts) -> str:
    return f"ran: {' '.join(facts.get('argv', []))}"
