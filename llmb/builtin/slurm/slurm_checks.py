# SPDX-License-Identifier: Apache-2.0
"""Pre-submission checks on a Slurm cluster: every fault at once, with few calls to its
controller.
"""

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llmb.builtin.slurm import container, partitions, sbatch_options, sbatch_script
from llmb.builtin.slurm.commands import DENIED, Client, cluster_name
from llmb.builtin.slurm.partitions import NodeWait, Partition
from llmb.builtin.slurm.refusals import Refusal, refusals
from llmb.contract.launch import Launch
from llmb.contract.sbatch import (
    CLUSTER_VARIABLES,
    NO_MPI,
    PMIX,
    SlurmConfig,
    is_one_cluster,
)
from llmb.contract.schema import ClusterConfig
from llmb.core import console
from llmb.errors import Fault, LlmbError, as_fault
from llmb.kit import checks
from llmb.plan.images import image_path, recorded_size, superblock_fault
from llmb.plan.locate import line_in_config

# help asks no controller: only a busy machine is slow, and a script without the answer may fail
_HELP_SECONDS = 60.0
_HIDDEN = (
    "Slurm does not show its partitions and nodes to you (PrivateData): only sbatch --test-only"
    " checks the jobs"
)
_ANYWAY = "--force submits without this check"


def check(
    launches: Sequence[Launch],
    setting: sbatch_script.Setting,
    client: Client,
    digest: str,
    patience: NodeWait,
) -> list[Fault]:
    """Every fault of these launches and of this cluster. ``patience`` waits for nodes of unknown
    state.
    """
    # Repeats of a job follow one another and have the same faults.
    faults = [
        fault for launch, _ in itertools.groupby(launches) for fault in _own_faults(launch, setting)
    ]
    faults += checks.faults_of_secrets(launches, client.environ)
    faults += checks.faults_of_folders(setting.config, digest, launches)
    faults += _plugin_faults(setting, client)
    try:
        faults += faults_of_variables(setting.config, client, asks=True)
        faults += _slurm_faults(launches, setting, client, patience)
    except LlmbError as error:
        faults.append(as_fault(error))
    return list(dict.fromkeys(faults))


def faults_here(
    launches: Sequence[Launch], setting: sbatch_script.Setting, client: Client
) -> Iterator[Fault]:
    """The faults that this machine shows by itself: images, mounts, environments, pyxis and MPI.
    Asks no controller.
    """
    for launch in launches:
        yield from _own_faults(launch, setting)
    yield from _plugin_faults(setting, client, asks=False)
    yield from faults_of_variables(setting.config, client, asks=False)


def faults_of_variables(config: ClusterConfig, client: Client, *, asks: bool) -> Iterator[Fault]:
    """Yield the variable that selects another cluster for Slurm's own commands than llmb asks.

    Without ``slurm.clusters`` only the controller knows which one that is: True for ``asks`` asks
    it. Raises LlmbError if it does not answer.
    """
    name = next((name for name in CLUSTER_VARIABLES if client.environ.get(name)), None)
    if name is None:
        return
    selected, configured = client.environ[name], client.cluster
    cluster = configured if configured is not None or not asks else cluster_name(client)
    if cluster is None or cluster == selected:
        return
    fix = f"set slurm.clusters: {selected}, or " if is_one_cluster(selected) else ""
    yield Fault(
        message=f"{name} is {selected}, and llmb submits to the Slurm cluster {cluster}",
        place=line_in_config(
            config.llmb_install, "slurm", *(["clusters"] if configured is not None else [])
        ),
        hint=f"{fix}unset {name}",
        code="cluster-differs",
        key="slurm.clusters",
        value=selected,
    )


def _own_faults(launch: Launch, setting: sbatch_script.Setting) -> Iterator[Fault]:
    """The faults of a launch that do not depend on the state of the cluster."""
    stamp = checks.preview_stamp(launch, setting.config)
    try:
        sbatch_script.render(launch, stamp, setting)
    except LlmbError as error:
        yield replace(as_fault(error), message=f"{launch.name}: {error.message}")
    yield from checks.faults_of_launch(launch, setting.config)
    if launch.start == "mpi" and setting.mpi is None:
        message = f"{launch.name} starts by MPI, and srun has no MPI plugin"
        hint = (
            "set slurm.mpi in cluster_config.yaml to one that `srun --mpi=list` prints, such as"
            " pmi2"
        )
        yield Fault(message=message, hint=hint, code="no-mpi", key="slurm.mpi")
    if not setting.container:
        yield from checks.faults_of_venv(launch, setting.config)
        return
    yield from faults_of_image(launch, setting.config)
    yield from faults_of_mounts(launch)
    yield from (
        _separator_fault(folder)
        for folder in (stamp.directory, setting.programs)
        if "," in folder or ":" in folder
    )
    yield from faults_of_writable(launch, setting.config, setting.lacks)


def _slurm_faults(
    launches: Sequence[Launch], setting: sbatch_script.Setting, client: Client, patience: NodeWait
) -> list[Fault]:
    """Return what the cluster's present state and configuration do not allow. Raises LlmbError
    where it does not answer.

    Slurm's "no node fits" is believed only where Slurm knows the state of all nodes of that
    partition.
    """
    try:
        by_partition: Mapping[str, Partition] = partitions.partitions(client)
    except LlmbError as error:
        if error.code != DENIED:
            raise
        console.warn_once(_HIDDEN, kind="note")
        jobs = [(_options(launch, setting), True) for launch, _ in itertools.groupby(launches)]
        named = {
            name for options, _ in jobs for name in (options.get("partition") or "").split(",")
        }
        return [refusal.fault for refusal in refusals(client, jobs, frozenset(named))]
    faults, refused = _judge(launches, setting, client, by_partition)
    names = {
        name
        for refusal in refused
        if refusal.is_of_nodes
        for name in _partitions_of(refusal, by_partition)
    }
    if partitions.unknown_nodes(by_partition, names):
        by_partition = patience.wait(client, by_partition, names)
        faults, refused = _judge(launches, setting, client, by_partition)
    unknown_nodes = partitions.unknown_nodes(by_partition, names)
    doubted = [refusal for refusal in refused if unknown_nodes and refusal.is_of_nodes]
    states = partitions.out_of_service(by_partition)
    faults += [refusal.fault_with(states) for refusal in refused if refusal not in doubted]
    return [*faults, partitions.unknown_fault(unknown_nodes)] if doubted else faults


def _judge(
    launches: Sequence[Launch],
    setting: sbatch_script.Setting,
    client: Client,
    by_partition: Mapping[str, Partition],
) -> tuple[list[Fault], list[Refusal]]:
    """Return what does not fit the partitions ``by_partition``, and what Slurm would refuse."""
    jobs, faults = [], []
    try:
        limits = partitions.memory_limits(client)
    except LlmbError:  # the job may start all the same
        limits = {}
    for launch, _ in itertools.groupby(launches):
        faults_of_job = list(partitions.faults_of(launch, setting.config, by_partition, limits))
        faults += faults_of_job
        jobs.append((_options(launch, setting), not faults_of_job))
    usable = frozenset(
        name for name, partition in by_partition.items() if partition.available == "up"
    )
    return faults, list(refusals(client, jobs, usable))


def _options(launch: Launch, setting: sbatch_script.Setting) -> dict[str, str | None]:
    """Return the options of sbatch for a launch that has no run yet."""
    stamp, knows = checks.preview_stamp(launch, setting.config), setting.knows_segment
    return sbatch_options.options_of(launch, stamp, setting.config, knows_segment=knows)


def _partitions_of(refusal: Refusal, by_partition: Mapping[str, Partition]) -> list[str]:
    if refusal.partition is not None:
        return refusal.partition.split(",")
    return [name for name, partition in by_partition.items() if partition.is_default]


def _plugin_faults(
    setting: sbatch_script.Setting, client: Client, *, asks: bool = True
) -> Iterator[Fault]:
    """Check that srun has pyxis and the MPI plugin.

    With ``asks``, it may also ask the controller to load that.
    """
    shown = _plain(client, ["srun", "--help"]) if setting.container else None
    if shown is not None and "--container-image" not in shown:
        yield Fault(
            message="this Slurm has no pyxis: srun has no option --container-image",
            hint="slurm.container: none in cluster_config.yaml runs jobs from a Python environment",
            code="pyxis-missing",
        )
    if setting.mpi is not None and (fault := mpi_fault(client, setting.mpi, asks=asks)) is not None:
        yield Fault(
            message=f"this Slurm {fault}",
            place=line_in_config(setting.config.llmb_install, "slurm", "mpi"),
            hint=(
                "srun --mpi=list lists its plugins; set slurm.mpi in cluster_config.yaml, none to"
                " use none"
            ),
            code="mpi-missing",
            key="slurm.mpi",
            value=setting.mpi,
        )


def faults_of_image(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Check that the image's file exists, has its recorded size, and is a squashfs image.

    Starts no process.
    """
    if launch.image is None:
        hint = "slurm.container: none runs it from a Python environment"
        yield Fault(
            message=f"{launch.name} has no image", hint=hint, code="image-not-set", key=launch.name
        )
        return
    path = image_path(launch.image, config)
    is_file = str(path) == launch.image
    option = f"--install {shlex.quote(str(config.llmb_install))}"
    if not path.exists():
        if is_file:
            hint = "name an existing file: llmb-install image REFERENCE -o FILE builds one"
        elif launch.image in launch.fixes:  # of this job's framework, or chosen for it alone
            hint = launch.fixes[launch.image]
        else:
            hint = checks.install_command(launch, config)
        yield Fault(
            message=f"the image {path} does not exist",
            hint=hint,
            code="image-missing",
            value=str(path),
        )
    elif (damage := _damage_of(path)) is not None:
        again = f"llmb-install image {shlex.quote(launch.image)} {option}"
        hint = (
            "copy it again, or name another" if is_file else f"rm {shlex.quote(str(path))}; {again}"
        )
        message = f"the image {path} cannot be used: {damage}"
        yield Fault(message=message, hint=hint, code="image-damaged", value=str(path))


def _damage_of(path: Path) -> str | None:
    try:
        fault = superblock_fault(path)
        size = path.stat().st_size
    except LlmbError as error:
        return error.message
    recorded = recorded_size(path)
    if fault is None and recorded is not None and size != recorded:
        return f"it has {size:,} bytes, and its record says {recorded:,}"
    return fault.message if fault is not None else None


def faults_of_mounts(launch: Launch) -> Iterator[Fault]:
    """Check that pyxis can read the mounts, and that their sources exist."""
    for mount in launch.mounts:
        source = mount.partition(":")[0]
        if "," in mount or mount.count(":") > 2:
            yield _separator_fault(mount)
        elif _is_missing(source):
            hint = (
                "correct --mount, or mounts: in the job list; if only this machine lacks the"
                f" folder, {_ANYWAY}"
            )
            message = f"{source} cannot be mounted: it does not exist"
            yield Fault(message=message, hint=hint, code="mount-missing", key=mount, value=source)


def _separator_fault(mount: str) -> Fault:
    return Fault(
        message=f"{mount} cannot be mounted: pyxis reads commas and colons as separators",
        hint="choose folders without commas and colons",
        code="mount-invalid",
        key=mount,
    )


def _is_missing(path: str) -> bool:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # the node may read what this machine may not
        return False
    return False


def faults_of_writable(
    launch: Launch, config: ClusterConfig, lacks: frozenset[str]
) -> Iterator[Fault]:
    """Check that this pyxis can make the image writable, if the job or the cluster asks for it."""
    configured = config.slurm is not None and config.slurm.container_writable is True
    is_writable = launch.container_writable or (launch.container_writable is None and configured)
    if is_writable and container.WRITABLE in lacks:
        yield Fault(
            message="container_writable is true, and this srun has no option --container-writable",
            hint="remove container_writable, or ask for a newer pyxis",
            code="writable-unsupported",
            key="container_writable",
        )


def has_segment(client: Client, config: ClusterConfig) -> bool:
    """Return True if sbatch has ``--segment``. Asked only where a job could use it. True where
    there is no sbatch.
    """
    slurm = config.slurm
    is_set = slurm is not None and (
        slurm.segment or "segment" in {*slurm.gpu.given, *slurm.cpu.given}
    )
    if not is_set and not any(
        config.gpu(name).gpus_per_node == 4 for name in (config.gpu_type, *config.gpu_types)
    ):
        return True
    shown = _plain(client, ["sbatch", "--help"])
    return shown is None or "--segment" in shown


def lacking(client: Client, config: ClusterConfig) -> frozenset[str]:
    """Those of container.PYXIS_OPTIONS, and PMIX, that this srun does not have. Empty where srun
    cannot be asked.
    """
    slurm = config.slurm or SlurmConfig()
    shown = _plain(client, ["srun", "--help"]) if slurm.container == container.PYXIS else None
    # without any pyxis, nothing is known of its options
    if shown is None or "--container-image" not in shown:
        return frozenset()
    options = {name for name in container.PYXIS_OPTIONS if name.removeprefix("no-") not in shown}
    kinds = mpi_kinds(client) if slurm.mpi is None else None
    return frozenset(options if kinds is None or PMIX in kinds else {*options, PMIX})


def mpi_fault(client: Client, kind: str, *, asks: bool = True) -> str | None:
    """Return why srun cannot take ``kind`` for ``--mpi``, or None where it can, or cannot be asked.

    Only where it ``asks`` the controller does srun load the plugin, whose library may be missing.
    """
    kinds = mpi_kinds(client)
    if kinds is not None and kind not in (*kinds, NO_MPI):
        return f"has no MPI plugin '{kind}'"
    if not asks:
        return None
    try:
        completed = client.run(
            ["srun", f"--mpi={kind}", "--ntasks=1", "--test-only", "true"],
            timeout=client.ask_seconds,
        )
    except LlmbError:
        return None
    refused = completed.code != 0 and "Invalid MPI type" in completed.err
    return f"cannot load its MPI plugin '{kind}'" if refused else None


def mpi_kinds(client: Client) -> list[str] | None:
    """The values that srun takes for ``--mpi``, or None where it cannot be asked."""
    shown = _plain(client, ["srun", "--mpi=list"])
    return None if shown is None else shown.replace(",", " ").split()


def _plain(client: Client, argv: Sequence[str]) -> str | None:
    """The output of a command that asks no controller."""
    try:
        completed = client.run(argv, timeout=_HELP_SECONDS)
    except LlmbError:
        return None
    return completed.out + completed.err if completed.code == 0 else None
