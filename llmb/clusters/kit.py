# SPDX-License-Identifier: Apache-2.0
"""For cluster types of plugins: the checks before a submission, the environment of a job, the programs of its ranks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb.clusters import checks
from llmb.config import ClusterConfig
from llmb.errors import Fault
from llmb.runs import programs
from llmb.runs.launch import Launch
from llmb.system import process, secrets

BASE = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")


def launch_faults(launches: Sequence[Launch], config: ClusterConfig, environ: Mapping[str, str]) -> list[Fault]:
    """What every cluster checks first: environments and their packages, input files, memory of GPUs, secrets, disk."""
    faults = [fault for launch in launches for fault in checks.faults_of_launch(launch, config)]
    faults += [fault for launch in launches for fault in checks.faults_of_venv(launch, config)]
    faults += checks.faults_of_secrets(launches, environ)
    faults += checks.faults_of_folders(config, programs.digest(), launches)
    return list(dict.fromkeys(faults))


def job_environment(launch: Launch, config: ClusterConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job gets from its submission: a few of the user's, ``pass_environment``, its secrets.

    Raises LlmbError where the user's file of secrets cannot be used.
    """
    names = (*BASE, *config.pass_environment)
    return {name: environ[name] for name in names if name in environ} | secrets.find(launch.secrets, environ)


def stage_programs(config: ClusterConfig) -> Path:
    """Copy the programs of the ranks into the install directory, unless they are there. Raises LlmbError."""
    target = programs.path(config.llmb_install, programs.digest())
    return target if target.is_dir() else programs.stage(config.llmb_install)


def host_name() -> str:
    """The name of this machine, which does not change while a network comes and goes."""
    return process.host_name()
