# SPDX-License-Identifier: Apache-2.0
"""The kinds of installation steps, a module for each, and the state of recorded steps."""

from pathlib import Path

from llmb.errors import LlmbError
from llmb_installer import hub
from llmb_installer.hub import AssetStep
from llmb_installer.images import image_step
from llmb_installer.record import InstallRecord, StepRecord
from llmb_installer.step import Context, Estimate, Facts, Kind, Progress, Step
from llmb_installer.steps import programs, repo, task
from llmb_installer.venv import venv_step
from llmb_installer.venv.lock import TorchSource
from llmb_installer.venv.venv_step import VenvStep

__all__ = ["AssetStep", "Context", "Estimate", "Facts", "Kind", "Progress", "Step", "TorchSource", "VenvStep"]

KINDS: dict[str, Kind] = {
    "venv": venv_step,
    "image": image_step,
    "repo": repo,
    "asset": hub,
    "task": task,
    "programs": programs,
}


def kind_of(key: str) -> tuple[Kind, str]:
    """The kind and name of the recorded step ``key``. Raises LlmbError for a kind of another version."""
    word, _, name = key.partition(" ")
    if word not in KINDS:
        message = f"'{key}' in the record is unknown to this version of llmb-install"
        raise LlmbError(message, hint="use a newer llmb-install", code="step-unknown", key=key)
    return KINDS[word], name


def is_there(key: str, done: StepRecord, install: Path) -> bool:
    """Whether the result of a recorded step exists and is readable, by a quick look; False when it is damaged."""
    kind, name = kind_of(key)
    try:
        return not done.damaged and kind.is_there(name, done.facts, install)
    except PermissionError:  # such as a Python in its owner's home
        return False


def is_finished(step: Step, record: InstallRecord, install: Path) -> bool:
    """Whether the step is recorded with this content and no file of it is missing. Starts no process."""
    done = record.steps.get(step.key)
    if done is None or done.digest != step.digest or not is_there(step.key, done, install):
        return False
    try:
        return step.is_whole(done.facts)
    except PermissionError:  # installed by somebody else, who repairs it
        return True
