# SPDX-License-Identifier: Apache-2.0
"""The kinds of installation steps, and the state of recorded steps."""

from pathlib import Path

from llmb.errors import LlmbError
from llmb_installer import hub
from llmb_installer.images import image_step
from llmb_installer.record import FinishedStep, InstallRecord
from llmb_installer.step import InstallStep, StepKind
from llmb_installer.steps import programs, repo, task
from llmb_installer.venv import venv_step

KINDS: dict[str, StepKind] = {
    "venv": venv_step,
    "image": image_step,
    "repo": repo,
    "asset": hub,
    "task": task,
    "programs": programs,
}


def find_kind(key: str) -> tuple[StepKind, str]:
    """The kind and name of the recorded step ``key``.

    Raises LlmbError for a kind of another version.
    """
    word, _, name = key.partition(" ")
    if word not in KINDS:
        message = f"'{key}' in the record is unknown to this version of llmb-install"
        raise LlmbError(message, hint="use a newer llmb-install", code="step-unknown", key=key)
    return KINDS[word], name


def is_there(key: str, finished: FinishedStep, install: Path) -> bool:
    """Return True if the result of a recorded step exists and is readable, by a quick look.

    False when it is damaged.
    """
    kind, name = find_kind(key)
    try:
        return not finished.damaged and kind.is_there(name, finished.facts, install)
    except PermissionError:  # such as a Python in its owner's home
        return False


def is_finished(step: InstallStep, record: InstallRecord, install: Path) -> bool:
    """Return True if the step is recorded with this content and no file of it is missing.

    Starts no process.
    """
    finished = record.steps.get(step.key)
    if finished is None or finished.digest != step.digest or finished.damaged:
        return False
    kind, name = find_kind(step.key)
    try:
        return kind.is_there(name, finished.facts, install) and step.is_whole(finished.facts)
    except PermissionError:  # installed by somebody else, who repairs it
        return True
