# SPDX-License-Identifier: Apache-2.0
"""The kinds of installation steps, the state of recorded ones, and the steps for what workloads need."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from llmb.config import images
from llmb.config.slurm import SLURM_OPTIONS, SlurmConfig
from llmb.errors import LlmbError
from llmb.runs.launch import Site
from llmb.runs.programs import digest
from llmb.workload import gpus, needs, spec
from llmb_installer import hub
from llmb_installer.answers.schema import Answers
from llmb_installer.detect.site import cluster_of
from llmb_installer.execution.runner import Runner, Sbatch, Srun
from llmb_installer.hub import AssetStep
from llmb_installer.images import image_step
from llmb_installer.record import FOLDER, InstallRecord, StepRecord
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


PYXIS_HINT = "ask the administrators for pyxis, then set 'slurm: {container: pyxis}' in the answers"
OMIT_HINT = "list the other workloads under 'workloads' in the answers"


class Plugins(Protocol):
    """The part of llmb's loaded plugins that an installation needs."""

    def workloads(self) -> Mapping[str, spec.Workload]:
        """The workloads by key."""

    def setup(self, workload: spec.Workload, site: Site) -> needs.Needs | None:
        """What ``workload`` needs at ``site``; None where its plugin does not define it."""


def add_workload(
    steps: tuple[Step, ...], workload: str, wanted: needs.Needs | None, answers: Answers, site: Site
) -> tuple[Step, ...]:
    """``steps`` with those of one more workload, equal ones shared. Raises LlmbError where it cannot be installed."""
    if wanted is None:
        message = f"the plugin of {workload} defines no setup for cluster type {site.cluster_type}"
        raise LlmbError(message, hint=OMIT_HINT, code="setup-missing", key=workload)
    found = {step.key: step for step in steps}
    own: list[str] = []
    made = [_step(workload, need, answers, site) for need in wanted.needs]
    for step in sorted(made, key=lambda step: isinstance(step, task.TaskStep)):
        after = tuple(own) if isinstance(step, task.TaskStep) else ()
        other = found.get(step.key, step)
        if other.digest != step.digest:
            users = " and ".join(dict.fromkeys([workload, *other.workloads]))
            several = "needs" if users == workload else "need"
            message = f"{users} {several} different content for one step, '{step.key}'"
            hint = "install them into separate folders, or report it to the plugins' authors"
            raise LlmbError(message, hint=hint, code="steps-conflict", key=step.key)
        found[step.key] = replace(
            other, workloads=(*other.workloads, workload), after=tuple(dict.fromkeys([*other.after, *after]))
        )
        own.append(step.key)
    return tuple(found.values())


def programs_step(install: Path, workloads: tuple[str, ...]) -> programs.ProgramsStep:
    """The step that copies the programs of compute nodes, which every workload may need."""
    return programs.ProgramsStep(install=install, content=digest(), workloads=workloads)


def _step(workload: str, need: needs.Need, answers: Answers, site: Site) -> Step:
    match need:
        case needs.Venv():
            return _venv(need, answers, site)
        case needs.Image():
            return _image(workload, need, answers, site)
        case needs.Repo():
            return repo.RepoStep(need=need, folder=site.install / "repos")
        case needs.HubAsset():
            return AssetStep(need=need, install=site.install)
        case needs.Task():
            return task.TaskStep(need=need, install=site.install)


def _venv(need: needs.Venv, answers: Answers, site: Site) -> VenvStep:
    index, cpu_index = answers.torch_index, answers.torch_cpu_index
    all_cpu = all(
        cluster_of(answers, gpus.CPU).rows_for(name) == gpus.CPU for name in (site.gpu_type, *answers.gpu_types)
    )
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


def _image(workload: str, need: needs.Image, answers: Answers, site: Site) -> image_step.ImageStep:
    if not answers.uses_images:
        message = f"{workload} needs the container image {need.reference}, and this cluster has no containers"
        fix = f"; or {PYXIS_HINT}" if answers.of_type.has(SlurmConfig) else ""
        raise LlmbError(message, hint=f"{OMIT_HINT}{fix}", code="no-containers", key=workload)
    target = None
    if not site.runs.pulls_images:
        config = cluster_of(answers, answers.gpu_type)
        target = images.image_path(
            need.reference, replace(config, install=replace(config.install, image_folder=answers.image_folder))
        )
    return image_step.ImageStep(
        reference=need.reference,
        architecture=site.node_architecture,
        target=target,
        settings=answers.images,
        srun=node_options(answers) if answers.method == "srun" else None,
    )


_OMITTED = ("gres", "gpus_per_node", "segment", "nice")  # an installation needs no GPU


def runner_for(answers: Answers, install: Path) -> Runner:
    if answers.method == "srun":
        return Srun(options=node_options(answers))
    if answers.method == "sbatch":
        return Sbatch(options=node_options(answers), folder=install / FOLDER / "jobs")
    return Runner()


def node_options(answers: Answers) -> tuple[str, ...]:
    """The options of srun and sbatch that allocate one of the nodes that jobs will use."""
    slurm = answers.slurm or SlurmConfig()
    given = {name: slurm.option(name) for name in SLURM_OPTIONS if name not in _OMITTED}
    return tuple(f"--{name}={value}" for name, value in given.items() if value is not None)
