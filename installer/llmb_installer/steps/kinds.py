# SPDX-License-Identifier: Apache-2.0
"""Which module knows the recorded steps of which kind."""

from pathlib import Path

from llmb.errors import LlmbError
from llmb_installer import hub
from llmb_installer.images import image_step
from llmb_installer.record.record import InstallRecord, StepRecord
from llmb_installer.step import Kind, Step
from llmb_installer.steps import programs, repo, task
from llmb_installer.venv import venv_step

KINDS: dict[str, Kind] = {
    "venv": venv_step,
    "image": image_step,
    "repo": repo,
    "asset": hub,
    "task": task,
    "programs": programs,
}


def kind_of(key: str) -> tuple[Kind, str]:
    """The kind of the recorded step ``key``, and the step's name. Raises LlmbError for a kind from another version."""
    word, _, name = key.partition(" ")
    if word not in KINDS:
        raise LlmbError(f"the record holds '{key}', which this version does not know", hint="use a newer llmb-install")
    return KINDS[word], name


def is_there(key: str, done: StepRecord, install: Path) -> bool:
    """Whether what the recorded step made is still there for us, by a glance; not when it was found damaged."""
    kind, name = kind_of(key)
    try:
        return not done.damaged and kind.is_there(name, done.facts, install)
    except PermissionError:  # such as a Python in its owner's home
        return False


def is_finished(step: Step, record: InstallRecord, install: Path) -> bool:
    """Whether the record holds the step with this content, and what it made is still there. Starts no process."""
    done = record.steps.get(step.key)
    return done is not None and done.digest == step.digest and is_there(step.key, done, install)
