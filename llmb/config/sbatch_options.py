# SPDX-License-Identifier: Apache-2.0
"""Where sbatch's options belong that people put into cluster_config.yaml, or give by --slurm-arg, from habit."""

from collections.abc import Collection

from llmb.text.names import suggest

# What every script of ours says itself, or what would break the following of its job.
FIXED_SLURM_OPTIONS = frozenset(
    {
        "array",
        "chdir",
        "clusters",
        "error",
        "export",
        "het-group",
        "input",
        "job-name",
        "no-requeue",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "open-mode",
        "output",
        "parsable",
        "requeue",
        "test-only",
        "uid",
        "wait",
        "wrap",
    }
)

# The other options of sbatch that are no keys of ours; of the releases 20.11 to 25.05.
_FURTHER = frozenset(
    {
        "acctg-freq",
        "batch",
        "bb",
        "bbf",
        "begin",
        "cluster-constraint",
        "comment",
        "contiguous",
        "core-spec",
        "cores-per-socket",
        "cpu-freq",
        "cpus-per-gpu",
        "cpus-per-task",
        "deadline",
        "delay-boot",
        "dependency",
        "distribution",
        "exclusive",
        "export-file",
        "extra",
        "extra-node-info",
        "get-user-env",
        "gid",
        "gpu-bind",
        "gpu-freq",
        "gpus-per-socket",
        "gpus-per-task",
        "gres-flags",
        "hint",
        "hold",
        "ignore-pbs",
        "immediate",
        "kill-on-invalid-dep",
        "licenses",
        "mail-type",
        "mail-user",
        "mcs-label",
        "mem",
        "mem-bind",
        "mem-per-cpu",
        "mem-per-gpu",
        "mincpus",
        "network",
        "no-kill",
        "nodefile",
        "ntasks-per-core",
        "ntasks-per-gpu",
        "ntasks-per-socket",
        "overcommit",
        "oversubscribe",
        "power",
        "prefer",
        "priority",
        "profile",
        "propagate",
        "quiet",
        "reboot",
        "signal",
        "sockets-per-node",
        "spread-job",
        "stepmgr",
        "switches",
        "thread-spec",
        "threads-per-core",
        "time-min",
        "tmp",
        "tres-bind",
        "tres-per-task",
        "use-min-nodes",
        "verbose",
        "wait-all-nodes",
        "wckey",
    }
)

_SIZE = (
    "leave it out: nodes and ranks follow from each job's scale (--scale N) and the GPUs of a node (gpus_per_node); "
    "llmb-run single also takes NUM_NODES=N"
)
_LOGS = "leave it out: the logs are in each run's folder (llmb-run jobs logs RUN); experiments_root says where runs are"
_REQUEUE = "leave it out: llmb-run jobs retry makes another attempt, and --wait --retries N does so by itself"
_VARIABLES = "variables stand outside of slurm, under environment and pass_environment; --env K=V gives one"
_LIMIT = (
    "--time-limit HH:MM:SS, or time_limit: in a job list; slurm: {args: {time: 'HH:MM:SS'}} is a limit for all jobs"
)
_ELSEWHERE = {
    "time": _LIMIT,
    "time-limit": _LIMIT,
    "nodes": _SIZE,
    "ntasks": _SIZE,
    "ntasks-per-node": _SIZE,
    "gpus": "gpus_per_node names the GPUs of a node; how many a job has in all is its scale",
    "job-name": "leave it out: llmb finds jobs by their names, <experiment>.<run>; 'comment' in slurm.args marks them",
    "output": _LOGS,
    "error": _LOGS,
    "chdir": _LOGS,
    "open-mode": _LOGS,
    "requeue": _REQUEUE,
    "no-requeue": _REQUEUE,
    "export": _VARIABLES,
    "env": _VARIABLES,
    "environment": _VARIABLES,
    "pass-environment": _VARIABLES,
    "array": "leave it out: a job list, or --repeats N, makes many jobs",
    "wait": "leave it out: --wait follows the jobs to their end",
    "clusters": "leave it out: an install directory is for one cluster",
    "container-image": "leave it out: it is the workload's; --image IMAGE, or image: in a job list, names another",
    "container-mounts": "--mount A:B, or mounts: in a job list",
    "container-readonly": "write container_writable: false",
    "container-env": "leave it out: llmb names every variable of a job; environment in cluster_config.yaml sets more",
    "container-workdir": "leave it out: ranks start in the run's own folder",
    "container-name": "leave it out: each run has a container of its own, which pyxis removes at its end",
    "container-mount-home": "--mount HOME:HOME, or mounts: in a job list, mounts a folder; caches need none",
    "no-container-mount-home": "leave it out: llmb sets it for each job",
}
_OF_ALL = ("args", "container", "container-writable", "mpi")  # keys that the sections of GPU and CPU jobs do not have


def long_name(key: str) -> str:
    """An option of sbatch as Slurm spells it: ``--gpus_per_node`` is ``gpus-per-node``."""
    return key.strip("-").replace("_", "-")


def hint_for_key(key: str, keys: Collection[str]) -> str:
    """The hint for ``key``, which is none of ``keys``: where what it says belongs, else the nearest key."""
    name = long_name(key)
    own = name.replace("-", "_")
    if own in keys:
        return f"write {own}"
    if name in _OF_ALL:
        return f"it stands in slurm itself, for all jobs: slurm: {{{name}: ...}}"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name in FIXED_SLURM_OPTIONS:
        return "leave it out: llmb sets it for each job"
    if name in _FURTHER:
        return f"slurm: {{args: {{{name}: ...}}}} gives sbatch any further option"
    return suggest(key, keys)


def is_container_option(name: str) -> bool:
    """Whether the option ``name`` is one of pyxis's: sbatch would start the batch script itself in a container."""
    return name.removeprefix("no-").startswith("container-")


def hint_for_fixed(name: str) -> str:
    """The hint for the option ``name``, one of FIXED_SLURM_OPTIONS, where options of sbatch are given."""
    return hint_for_key(name, _OF_ALL) if is_container_option(name) else _ELSEWHERE.get(name, "leave it out")
