# SPDX-License-Identifier: Apache-2.0
"""Hints for sbatch options at the wrong place in cluster_config.yaml or in --slurm-arg: where each belongs."""

from collections.abc import Collection

from llmb.text.names import suggest

# Options that llmb's scripts set themselves, or that would break how llmb follows its jobs.
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

# The other sbatch options that are not keys of cluster_config.yaml, from Slurm 20.11 to 25.05.
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

_REMOVE = "remove it: llmb sets it for each job"
_SIZE = (
    "remove it: nodes and ranks follow from the job's scale (--scale N) and the GPUs of a node (gpus_per_node); "
    "llmb-run single also takes NUM_NODES=N"
)
_LOGS = "remove it: logs are in each run's folder (llmb-run jobs logs RUN), and experiments_root sets where runs are"
_REQUEUE = "remove it: llmb-run jobs retry starts another attempt, and --wait --retries N does so automatically"
_VARIABLES = "set variables outside of slurm, under environment or pass_environment; --env K=V sets one"
_LIMIT = (
    "--time-limit HH:MM:SS, or time_limit: in a job list; slurm: {args: {time: 'HH:MM:SS'}} is a limit for all jobs"
)
_ELSEWHERE = {
    "time": _LIMIT,
    "time-limit": _LIMIT,
    "nodes": _SIZE,
    "ntasks": _SIZE,
    "ntasks-per-node": _SIZE,
    "gpus": "gpus_per_node sets the GPUs of a node; the scale of a job is its number of GPUs",
    "job-name": "remove it: llmb finds jobs by name, <experiment>.<run>; 'comment' in slurm.args marks jobs",
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
    "array": "remove it: a job list, or --repeats N, submits many jobs",
    "wait": "remove it: --wait waits for the jobs to end",
    "clusters": "remove it: an install directory is for one cluster",
    "container-image": "remove it: the workload sets the image; --image IMAGE, or image: in a job list, overrides it",
    "container-mounts": "--mount A:B, or mounts: in a job list",
    "container-readonly": "write container_writable: false",
    "container-env": "remove it: llmb passes every variable of a job; environment in cluster_config.yaml adds more",
    "container-workdir": "remove it: ranks start in the run's folder",
    "container-name": "remove it: each run has its own container, which pyxis removes at the end",
    "container-mount-home": "--mount HOME:HOME, or mounts: in a job list, mounts a folder; caches do not need it",
    "no-container-mount-home": _REMOVE,
}
_TOP_LEVEL = ("args", "container", "container-writable", "mpi")  # keys of slurm itself, not of slurm.gpu and slurm.cpu


def long_name(key: str) -> str:
    """The name of an sbatch option as Slurm spells it: ``--gpus_per_node`` is ``gpus-per-node``."""
    return key.strip("-").replace("_", "-")


def hint_for_key(key: str, keys: Collection[str]) -> str:
    """The hint for ``key``, which is not one of ``keys``: where it belongs, or the nearest key."""
    name = long_name(key)
    own = name.replace("-", "_")
    if own in keys:
        return f"write {own}"
    if name in _TOP_LEVEL:
        return f"set it for all jobs: slurm: {{{name}: ...}}"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name in FIXED_SLURM_OPTIONS:
        return _REMOVE
    if name in _FURTHER:
        return f"pass it to sbatch: slurm: {{args: {{{name}: ...}}}}"
    return suggest(key, keys)


def is_container_option(name: str) -> bool:
    """Whether ``name`` is an option of pyxis, with which sbatch would start the batch script itself in a container."""
    return name.removeprefix("no-").startswith("container-")


def hint_for_fixed(name: str) -> str:
    """The hint for the sbatch option ``name``, which llmb sets itself."""
    return hint_for_key(name, _TOP_LEVEL) if is_container_option(name) else _ELSEWHERE.get(name, _REMOVE)
