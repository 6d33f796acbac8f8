# SPDX-License-Identifier: Apache-2.0
"""Asks what to do with an existing installation."""

from collections.abc import Mapping
from typing import Literal

from llmb.text.names import as_keys
from llmb.workload import spec
from llmb_installer.detect.detected import Installed
from llmb_installer.wizard import prompts
from llmb_installer.wizard.common import some
from llmb_installer.wizard.question import Back, Option

Action = Literal["add", "remove", "repair", "update", "elsewhere"]


def choose_action(installed: Installed, known: Mapping[str, spec.Workload]) -> tuple[Action, tuple[str, ...]]:
    """What the user wants to do with an existing installation, and the workloads to add or remove."""
    there = installed_keys(installed, known)
    others = [key for key in known if key not in there]
    name = installed.config.cluster_name
    action: Action = "add" if others else "repair"
    while True:
        action = prompts.one(
            f"{installed.path} has an installation ({installed.config.cluster_type}, {name}). What do you want to do?",
            [
                Option("add", "add workloads", "" if others else "all are installed"),
                Option("remove", "remove workloads", "" if there else "none is installed"),
                Option("repair", "repair or update: check every step, rebuild what is missing, changed or out of date"),
                Option("update", "change its answers"),
                Option("elsewhere", "keep it, and install into another folder"),
            ],
            action,
        )
        if action not in ("add", "remove"):
            return action, ()
        options = [Option(key, key) for key in (others if action == "add" else there)]
        chosen = prompts.many(f"Which workloads to {action}?", options, [], some, back=True)
        if not isinstance(chosen, Back):
            return action, tuple(chosen)


def installed_keys(installed: Installed, known: Mapping[str, spec.Workload]) -> list[str]:
    there = installed.config.workloads.installed
    return [*known] if there is None else as_keys(there, known)
