# SPDX-License-Identifier: Apache-2.0
"""From what workloads need to the steps of an installation, equal needs shared."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from llmb.config import images
from llmb.errors import LlmbError
from llmb.runs import programs
from llmb.runs.site import Site
from llmb.workload import needs
from llmb.workload.gpus import CPU
from llmb.workload.needs import Need, Needs
from llmb.workload.spec import Workload
from llmb_installer.answers import Answers
from llmb_installer.detect.site import cluster_of
from llmb_installer.hub import AssetStep
from llmb_installer.images.image_step import ImageStep
from llmb_installer.step import Step
from llmb_installer.steps.nodes import node_options
from llmb_installer.steps.programs import ProgramsStep
from llmb_installer.steps.repo import RepoStep
from llmb_installer.steps.task import TaskStep
from llmb_installer.venv.torch_source import TorchSource
from llmb_installer.venv.venv_step import VenvStep

LEAVE_OUT = "name the others under 'workloads' in the answers"


class Plugins(Protocol):
    """The part of llmb's loaded plugins that an installation asks."""

    def workloads(self) -> Mapping[str, Workload]:
        """The workloads by their keys."""

    def setup(self, workload: Workload, site: Site) -> Needs | None:
        """What ``workload`` needs at ``site``; None when nobody can say."""


def add_workload(
    steps: tuple[Step, ...], workload: str, wanted: Needs | None, answers: Answers, site: Site
) -> tuple[Step, ...]:
    """``steps`` with those of one more workload, equal ones shared. Raises LlmbError for what cannot be installed."""
    if wanted is None:
        raise LlmbError(f"{workload} does not say what it needs on cluster type {site.cluster_type}", hint=LEAVE_OUT)
    found = {step.key: step for step in steps}
    own: list[str] = []
    made = [_step(workload, need, answers, site) for need in wanted.needs]
    for step in sorted(made, key=lambda step: isinstance(step, TaskStep)):
        after = tuple(own) if isinstance(step, TaskStep) else ()
        other = found.get(step.key, step)
        if other.digest != step.digest:
            users = " and ".join(dict.fromkeys([workload, *other.workloads]))
            several = "needs" if users == workload else "need"
            message = f"{users} {several} different things under one name, '{step.key}'"
            raise LlmbError(message, hint="install them into folders of their own, or tell the plugins' makers")
        found[step.key] = replace(
            other, workloads=(*other.workloads, workload), after=tuple(dict.fromkeys([*other.after, *after]))
        )
        own.append(step.key)
    return tuple(found.values())


def programs_step(install: Path, workloads: tuple[str, ...]) -> ProgramsStep:
    """The step that stages the programs of compute nodes, which every workload may need."""
    return ProgramsStep(install=install, content=programs.digest(), workloads=workloads)


def _step(workload: str, need: Need, answers: Answers, site: Site) -> Step:
    match need:
        case needs.Venv():
            return _venv(workload, need, answers, site)
        case needs.Image():
            return _image(workload, need, answers, site)
        case needs.Repo():
            return RepoStep(need=need, folder=site.install / "repos")
        case needs.HubAsset():
            return AssetStep(need=need, install=site.install)
        case needs.Task():
            return TaskStep(need=need, install=site.install)


def _venv(workload: str, need: needs.Venv, answers: Answers, site: Site) -> VenvStep:
    if "/" in need.name or need.name.startswith("."):
        raise LlmbError(f"{workload}: '{need.name}' cannot be a folder's name", hint="tell the plugin's maker")
    index, cpu_index = answers.torch_index, answers.torch_cpu_index
    all_cpu = all(cluster_of(answers, CPU).rows_for(name) == CPU for name in (site.gpu_type, *answers.gpu_types))
    without_gpu = cpu_index is not None and index is None and all_cpu
    return VenvStep(
        need=need,
        folder=site.install / "venvs" / need.name,
        python=answers.python.text if answers.python is not None else need.python,
        torch=TorchSource(
            index=index.text if index is not None else None,
            cpu_index=cpu_index.text if cpu_index is not None and without_gpu else None,
        ),
        tool=answers.venv_type,
        wheelhouse=answers.wheelhouse,
        architecture=site.node_architecture,
        fetch_python=answers.python_download,
    )


def _image(workload: str, need: needs.Image, answers: Answers, site: Site) -> ImageStep:
    if not answers.uses_images:
        message = f"{workload} needs the container image {need.reference}, and there are no containers here"
        raise LlmbError(message, hint=LEAVE_OUT)
    target = None
    if site.cluster_type != "runai":
        config = cluster_of(answers, answers.gpu_type)
        target = images.image_path(
            need.reference, replace(config, install=replace(config.install, image_folder=answers.image_folder))
        )
    return ImageStep(
        reference=need.reference,
        architecture=site.node_architecture,
        target=target,
        settings=answers.images,
        srun=node_options(answers) if answers.method == "srun" else None,
    )
