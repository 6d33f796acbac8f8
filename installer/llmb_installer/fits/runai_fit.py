# SPDX-License-Identifier: Apache-2.0
"""Holds answers for Run:ai against its API, never for long, against the volume, and against what its images have."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from llmb.clusters.runai.request import is_on
from llmb.clusters.runai.token import find_credentials
from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.config.runai import RunaiConfig
from llmb.config.schema import WorkloadConfig
from llmb.errors import LlmbError
from llmb.frameworks.nemo.torch_pretrain import PACKAGES, VENV
from llmb.workload.gpus import CPU
from llmb_installer.answers import Answers
from llmb_installer.images.image_step import ImageStep
from llmb_installer.steps import Step

What = Literal["API", "secret", "project"]
_NEMO = "/nemo:"  # of an image's reference
_CONFIGURED = "in cluster_config.yaml"


def ask(runai: RunaiConfig, environ: Mapping[str, str]) -> tuple[What, LlmbError] | None:
    """What Run:ai says against ``runai``, and of which part of it; None where it signs in and has the project."""
    from llmb.clusters.runai.faults import SignInError
    from llmb.clusters.runai.rest import Client
    from llmb.clusters.runai.workloads import Api, ProjectError

    try:
        credentials = find_credentials(runai, environ)
    except LlmbError as error:
        return "secret", error
    try:
        _ = Api(client=Client(runai.base_url, credentials, is_hurried=True), runai=runai).project
    except SignInError as error:
        return "secret", error
    except ProjectError as error:
        return "project", error
    except LlmbError as error:
        return "API", error
    return None


def check(answers: Answers, environ: Mapping[str, str]) -> Iterator[str]:
    """What llmb-run would refuse, in sentences: all of it may yet become right, and stops no installation."""
    if answers.runai is None:
        return
    if (said := ask(answers.runai, environ)) is not None:
        error = said[1]
        fix = f" ({error.hint.replace(_CONFIGURED, 'in the answers')})" if error.hint else ""
        yield f"no job can be submitted to Run:ai now: {error.message}{fix}"
    yield from _volume_doubts(answers, answers.runai)


def _volume_doubts(answers: Answers, runai: RunaiConfig) -> Iterator[str]:
    """Whether files lie where pods see them; the volume may be mounted later."""
    pvc = runai.pvc
    if not pvc.here.is_dir():
        yield f"the volume {pvc.name} is not mounted here: no folder {pvc.here} ('runai.pvc.local' names another)"
    for key, folder in (("install", answers.install), ("experiments_root", answers.experiments_root)):
        if folder is not None and not is_on(pvc, folder):
            yield f"{key}: {folder} is not on the volume {pvc.here}: pods see nothing else, llmb-run refuses jobs"


def without_torch(config: ClusterConfig, steps: Iterable[Step]) -> tuple[str, ...]:
    """The workloads that have sizes ``tiny`` alone here, and for these nothing but NeMo's image, which lacks packages.

    ``steps``: what is installed; ``config``: the configuration as it will be, where a person may name environments.
    """
    if config.cluster_type != "runai" or config.gpu_type != CPU:
        return ()
    images = [step for step in steps if isinstance(step, ImageStep) and _NEMO in step.reference]
    keys = dict.fromkeys(key for step in images for key in step.workloads)
    return tuple(key for key in keys if not _has_own(config.workloads.of(key)))


def _has_own(workload: WorkloadConfig) -> bool:
    return workload.venv_path is not None or VENV in workload.venvs


def torch_note(keys: Sequence[str]) -> str:
    """What to say of the workloads that ``without_torch`` names."""
    return (
        f"without GPUs there are the sizes tiny alone, which need {' and '.join(PACKAGES)}, and NeMo's image does not "
        f"have them: give --image an image that has, or let workloads.config.{keys[0]}.venvs.{VENV} in {CONFIG_FILE} "
        "name an environment on the volume (docs/runai.md)"
    )
