# SPDX-License-Identifier: Apache-2.0
"""Asks what to do with an existing installation."""

from collections.abc import Mapping
from typing import Literal

from llmb.contract import spec
from llmb.core.names import as_keys
from llmb_installer.detect.detected import InstallDirectory
from llmb_installer.wizard import prompts
from llmb_installer.wizard.common import require_some
from llmb_installer.wizard.question import AnswerOption, Back

Action = Literal["add", "remove", "repair", "update", "elsewhere"]


def choose_action(
    installed: InstallDirectory, workloads_offered: Mapping[str, spec.Workload]
) -> tuple[Action, tuple[str, ...]]:
    """Ask what to do with an existing installation. Also return the workloads to add or remove."""
    present_keys = list_installed(installed, workloads_offered)
    absent_keys = [key for key in workloads_offered if key not in present_keys]
    name = installed.config.cluster_name
    action: Action = "add" if absent_keys else "repair"
    while True:
        action = prompts.ask_one(
            f"{installed.path} has an installation ({installed.config.cluster_type}, {name}). What"
            " do you want to do?",
            [
                AnswerOption("add", "add workloads", "" if absent_keys else "all are installed"),
                AnswerOption(
                    "remove", "remove workloads", "" if present_keys else "none is installed"
                ),
                AnswerOption(
                    "repair",
                    "repair or update: check every step, rebuild what is missing, changed or out of"
                    " date",
                ),
                AnswerOption("update", "change its answers"),
                AnswerOption("elsewhere", "keep it, and install into another folder"),
            ],
            action,
        )
        if action not in ("add", "remove"):
            return action, ()
        options = [
            AnswerOption(key, key) for key in (absent_keys if action == "add" else present_keys)
        ]
        chosen = prompts.ask_many(
            f"Which workloads to {action}?", options, [], require_some, back=True
        )
        if not isinstance(chosen, Back):
            return action, tuple(chosen)


def list_installed(
    installed: InstallDirectory, workloads: Mapping[str, spec.Workload]
) -> list[str]:
    names = installed.config.workloads.installed
    return [*workloads] if names is None else as_keys(names, workloads)
