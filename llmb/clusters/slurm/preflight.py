# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of runs on a Slurm cluster, all of it at once and with few calls to its controller."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from llmb.clusters import checks
from llmb.clusters.slurm import fits, script
from llmb.clusters.slurm.client import Client, SilentError, last_line
from llmb.clusters.slurm.partitions import partitions
from llmb.clusters.slurm.refused import hint_for
from llmb.clusters.slurm.request import sbatch_options
from llmb.clusters.slurm.script import Setting
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.images import image_path
from llmb.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp

_HELP_SECONDS = 5.0
_NOT_TESTED = frozenset({"job-name", "chdir", "output", "open-mode", "export"})
_SIZES = ("nodes", "ntasks-per-node", "time", "segment")


def knows_segment(client: Client, config: ClusterConfig) -> bool:
    """Whether sbatch has ``--segment``; looked up only where a job could want it. True where there is no sbatch."""
    slurm = config.slurm
    given = slurm is not None and (slurm.segment or "segment" in {*slurm.gpu.given, *slurm.cpu.given})
    if not given and not any(config.gpu(name).gpus_per_node == 4 for name in (config.gpu_type, *config.gpu_types)):
        return True
    shown = _help(client, "sbatch")
    return shown is None or "--segment" in shown


def check(launches: Sequence[Launch], setting: Setting, client: Client, digest: str) -> list[Fault]:
    """Every fault of these launches and of this place."""
    # Repeats of a job stand side by side and lack the same.
    faults = [fault for launch, _ in itertools.groupby(launches) for fault in _own_faults(launch, setting)]
    faults += checks.faults_of_secrets(launches, client.environ)
    faults += checks.faults_of_place(setting.config, digest, launches)
    faults += _slurm_faults(launches, setting, client)
    return list(dict.fromkeys(faults))


def _own_faults(launch: Launch, setting: Setting) -> Iterator[Fault]:
    """What a launch lacks, whatever the state of the cluster."""
    try:
        script.render(launch, _stamp(launch, setting), setting)
    except LlmbError as error:
        yield Fault(message=f"{launch.name}: {error.message}", hint=error.hint)
    yield from checks.faults_of_launch(launch, setting.config)
    if not setting.container:
        yield from checks.faults_of_venv(launch, setting.config)
        return
    hint = f"llmb-install add {checks.workload_of(launch, setting.config)}"
    if launch.image is None:
        yield Fault(message=f"{launch.name} has no image", hint="slurm.container: none runs it from an environment")
    elif not (path := image_path(launch.image, setting.config)).exists():
        by_itself = "" if str(path) == launch.image else f", or for it alone llmb-install image {launch.image}"
        yield Fault(message=f"the image {path} is not there", hint=hint + by_itself)
    for mount in script.mounts(launch, _stamp(launch, setting), setting):
        if "," in mount or mount.count(":") > 2:
            message = f"{mount} cannot be mounted: pyxis takes commas and colons for its own"
            yield Fault(message=message, hint="choose folders without them")


def _slurm_faults(launches: Sequence[Launch], setting: Setting, client: Client) -> Iterator[Fault]:
    """What the cluster's present state and configuration stand against."""
    yield from _plugin_faults(setting, client)
    try:
        found = partitions(client)
    except LlmbError as error:
        yield Fault(message=error.message, hint=error.hint)
        return
    sound = []
    for launch in launches:
        own = list(fits.faults_of(launch, setting.config, found))
        yield from own
        if not own:
            sound.append(launch)
    yield from _refusals(sound, setting, client)


def _plugin_faults(setting: Setting, client: Client) -> Iterator[Fault]:
    mpi = setting.mpi
    shown = _help(client, "srun") if setting.container else None
    if shown is not None and "--container-image" not in shown:
        yield Fault(
            message="this Slurm has no pyxis: srun knows no --container-image",
            hint="slurm.container: none in cluster_config.yaml runs from an environment of Python",
        )
    if mpi is not None:
        kinds = _plain(client, ["srun", "--mpi=list"])
        if kinds is not None and mpi not in kinds.replace(",", " ").split():
            hint = "slurm.mpi in cluster_config.yaml; srun --mpi=list shows the kinds that there are"
            yield Fault(message=f"this Slurm has no MPI plugin '{mpi}'", hint=hint)


def _refusals(launches: Sequence[Launch], setting: Setting, client: Client) -> Iterator[Fault]:
    """What Slurm itself says to the largest job of each kind: account, QOS, reservation, limits."""
    largest: dict[str, tuple[int, dict[str, str | None]]] = {}
    for launch in launches:
        options = sbatch_options(
            launch, _stamp(launch, setting), setting.config, knows_segment=setting.knows_segment
        )  # fmt: skip
        kind = repr({name: value for name, value in options.items() if name not in {*_NOT_TESTED, *_SIZES}})
        if launch.nodes > largest.get(kind, (0, {}))[0]:
            largest[kind] = (launch.nodes, options)
    for nodes, options in largest.values():
        asked = {name: value for name, value in options.items() if name not in _NOT_TESTED}
        argv = ["sbatch", "--test-only", *(f"--{n}" if v is None else f"--{n}={v}" for n, v in asked.items())]
        try:
            done = client.run([*argv, "--wrap=true"], timeout=client.ask_seconds)
        except SilentError:  # it is busy with other things: sbatch will tell
            continue
        if done.code != 0:
            said = last_line(done.err).removeprefix("allocation failure: ")
            where = f"{nodes} node{'s' if nodes > 1 else ''}, {_asked(asked)}"
            yield Fault(message=f"Slurm would refuse a job of {where}: {said}", hint=hint_for(said))


def _asked(options: dict[str, str | None]) -> str:
    names = ("account", "partition", "qos", "gres", "reservation", "constraint", "nodelist", "time")
    return ", ".join(f"{name} {options[name]}" for name in names if options.get(name) is not None)


def _help(client: Client, program: str) -> str | None:
    return _plain(client, [program, "--help"])


def _plain(client: Client, argv: Sequence[str]) -> str | None:
    """What a command prints that asks no controller; None where it cannot be had."""
    try:
        done = client.run(argv, timeout=_HELP_SECONDS)
    except LlmbError:
        return None
    return done.out + done.err if done.code == 0 else None


def _stamp(launch: Launch, setting: Setting) -> Stamp:
    root = setting.config.experiments("w") / launch.name / f"{launch.name}_{PREVIEW_TIMESTAMP}"
    return Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(root))
