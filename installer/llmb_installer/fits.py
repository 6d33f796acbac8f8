# SPDX-License-Identifier: Apache-2.0
"""Compares answers with the cluster they are for, before anything is fetched."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from llmb.clusters.runai import request, rest, rest_errors, token, workloads
from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.config.cluster_type import ClusterType
from llmb.config.reading import raised_by
from llmb.config.runai import RunaiConfig
from llmb.config.slurm import SlurmConfig
from llmb.errors import LlmbError
from llmb.frameworks.torch_pretrain import PACKAGES, VENV
from llmb.system.secrets import SECRETS_FILE
from llmb.workload.gpus import CPU
from llmb_installer.answers.schema import Answers
from llmb_installer.detect.slurm_checks import check_slurm
from llmb_installer.images.image_step import ImageStep
from llmb_installer.steps import Step

RunaiPart = Literal["API", "secret", "project"]
_NEMO = "/nemo:"  # in an image's reference
_ANSWERS: Mapping[RunaiPart, str] = {
    "API": "runai.base_url in the answers",
    "secret": "APP_SECRET, and runai.app_id in the answers or APP_ID",
    "project": "runai.project in the answers",
}


def check(answers: Answers) -> list[str]:
    """Notes on what llmb-run would refuse later. Raises InputFaults for what cannot work, each fault at its key."""
    if answers.of_type.has(SlurmConfig):
        return check_slurm(answers)
    if answers.of_type.has(RunaiConfig):
        return [*check_runai(answers, os.environ)]
    return notes_of(answers.of_type, answers.section, os.environ)


def notes_of(kind: ClusterType, section: object, environ: Mapping[str, str]) -> list[str]:
    """What a cluster type's own check finds. Raises LlmbError, which names the plugin, where the check fails."""
    try:
        found = list(kind.check(section, environ))
    except (Exception, SystemExit) as error:
        raise raised_by(kind, "check", error) from error
    for one in found:
        if type(one) is not str:
            raise raised_by(kind, "check", TypeError(f"returned {one!r}, no text"))
    return found


def ask_runai(runai: RunaiConfig, environ: Mapping[str, str]) -> tuple[RunaiPart, LlmbError] | None:
    """The error of Run:ai's API and the part it is about; None where the access key signs in and has the project.

    Never waits long.
    """
    try:
        credentials = token.find_credentials(runai, environ)
    except LlmbError as error:
        return "secret", error
    try:
        _ = workloads.Api(client=rest.Client(runai.base_url, credentials, is_hurried=True), runai=runai).project
    except rest_errors.SignInError as error:
        return "secret", error
    except workloads.ProjectError as error:
        return "project", error
    except LlmbError as error:
        return "API", error
    return None


def runai_fix(part: RunaiPart, settings: Mapping[RunaiPart, str]) -> str:
    """The fix of an error about ``part``, where ``settings`` name what sets each part."""
    more = {
        "API": ", the network, the proxy (HTTPS_PROXY, NO_PROXY) and the certificates (SSL_CERT_FILE)",
        "secret": "",
        "project": ", and runai.cluster where several clusters have it; or ask for access to the project",
    }
    return f"check {settings[part]}{more[part]}"


def check_runai(answers: Answers, environ: Mapping[str, str]) -> Iterator[str]:
    """Notes on what llmb-run would refuse on Run:ai; none of it stops an installation, as it may change."""
    if answers.runai is None:
        return
    if (refused := ask_runai(answers.runai, environ)) is not None:
        part, error = refused
        unset = f"export {error.name}, or add it to {SECRETS_FILE}" if isinstance(error, token.NotSetError) else None
        fix = unset or runai_fix(part, _ANSWERS)
        yield f"jobs cannot be submitted to Run:ai now: {error.message} ({fix})"
    pvc = answers.runai.pvc  # it may be mounted later
    if not pvc.here.is_dir():
        yield f"the volume {pvc.name} is not mounted here: there is no folder {pvc.here} (runai.pvc.local sets another)"
    for key, folder in (("install", answers.install), ("experiments_root", answers.experiments_root)):
        if folder is not None and not request.is_on(pvc, folder):
            yield f"{key}: {folder} is not on the volume {pvc.here}: pods cannot see it, so llmb-run would refuse jobs"


def without_torch(config: ClusterConfig, steps: Iterable[Step]) -> tuple[str, ...]:
    """The workloads with only the sizes ``tiny`` here, and only NeMo's image for them, which lacks packages.

    ``steps`` are the installed ones; ``config`` is the new configuration, in which a person may name environments.
    """
    if not config.traits.pulls_images or config.gpu_type != CPU:
        return ()
    images = [step for step in steps if isinstance(step, ImageStep) and _NEMO in step.reference]
    keys = dict.fromkeys(key for step in images for key in step.workloads)
    own = {key: config.workloads.of(key) for key in keys}
    return tuple(key for key in keys if own[key].venv_path is None and VENV not in own[key].venvs)


def torch_note(keys: Sequence[str]) -> str:
    """The note for the workloads of ``without_torch``."""
    return (
        f"without GPUs only the sizes tiny can run; they need {' and '.join(PACKAGES)}, which NeMo's image does not "
        f"have: name an image that has them with --image, or set workloads.config.{keys[0]}.venvs.{VENV} in "
        f"{CONFIG_FILE} to an environment on the volume (llmb-run docs runai)"
    )
