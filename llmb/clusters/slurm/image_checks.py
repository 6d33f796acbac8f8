# SPDX-License-Identifier: Apache-2.0
"""Whether a launch's image and mounts are there, by their files alone: milliseconds, and no process is started."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from llmb.clusters.checks import workload_of
from llmb.clusters.slurm import container
from llmb.config import ClusterConfig
from llmb.config.images import image_path, recorded_size, superblock_fault
from llmb.errors import Fault, LlmbError
from llmb.runs.launch import Launch

_ANYWAY = "--no-preflight submits it all the same"


def faults_of_image(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Whether the file of the image is there, as long as it was recorded, and a squashfs image."""
    if launch.image is None:
        yield Fault(message=f"{launch.name} has no image", hint="slurm.container: none runs it from an environment")
        return
    path = image_path(launch.image, config)
    is_file = str(path) == launch.image
    where = f"--install {shlex.quote(str(config.llmb_install))}"
    if not path.exists():
        if is_file:
            hint = "name a file that is there: llmb-install image REFERENCE -o FILE builds one"
        elif launch.image in launch.fixes:  # chosen for this job alone
            hint = launch.fixes[launch.image]
        else:
            hint = f"llmb-install add {workload_of(launch, config)} {where} --yes"
        yield Fault(message=f"the image {path} is not there", hint=hint)
    elif (fault := _damage_of(path)) is not None:
        again = f"llmb-install image {shlex.quote(launch.image)} {where}"
        hint = "copy it again, or name another" if is_file else f"rm {shlex.quote(str(path))}; {again}"
        yield Fault(message=f"the image {path} cannot be used: {fault}", hint=hint)


def faults_of_mounts(launch: Launch) -> Iterator[Fault]:
    """Whether pyxis can read the mounts, and their sources are there: it looks at absolute ones alone."""
    for mount in launch.mounts:
        source = mount.partition(":")[0]
        if "," in mount or mount.count(":") > 2:
            message = f"{mount} cannot be mounted: pyxis takes commas and colons for its own"
            yield Fault(message=message, hint="choose folders without them")
        elif _is_missing(source):
            message = f"{source} cannot be mounted: it is not there"
            hint = f"mend --mount, or mounts: in the job list; where the nodes have it and this machine not, {_ANYWAY}"
            yield Fault(message=message, hint=hint)


def faults_of_own_mounts(folders: tuple[str, ...]) -> Iterator[Fault]:
    """Whether the folders that every container of llmb mounts have names that pyxis can read."""
    for folder in folders:
        if "," in folder or ":" in folder:
            message = f"{folder} cannot be mounted: pyxis takes commas and colons for its own"
            yield Fault(message=message, hint="choose folders without them")


def faults_of_writable(launch: Launch, config: ClusterConfig, lacks: frozenset[str]) -> Iterator[Fault]:
    """Whether this pyxis can make the image writable, where the job or the cluster asks for it."""
    asked = launch.container_writable or (launch.container_writable is None and _config_asks(config))
    if asked and container.WRITABLE in lacks:
        message = "container_writable is true, and this srun has no --container-writable"
        yield Fault(message=message, hint="leave it out, or ask for a newer pyxis")


def _config_asks(config: ClusterConfig) -> bool:
    return config.slurm is not None and config.slurm.container_writable is True


def _damage_of(path: Path) -> str | None:
    try:
        fault = superblock_fault(path)
        size = path.stat().st_size
    except LlmbError as error:
        return error.message
    recorded = recorded_size(path)
    if fault is None and recorded is not None and size != recorded:
        return f"it has {size:,} bytes, and {recorded:,} by the record beside it"
    return fault


def _is_missing(path: str) -> bool:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # the node may read what this machine may not
        return False
    return False
