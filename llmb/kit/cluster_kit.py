# SPDX-License-Identifier: Apache-2.0
"""For cluster types of plugins: checks before a submission, a job's environment, its programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb.contract.launch import Launch
from llmb.contract.schema import ClusterConfig
from llmb.core import secrets
from llmb.errors import Fault
from llmb.kit import checks, programs as program_files

BASE = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")


def launch_faults(
    launches: Sequence[Launch],
    config: ClusterConfig,
    environ: Mapping[str, str] | None,
    programs: Path | None = None,
) -> list[Fault]:
    """Check first what every cluster does: environments, inputs, GPU memory, secrets, disk.

    ``environ`` is None if secrets do not come from this shell. ``programs`` is the folder of
    ``programs_folder``, if it is known. Where the cluster pulls images, a launch without an
    environment uses its image's Python.
    """
    faults = [fault for launch in launches for fault in checks.faults_of_launch(launch, config)]
    in_venv = [
        launch for launch in launches if launch.venv is not None or not config.traits.pulls_images
    ]
    faults += [fault for launch in in_venv for fault in checks.faults_of_venv(launch, config)]
    if environ is not None:
        faults += checks.faults_of_secrets(launches, environ)
    folder = programs or programs_folder(config)
    faults += checks.faults_of_folders(config, folder.name, launches)
    return list(dict.fromkeys(faults))


def job_environment(
    launch: Launch, config: ClusterConfig, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that a job gets from its submission.

    They are a few of the user's, ``pass_environment`` and its secrets. Raises LlmbError if the
    user's file of secrets cannot be used.
    """
    names = (*BASE, *config.pass_environment)
    return {name: environ[name] for name in names if name in environ} | secrets.find(
        launch.secrets, environ
    )


def find_secrets(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of these names that ``environ`` or the user's file of secrets has.

    Raises LlmbError if the file cannot be used.
    """
    return secrets.find(names, environ)


def programs_folder(config: ClusterConfig) -> Path:
    """Return the folder in the install directory that ``stage_programs`` copies to.

    It is named after the digest of the installed programs, which are read for it. Raises LlmbError.
    """
    return program_files.path(config.llmb_install, program_files.digest())


def stage_programs(config: ClusterConfig, programs: Path | None = None) -> Path:
    """Copy the ranks' programs into the install directory, if missing. Return their folder.

    ``programs`` is that of ``programs_folder``. It is checked once by a process, because reading
    all programs takes longer than a submission. Raises LlmbError.
    """
    if programs is None:
        return program_files.stage(config.llmb_install)
    program_files.stage_once(config.llmb_install, programs.name)
    return programs
