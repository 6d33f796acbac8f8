# SPDX-License-Identifier: Apache-2.0
"""The record of an install directory: which steps were finished, with what content, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError
from llmb.system import files
from llmb.text import typed, yamlfile

FOLDER = ".llmb"
LOCK = "install"  # in FOLDER: held by whoever changes the installation
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A finished step: ``digest`` of the content that was asked for, the facts that its kind of step keeps, and the
    workloads that it is for; ``damaged`` from the time its repair begins until it is whole again."""

    digest: str
    facts: dict[str, Any]
    workloads: tuple[str, ...] = ()
    damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRecord:
    """Finished steps by their keys, and ``config``: what the installer last wrote into cluster_config.yaml."""

    steps: dict[str, StepRecord] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def finished(self, key: str, step: StepRecord) -> InstallRecord:
        """The record with one more step."""
        return replace(self, steps={**self.steps, key: step})

    def marked(self, key: str) -> InstallRecord:
        """The record with a step that has to be built again."""
        return self.finished(key, replace(self.steps[key], damaged=True))

    def without(self, key: str) -> InstallRecord:
        """The record without a step."""
        return replace(self, steps={other: step for other, step in self.steps.items() if other != key})


def record_path(install: Path) -> Path:
    """Where the record of ``install`` lies."""
    return install / FOLDER / "install.json"


def answers_path(install: Path) -> Path:
    """Where the answers lie that ``install`` was made by last."""
    return install / FOLDER / "answers.yaml"


def load(install: Path) -> InstallRecord:
    """The record of ``install``, an empty one where nothing is installed. Raises LlmbError when it is damaged."""
    path = record_path(install)
    data = files.read_json(path)
    if data is None:
        return InstallRecord()
    if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
        raise LlmbError(f"{path} was written by another version of llmb", hint="use the llmb-install that made it")
    return typed.read(InstallRecord, yamlfile.Document(name=str(path), data=data))


def save(install: Path, record: InstallRecord) -> None:
    """Write the record, atomically."""
    files.write_json(record_path(install), {"schema_version": SCHEMA_VERSION, **typed.to_data(record)})


def save_answers(install: Path, text: str) -> None:
    """Write the answers, unless they stand there already."""
    path = answers_path(install)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)
