# SPDX-License-Identifier: Apache-2.0
"""From what workloads need to the steps of an installation: values with an identity, so that workloads share them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from llmb import typed
from llmb.errors import LlmbError
from llmb.gpus import CPU
from llmb.needs import Need, Needs, Venv
from llmb.site import Site
from llmb.workload import Workload
from llmb_installer.answers import Answers
from llmb_installer.record import InstallRecord

LEAVE_OUT = "name the others under 'workloads' in the answers"


class Plugins(Protocol):
    """The part of llmb's loaded plugins that an installation asks."""

    def workloads(self) -> Mapping[str, Workload]:
        """The workloads by their keys."""

    def setup(self, workload: Workload, site: Site) -> Needs | None:
        """What ``workload`` needs at ``site``; None when nobody can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSource:
    """Where torch comes from: ``index`` for it alone, else pip's own sources.

    ``cpu_index`` is taken when those would bring CUDA's libraries; None lets them.
    """

    index: str | None = None
    cpu_index: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvStep:
    """Make the environment ``need`` at ``path`` with ``python`` (None: the one that runs this) for ``workloads``."""

    need: Venv
    path: Path
    python: str | None
    torch: TorchSource
    workloads: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What names the step in the record."""
        return f"venv {self.need.name}"

    @property
    def digest(self) -> str:
        """Equal for equal content. The path is part of it: a virtual environment does not outlive a move."""
        content = json.dumps(typed.to_data(replace(self, workloads=())), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def add_workload(
    steps: tuple[VenvStep, ...], workload: str, needs: Needs | None, answers: Answers, site: Site
) -> tuple[VenvStep, ...]:
    """``steps`` with those of one more workload, equal ones shared. Raises LlmbError for what cannot be installed."""
    if needs is None:
        raise LlmbError(f"{workload} does not say what it needs on cluster type {site.cluster_type}", hint=LEAVE_OUT)
    found = {step.key: step for step in steps}
    for need in needs.needs:
        step = _step(workload, need, answers, site)
        other = found.get(step.key, step)
        if other.digest != step.digest:
            users = ", ".join(other.workloads)
            message = f"{workload} and {users} need different environments under one name, '{step.need.name}'"
            raise LlmbError(message, hint="install them into folders of their own, or tell the plugins' makers")
        found[step.key] = replace(other, workloads=(*other.workloads, workload))
    return tuple(found.values())


def _step(workload: str, need: Need, answers: Answers, site: Site) -> VenvStep:
    if not isinstance(need, Venv):
        message = f"{workload} needs {type(need).__name__} {_label(need)}, which this version cannot install"
        raise LlmbError(message, hint=LEAVE_OUT)
    if not re.fullmatch(r"\w[\w.-]*", need.name):
        raise LlmbError(f"{workload}: '{need.name}' cannot be a folder's name", hint="tell the plugin's maker")
    index, cpu_index = answers.torch_index, answers.torch_cpu_index
    return VenvStep(
        need=need,
        path=site.install / "venvs" / need.name,
        python=answers.python.text if answers.python is not None else need.python,
        torch=TorchSource(
            index=index.text if index is not None else None,
            cpu_index=cpu_index.text if cpu_index is not None and index is None and site.gpu_type == CPU else None,
        ),
    )


def _label(need: Need) -> str:
    return str(next(iter(typed.to_data(need).values())))


def is_finished(step: VenvStep, record: InstallRecord) -> bool:
    """Whether the record holds the step with this content, and what it made is still there. Starts no process."""
    done = record.steps.get(step.key)
    return done is not None and done.digest == step.digest and is_there(step.path, done.facts.get("folder"))


def is_there(path: Path, folder: object) -> bool:
    """Whether the environment at ``path`` is the one built in ``folder``, with a Python behind it."""
    if not path.is_symlink() or path.readlink() != Path(str(folder)):
        return False
    return (path / "pyvenv.cfg").is_file() and (path / "bin" / "python").exists()
