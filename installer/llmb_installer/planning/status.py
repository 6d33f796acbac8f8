# SPDX-License-Identifier: Apache-2.0
"""How an installation stands against its answers and this release of llmb: what is older, new, or asked for no more."""

from dataclasses import dataclass, replace
from pathlib import Path

from llmb.errors import Fault, LlmbError
from llmb_installer.planning import flow
from llmb_installer.planning.outdated import outdated, outdated_config, unused
from llmb_installer.planning.plan import Intent, strangers
from llmb_installer.planning.verify import came_later, unreadable
from llmb_installer.record.record import InstallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """``intent``: what the answers ask for, without the workloads ``new``, which came after the installation.

    ``outdated``: what has to be made anew to be as asked for; ``unused``: keys of steps that nobody asks for now;
    ``strangers``: workloads that no plugin offers here. Where the answers cannot be followed here, ``intent`` is None,
    and ``note`` says why.
    """

    intent: Intent | None = None
    new: tuple[str, ...] = ()
    outdated: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    note: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The keys of the steps that are to be there, but for those that are outdated."""
        older = {fault.place for fault in self.outdated}
        return tuple(step.key for step in self.intent.steps if step.key not in older) if self.intent is not None else ()


def find_standing(folder: Path, found: InstallRecord, *, required: bool = False) -> Standing:
    """Hold the record ``found`` of ``folder`` against its answers.

    Raises LlmbError where they cannot be followed and it is ``required``.
    """
    try:
        offered = flow.known()
        asked = flow.recorded_answers(folder, offered)
        intent, _ = flow.intent_of(asked, offered, before=found.config)
        new = came_later(intent, found)
        if new:
            staying = tuple(key for key in intent.workloads if key not in new)
            intent, _ = flow.intent_of(replace(asked, workloads=staying), offered, before=found.config)
        older = outdated(intent, found)
    except LlmbError as error:
        if required:
            raise
        return Standing(note=f"not held against the answers: {error.message}")
    if not unreadable(folder):
        older += outdated_config(intent, found)
    intent = replace(intent, asked=asked)
    return Standing(
        intent=intent, new=new, outdated=tuple(older), unused=unused(intent, found), strangers=strangers(intent, found)
    )
