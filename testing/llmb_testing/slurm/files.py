# SPDX-License-Identifier: Apache-2.0
"""The configuration files of a test cluster, as text."""

from dataclasses import dataclass
from pathlib import Path

ACCOUNT = "benchmarks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The parts of a test cluster. The GPUs and CPUs of a node are pretended.

    The machine may be busy, so a node may be silent for minutes before Slurm reports it as down.
    """

    name: str = "kit"
    nodes: int = 4
    cpus: int = 64
    gpus: int = 8
    gpu_type: str = "h100"
    accounting: bool = True
    #: Seconds that the controller remembers an ended job.
    min_job_age: int = 300
    #: True if limits of partitions are refused at the submission. Otherwise such jobs wait for ever.
    enforces_limits: bool = True
    #: Kinds of data that Slurm shows to its administrators alone.
    private: tuple[str, ...] = ()
    #: The most jobs that the controller keeps, None for Slurm's default.
    max_job_count: int | None = None
    #: Seconds that Slurm's programs wait for each other.
    message_timeout: int = 30
    #: Lines of topology.conf, without any no topology.
    topology: tuple[str, ...] = ()
    #: Lines of slurm.conf.
    partitions: tuple[str, ...] = (
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=short Nodes=n1 MaxTime=5 State=UP",
        "PartitionName=closed Nodes=n1 State=DOWN",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a cluster runs: folder, user, host name, and the first of ``nodes`` + 2 free ports."""

    folder: Path
    user: str
    host: str
    port: int
    #: Of the cluster whose accounting and credentials this one uses, None for its own.
    beside: "Location | None" = None

    @property
    def first_job(self) -> int:
        """The id of the first job.

        A job's MASTER_PORT follows from its id, and several of these clusters run on one machine.
        """
        return 1000 + self.port * 97 % 8000

    @property
    def socket(self) -> Path:
        """Munge's socket. Linux allows 107 characters."""
        return self.beside.socket if self.beside is not None else self.folder / "run" / "munge"

    @property
    def accounting_port(self) -> int:
        """The port of slurmdbd."""
        return self.beside.accounting_port if self.beside is not None else self.port + 1


def slurm_conf(shape: Shape, location: Location, *, first_job: int) -> str:
    """slurm.conf: all daemons on this host's loopback, all paths below one folder."""
    folder, nodes = location.folder, f"n[1-{shape.nodes}]" if shape.nodes > 1 else "n1"
    ports = (
        f"[{location.port + 2}-{location.port + 1 + shape.nodes}]"
        if shape.nodes > 1
        else f"{location.port + 2}"
    )
    gpus = f" Gres=gpu:{shape.gpu_type}:{shape.gpus}" if shape.gpus else ""
    lines = [
        f"ClusterName={shape.name}",
        f"SlurmctldHost={location.host}(127.0.0.1)",
        f"SlurmctldPort={location.port}",
        f"SlurmUser={location.user}",
        f"SlurmdUser={location.user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        # A requeued job waits until its credential has expired (default: 120 s).
        f"AuthInfo=socket={location.socket},cred_expire=30",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={folder}/run/slurmctld.pid",
        f"SlurmdPidFile={folder}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={folder}/log/slurmctld.log",
        f"SlurmdLogFile={folder}/log/slurmd.%n.log",
        f"PlugStackConfig={folder}/etc/plugstack.conf",
        "ProctrackType=proctrack/linuxproc",
        "ReturnToService=2",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=300",
        "KillWait=1",
        f"FirstJobId={first_job}",
        f"MessageTimeout={shape.message_timeout}",
        f"MinJobAge={shape.min_job_age}",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        "SlurmdParameters=config_overrides",
        "SchedulerType=sched/backfill",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0",
        "DefMemPerCPU=1000",
        "PriorityType=priority/basic",
        f"EnforcePartLimits={'ALL' if shape.enforces_limits else 'NO'}",
        "PropagateResourceLimits=NONE",
        "JobAcctGatherType=jobacct_gather/none",
        "GresTypes=gpu",
        *([f"MaxJobCount={shape.max_job_count}"] if shape.max_job_count is not None else []),
        *(["TopologyPlugin=topology/tree"] if shape.topology else []),
        *([f"PrivateData={','.join(shape.private)}"] if shape.private else []),
        *_accounting(shape, location),
        (
            f"NodeName={nodes} NodeHostname={location.host} NodeAddr=127.0.0.1 Port={ports}"
            f" CPUs={shape.cpus} RealMemory=256000{gpus} State=UNKNOWN"
        ),
        *shape.partitions,
    ]
    return "\n".join(lines) + "\n"


def _accounting(shape: Shape, location: Location) -> list[str]:
    if not shape.accounting:
        return []
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={location.accounting_port}",
        f"AccountingStoragePass={location.socket}",
        "AccountingStorageTRES=gres/gpu",
        "AccountingStorageEnforce=associations,limits",
    ]


def gres_conf(shape: Shape, location: Location) -> str:
    """gres.conf: GPUs that are links to /dev/null."""
    devices = f"nvidia[0-{shape.gpus - 1}]" if shape.gpus > 1 else "nvidia0"
    gpus = (
        f"Name=gpu Type={shape.gpu_type} File={location.folder}/dev/{devices}\n"
        if shape.gpus
        else ""
    )
    return f"AutoDetect=off\n{gpus}"


def slurmdbd_conf(location: Location) -> str:
    """slurmdbd.conf: MariaDB, reached by its socket only."""
    folder = location.folder
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={location.socket}",
        f"DbdHost={location.host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={location.port + 1}",
        f"SlurmUser={location.user}",
        f"PidFile={folder}/run/slurmdbd.pid",
        f"LogFile={folder}/log/slurmdbd.log",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=slurm",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join(lines) + "\n"
