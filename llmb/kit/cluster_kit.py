# SPDX-License-Identifier: Apache-2.0
"""For cluster types of plugins: checks before a submission, a job's environment, its programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb.contract.launch import Launch
from llmb.contract.schema import ClusterConfig
from llmb.core import process, secrets
from llmb.errors import Fault
from llmb.kit import checks, programs

BASE = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")


def launch_faults(
    launches: Sequence[Launch], config: ClusterConfig, environ: Mapping[str, str]
) -> list[Fault]:
    """Check first what every cluster does: environments, inputs, GPU memory, secrets, disk."""
    faults = [fault for launch in launches for fault in checks.faults_of_launch(launch, config)]
    faults += [fault for launch in launches for fault in checks.faults_of_venv(launch, config)]
    faults += checks.faults_of_secrets(launches, environ)
    faults += checks.faults_of_folders(config, programs.digest(), launches)
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


def stage_programs(config: ClusterConfig) -> Path:
    """Copy the ranks' programs into the install directory, if missing. Raises LlmbError."""
    return programs.stage(config.llmb_install)


def host_name() -> str:
    """The name of this machine, which does not change while a network comes and goes."""
    return process.host_name()
