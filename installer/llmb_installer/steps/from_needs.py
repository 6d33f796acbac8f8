# SPDX-License-Identifier: Apache-2.0
"""Makes the steps for what workloads need."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from llmb.contract import gpus, needs, spec
from llmb.contract.launch import Site
from llmb.contract.sbatch import SLURM_OPTIONS, SlurmConfig
from llmb.errors import LlmbError
from llmb.kit.programs import digest
from llmb.plan import images
from llmb_installer.answers.schema import Answers
from llmb_installer.detect.site import make_cluster_config
from llmb_installer.execution.runner import Runner, Sbatch, Srun
from llmb_installer.hub import AssetStep
from llmb_installer.images import image_step
from llmb_installer.record import FOLDER
from llmb_installer.step import InstallStep
from llmb_installer.steps import programs, repo, task
from llmb_installer.venv.lock import TorchSource
from llmb_installer.venv.venv_step import VenvStep

PYXIS_HINT = "ask the administrators for pyxis, then set 'slurm: {container: pyxis}' in the answers"
OMIT_HINT = "list the other workloads under 'workloads' in the answers"


class WorkloadPlugins(Protocol):
    """The part of llmb's loaded plugins that an installation needs."""

    def workloads(self) -> Mapping[str, spec.Workload]:
        """The workloads by key."""

    def setup(self, workload: spec.Workload, site: Site) -> needs.Needs | None:
        """Return the needs of ``workload`` at ``site``. None if its plugin does not define them."""


def add_workload(
    steps: tuple[InstallStep, ...],
    workload: str,
    workload_needs: needs.Needs | None,
    answers: Answers,
    site: Site,
) -> tuple[InstallStep, ...]:
    """Add the steps of one more workload to ``steps``. It shares equal steps.

    Raises LlmbError if it cannot be installed.
    """
    if workload_needs is None:
        message = f"the plugin of {workload} defines no setup for cluster type {site.cluster_type}"
        raise LlmbError(message, hint=OMIT_HINT, code="setup-missing", key=workload)
    by_key = {step.key: step for step in steps}
    own_keys: list[str] = []
    new_steps = [_step(workload, need, answers, site) for need in workload_needs.needs]
    for step in sorted(new_steps, key=lambda step: isinstance(step, task.TaskStep)):
        after = tuple(own_keys) if isinstance(step, task.TaskStep) else ()
        shared = by_key.get(step.key, step)
        if shared.digest != step.digest:
            users = " and ".join(dict.fromkeys([workload, *shared.workloads]))
            several = "needs" if users == workload else "need"
            message = f"{users} {several} different content for one step, '{step.key}'"
            hint = "install them into separate folders, or report it to the plugins' authors"
            raise LlmbError(message, hint=hint, code="steps-conflict", key=step.key)
        by_key[step.key] = replace(
            shared,
            workloads=(*shared.workloads, workload),
            after=tuple(dict.fromkeys([*shared.after, *after])),
        )
        own_keys.append(step.key)
    return tuple(by_key.values())


def make_programs_step(install: Path, workloads: tuple[str, ...]) -> programs.ProgramsStep:
    """The step that copies the programs of compute nodes, which every workload may need."""
    return programs.ProgramsStep(install=install, content=digest(), workloads=workloads)


def _step(workload: str, need: needs.Need, answers: Answers, site: Site) -> InstallStep:
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
        make_cluster_config(answers, gpus.CPU).rows_for(name) == gpus.CPU
        for name in (site.gpu_type, *answers.gpu_types)
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
        message = (
            f"{workload} needs the container image {need.reference}, and this cluster has no"
            " containers"
        )
        fix = f"; or {PYXIS_HINT}" if answers.of_type.has(SlurmConfig) else ""
        raise LlmbError(message, hint=f"{OMIT_HINT}{fix}", code="no-containers", key=workload)
    target = None
    if not site.runs.pulls_images:
        config = make_cluster_config(answers, answers.gpu_type)
        target = images.image_path(
            need.reference,
            replace(config, install=replace(config.install, image_folder=answers.image_folder)),
        )
    return image_step.ImageStep(
        reference=need.reference,
        architecture=site.node_architecture,
        target=target,
        settings=answers.images,
        srun=list_node_options(answers) if answers.method == "srun" else None,
    )


_OMITTED = ("gres", "gpus_per_node", "segment", "nice")  # an installation needs no GPU


def make_runner(answers: Answers, install: Path) -> Runner:
    if answers.method == "srun":
        return Srun(options=list_node_options(answers))
    if answers.method == "sbatch":
        return Sbatch(options=list_node_options(answers), folder=install / FOLDER / "jobs")
    return Runner()


def list_node_options(answers: Answers) -> tuple[str, ...]:
    """The options of srun and sbatch that allocate one of the nodes that jobs will use."""
    slurm = answers.slurm or SlurmConfig()
    options: dict[str, str | int | None] = {"clusters": slurm.clusters}
    options |= {name: slurm.option(name) for name in SLURM_OPTIONS if name not in _OMITTED}
    return tuple(f"--{name}={value}" for name, value in options.items() if value is not None)
