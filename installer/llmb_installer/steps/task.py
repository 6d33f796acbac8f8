# SPDX-License-Identifier: Apache-2.0
"""A step that runs a workload's own command once, after everything else that the workload needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from llmb.errors import Fault, LlmbError
from llmb.workload import needs
from llmb_installer.step import Context, Estimate, Facts, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep(Step):
    """Run the command of ``need`` in ``install``, told of it by LLMB_INSTALL."""

    kind: ClassVar[str] = "task"
    need: needs.Task
    install: Path

    @property
    def name(self) -> str:
        """What the workload calls it."""
        return self.need.name

    @property
    def title(self) -> str:
        """The command."""
        return f"Run once: {' '.join(self.need.argv)}"

    @property
    def path(self) -> None:
        """Whatever it makes, only its workload knows."""
        return None

    def check(self, context: Context) -> Estimate:
        """Nobody can say."""
        return Estimate()

    def build(self, context: Context) -> Facts:
        """Run it to its end. Raises LlmbError with the end of its output."""
        from llmb_installer.execution.runner import Commands

        if not self.need.argv:
            raise LlmbError("its command is empty", hint="tell the plugin's maker")
        environ = {**context.environ, "LLMB_INSTALL": str(self.install)}
        Commands(context=context, environ=environ).run(self.need.name, self.need.argv, cwd=self.install)
        return {"argv": list(self.need.argv)}


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """A task leaves nothing that is known here."""
    return True


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Nothing that is known here can be wrong with it."""
    return []


def remove(name: str, facts: Facts, install: Path) -> None:
    """What it did cannot be undone from here."""


def describe(name: str, facts: Facts) -> str:
    """The command that was run."""
    return f"was run: {' '.join(facts.get('argv', []))}"
