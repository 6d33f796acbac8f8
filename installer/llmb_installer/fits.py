# SPDX-License-Identifier: Apache-2.0
"""Compares answers with the cluster they are for, before anything is fetched."""

import os
from collections.abc import Iterable, Mapping, Sequence

from llmb.builtin.torch.torch_pretrain import PACKAGES, VENV
from llmb.contract.cluster_type import ClusterType
from llmb.contract.gpus import CPU
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.read_config import raised_by
from llmb_installer.answers.schema import Answers
from llmb_installer.detect.slurm_checks import check_slurm
from llmb_installer.images.image_step import ImageStep
from llmb_installer.step import InstallStep

_NEMO = "/nemo:"  # in an image's reference


def check(answers: Answers) -> list[str]:
    """Notes on what llmb-run would refuse later.

    Raises InputFaults for what cannot work, each fault at its key.
    """
    if answers.of_type.has(SlurmConfig):
        return check_slurm(answers)
    kind, section = answers.of_type, answers.section
    return [*run_check_of_type(kind, section, os.environ), *_folder_notes(kind, answers)]


def _folder_notes(kind: ClusterType, answers: Answers) -> list[str]:
    """Return notes on the folders that jobs of the cluster type cannot use."""
    folders = {"install": answers.install, "experiments_root": answers.experiments_root}
    try:
        return [
            f"{key}: {fault}"
            for key, folder in folders.items()
            if folder is not None
            and (fault := kind.folder_fault(answers.section, folder)) is not None
        ]
    except (Exception, SystemExit) as error:
        raise raised_by(kind, "folder_fault", error) from error


def run_check_of_type(kind: ClusterType, section: object, environ: Mapping[str, str]) -> list[str]:
    """Return the notes of a cluster type's own check. Raises LlmbError, which names the plugin."""
    try:
        notes = list(kind.check(section, environ))
    except (Exception, SystemExit) as error:
        raise raised_by(kind, "check", error) from error
    for note in notes:
        if type(note) is not str:
            raise raised_by(kind, "check", TypeError(f"returned {note!r}, no text"))
    return notes


def find_workloads_without_torch(
    config: ClusterConfig, steps: Iterable[InstallStep]
) -> tuple[str, ...]:
    """Return the workloads that have only the size ``tiny`` here, and only NeMo's image for it.

    ``steps`` are the installed ones. ``config`` is the new configuration, in which a person may
    name environments.
    """
    if not config.traits.pulls_images or config.gpu_type != CPU:
        return ()
    images = [step for step in steps if isinstance(step, ImageStep) and _NEMO in step.reference]
    keys = dict.fromkeys(key for step in images for key in step.workloads)
    settings = {key: config.workloads.of(key) for key in keys}
    return tuple(
        key for key in keys if settings[key].venv_path is None and VENV not in settings[key].venvs
    )


def explain_torch(keys: Sequence[str]) -> str:
    """The note for the workloads of ``find_workloads_without_torch``."""
    return (
        f"without GPUs only the sizes tiny can run; they need {' and '.join(PACKAGES)}, which"
        " NeMo's image does not have: name an image that has them with --image, or set"
        f" workloads.config.{keys[0]}.venvs.{VENV} in {CONFIG_FILE} to an environment on the volume"
        " (llmb-run docs runai)"
    )
