# SPDX-License-Identifier: Apache-2.0
"""A step that runs a workload's own command once, after everything else that it needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from llmb.errors import Fault, LlmbError
from llmb.workload import needs
from llmb_installer.step import Commands, Context, Estimate, Facts, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep(Step):
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
    def path(self) -> None:
        """None: only its workload knows what it makes."""
        return None

    def check(self, context: Context) -> Estimate:
        """Estimate nothing: the cost is unknown."""
        return Estimate()

    def build(self, context: Context) -> Facts:
        """Run it. Raises LlmbError with the end of its output."""
        if not self.need.argv:
            raise LlmbError("its command is empty", hint="report it to the plugin's author")
        environ = {**context.environ, "LLMB_INSTALL": str(self.install)}
        Commands(context=context, environ=environ).run(self.need.name, self.need.argv, cwd=self.install)
        return {"argv": list(self.need.argv)}


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Always: what a task leaves is unknown."""
    return True


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """No faults: what a task leaves is unknown."""
    return []


def remove(name: str, facts: Facts, install: Path) -> None:
    """Keep what it did: it cannot be undone."""


def describe(name: str, facts: Facts) -> str:
    """Its command."""
    return f"ran: {' '.join(facts.get('argv', []))}"
