# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``ssh``: machines without a scheduler. Each runs one job after another; all
share a file system.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmb import api


@dataclass(frozen=True, slots=True, kw_only=True)
class SshConfig:
    """The section ``ssh`` of cluster_config.yaml: the machines, and the command that runs a shell
    on one of them.
    """

    hosts: tuple[str, ...]
    command: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    timeout: int = 60

    def __post_init__(self) -> None:
        if (why := wrong_hosts(self.hosts)) is not None:
            raise api.KeyFaultError(why, "hosts", hint="such as hosts: [gpu1, me@gpu2]")
        if self.timeout < 1:
            raise api.KeyFaultError("must be at least 1 second", "timeout")


def wrong_hosts(hosts: Sequence[str]) -> str | None:
    """What is wrong with the machines' names; None if nothing is."""
    if not hosts:
        return "name at least one machine"
    wrong = [
        host
        for host in hosts
        if not host or host.startswith("-") or not host.isprintable() or " " in host
    ]
    return f"'{wrong[0]}' is not the name of a machine" if wrong else None


def notes(section: SshConfig, environ: Mapping[str, str]) -> list[str]:
    """What would not work from here."""
    found = shutil.which(section.command[0], path=environ.get("PATH"))
    return (
        []
        if found
        else [f"there is no {section.command[0]} here: jobs cannot be submitted from this machine"]
    )


HOSTS = api.ClusterQuestion(
    key="hosts",
    label="machines",
    text="Machines for jobs, separated by commas:",
    variable="LLMB_SSH_HOSTS",
    required=True,
    parse=lambda text: [host.strip() for host in text.split(",")],
    show=lambda hosts: ", ".join(hosts or ()),
    check=wrong_hosts,
)


@api.hookimpl
def llmb_clusters() -> list[api.ClusterType]:
    """The cluster type ``ssh``."""
    return [
        api.ClusterType(
            name="ssh",
            create="llmb_ssh.cluster:create",
            title="start jobs on other machines by ssh, without a scheduler",
            schema=SshConfig,
            questions=(HOSTS,),
            detect=lambda environ: environ.get("LLMB_SSH_HOSTS"),
            check=notes,
        )
    ]
