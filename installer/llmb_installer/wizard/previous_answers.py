# SPDX-License-Identifier: Apache-2.0
"""What to do where an installation is already: add, remove, repair, change its answers, or install elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llmb.text.names import as_keys
from llmb.workload.spec import Workload
from llmb_installer.detect.installed import Installed
from llmb_installer.wizard import prompts
from llmb_installer.wizard.question import Option

Action = Literal["add", "remove", "repair", "update", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the user wants of an installation, and the workloads it is about."""

    action: Action
    workloads: tuple[str, ...] = ()


def choose(installed: Installed, known: Mapping[str, Workload]) -> Choice:
    """Ask what to do with ``installed``."""
    there = installed_keys(installed, known)
    others = [key for key in known if key not in there]
    name = installed.config.cluster_name
    text = f"{installed.path} is an installation ({installed.config.cluster_type}, {name}). What shall be done?"
    action: Action = prompts.one(
        text,
        [
            Option("add", "add workloads", "" if others else "all are installed"),
            Option("remove", "remove workloads", "" if there else "none is installed"),
            Option("repair", "repair or update: check every part, make again what is missing, changed or older"),
            Option("update", "change the answers that it was made from"),
            Option("elsewhere", "leave it, and install into another folder"),
        ],
        "add" if others else "repair",
    )
    if action not in ("add", "remove"):
        return Choice(action=action)
    keys = others if action == "add" else there
    chosen: Sequence[Any] = prompts.many(f"Which to {action}?", [Option(key, key) for key in keys], [], _some)
    return Choice(action=action, workloads=tuple(chosen))


def installed_keys(installed: Installed, known: Mapping[str, Workload]) -> list[str]:
    """The workloads that are installed, by their keys."""
    there = installed.config.workloads.installed
    return [*known] if there is None else as_keys(there, known)


def _some(value: Any) -> str | None:
    return None if value else "choose at least one (space bar)"
