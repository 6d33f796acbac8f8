# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of runs on a Slurm cluster, all of it at once and with few calls to its controller."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from llmb.clusters import checks
from llmb.clusters.slurm import fits, image_checks, known, registering, sbatch_script
from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.partitions import Partition, partitions
from llmb.clusters.slurm.refusals import Refusal, refusals
from llmb.clusters.slurm.registering import Registering
from llmb.clusters.slurm.request import sbatch_options
from llmb.clusters.slurm.sbatch_script import Setting
from llmb.config.locate import place_in_config
from llmb.errors import Fault, LlmbError
from llmb.runs.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp


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
    yield from image_checks.faults_of_image(launch, setting.config)
    yield from image_checks.faults_of_mounts(launch)
    yield from image_checks.faults_of_own_mounts((_stamp(launch, setting).directory, setting.programs))
    yield from image_checks.faults_of_writable(launch, setting.config, setting.lacks)


def _slurm_faults(launches: Sequence[Launch], setting: Setting, client: Client, patience: Registering) -> list[Fault]:
    """What the cluster's present state and configuration stand against. Raises LlmbError where it does not answer.

    That no node fits is believed only where Slurm knows the state of all nodes of that partition.
    """
    found: Mapping[str, Partition] = partitions(client)
    faults, refused = _judge(launches, setting, client, found)
    names = {name for one in refused if one.is_of_nodes for name in _partitions_of(one, found)}
    if registering.unknown_nodes(found, names):
        found = patience.wait(client, found, names)
        faults, refused = _judge(launches, setting, client, found)
    unknown = registering.unknown_nodes(found, names)
    doubted = [one for one in refused if unknown and one.is_of_nodes]
    faults += [one.fault for one in refused if one not in doubted]
    return [*faults, registering.fault(unknown)] if doubted else faults


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
    shown = known.help_of(client, "srun") if setting.container else None
    if shown is not None and "--container-image" not in shown:
        yield Fault(
            message="this Slurm has no pyxis: srun knows no --container-image",
            hint="slurm.container: none in cluster_config.yaml runs from an environment of Python",
        )
    if mpi is not None and (said := known.no_mpi(client, mpi)) is not None:
        place = place_in_config(setting.config.llmb_install, "slurm", "mpi")
        hint = "srun --mpi=list shows what it has; slurm.mpi in cluster_config.yaml names it, and none starts without"
        yield Fault(message=f"this Slurm {said}", place=place, hint=hint)


def _stamp(launch: Launch, setting: Setting) -> Stamp:
    root = setting.config.experiments("w") / launch.name / f"{launch.name}_{PREVIEW_TIMESTAMP}"
    return Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(root))
