# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of runs on a Slurm cluster, all of it at once and with few calls to its controller."""

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llmb.clusters import checks
from llmb.clusters.checks import workload_of
from llmb.clusters.slurm import commands, container, fits, partitions, sbatch_script
from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.partitions import Partition, Registering
from llmb.clusters.slurm.refusals import Refusal, refusals
from llmb.clusters.slurm.request import sbatch_options
from llmb.clusters.slurm.sbatch_script import Setting
from llmb.config import ClusterConfig
from llmb.config.images import image_path, recorded_size, superblock_fault
from llmb.config.locate import place_in_config
from llmb.errors import Fault, LlmbError
from llmb.runs.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp

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


def check(
    launches: Sequence[Launch], setting: Setting, client: Client, digest: str, patience: Registering
) -> list[Fault]:
    """Every fault of these launches and of this place; nodes of unknown state are waited for with ``patience``."""
    # Repeats of a job stand side by side and lack the same.
    faults = [fault for launch, _ in itertools.groupby(launches) for fault in _own_faults(launch, setting)]
    faults += checks.faults_of_secrets(launches, client.environ)
    faults += checks.faults_of_place(setting.config, digest, launches)
    faults += _plugin_faults(setting, client)
    try:
        faults += _slurm_faults(launches, setting, client, patience)
    except LlmbError as error:
        faults.append(Fault(message=error.message, hint=error.hint))
    return list(dict.fromkeys(faults))


def _own_faults(launch: Launch, setting: Setting) -> Iterator[Fault]:
    """What a launch lacks, whatever the state of the cluster."""
    try:
        sbatch_script.render(launch, _stamp(launch, setting), setting)
    except LlmbError as error:
        yield Fault(message=f"{launch.name}: {error.message}", hint=error.hint)
    yield from checks.faults_of_launch(launch, setting.config)
    if not setting.container:
        yield from checks.faults_of_venv(launch, setting.config)
        return
    yield from faults_of_image(launch, setting.config)
    yield from faults_of_mounts(launch)
    yield from faults_of_own_mounts((_stamp(launch, setting).directory, setting.programs))
    yield from faults_of_writable(launch, setting.config, setting.lacks)


def _slurm_faults(launches: Sequence[Launch], setting: Setting, client: Client, patience: Registering) -> list[Fault]:
    """What the cluster's present state and configuration stand against. Raises LlmbError where it does not answer.

    That no node fits is believed only where Slurm knows the state of all nodes of that partition.
    """
    found: Mapping[str, Partition] = partitions.partitions(client)
    faults, refused = _judge(launches, setting, client, found)
    names = {name for one in refused if one.is_of_nodes for name in _partitions_of(one, found)}
    if partitions.unknown_nodes(found, names):
        found = patience.wait(client, found, names)
        faults, refused = _judge(launches, setting, client, found)
    unknown = partitions.unknown_nodes(found, names)
    doubted = [one for one in refused if unknown and one.is_of_nodes]
    faults += [one.fault for one in refused if one not in doubted]
    return [*faults, partitions.fault(unknown)] if doubted else faults


def _judge(
    launches: Sequence[Launch], setting: Setting, client: Client, found: Mapping[str, Partition]
) -> tuple[list[Fault], list[Refusal]]:
    """What does not fit the partitions ``found``, and what Slurm would refuse."""
    jobs, faults = [], []
    for launch, _ in itertools.groupby(launches):
        own = list(fits.faults_of(launch, setting.config, found))
        faults += own
        stamp, knows = _stamp(launch, setting), setting.knows_segment
        jobs.append((sbatch_options(launch, stamp, setting.config, knows_segment=knows), not own))
    usable = frozenset(name for name, partition in found.items() if partition.available == "up")
    return faults, list(refusals(client, jobs, usable))


def _partitions_of(refusal: Refusal, found: Mapping[str, Partition]) -> list[str]:
    if refusal.partition is not None:
        return refusal.partition.split(",")
    return [name for name, partition in found.items() if partition.is_default]


def _plugin_faults(setting: Setting, client: Client) -> Iterator[Fault]:
    mpi = setting.mpi
    shown = commands.help_of(client, "srun") if setting.container else None
    if shown is not None and "--container-image" not in shown:
        yield Fault(
            message="this Slurm has no pyxis: srun knows no --container-image",
            hint="slurm.container: none in cluster_config.yaml runs from an environment of Python",
        )
    if mpi is not None and (said := commands.no_mpi(client, mpi)) is not None:
        place = place_in_config(setting.config.llmb_install, "slurm", "mpi")
        hint = "srun --mpi=list shows what it has; slurm.mpi in cluster_config.yaml names it, and none starts without"
        yield Fault(message=f"this Slurm {said}", place=place, hint=hint)


def _stamp(launch: Launch, setting: Setting) -> Stamp:
    root = setting.config.experiments("w") / launch.name / f"{launch.name}_{PREVIEW_TIMESTAMP}"
    return Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(root))
