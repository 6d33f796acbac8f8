# SPDX-License-Identifier: Apache-2.0
"""What Slurm itself would say to runs: the largest job of each kind as a whole, and what is refused by itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmb.clusters.slurm.commands import Client, SilentError, last_line
from llmb.clusters.slurm.request import GPU_OPTIONS
from llmb.errors import Fault

# Of several that fit, the first counts.
_HINTS = (
    (r"policy", "a limit of your association or QOS: wait for jobs to end; sacctmgr show assoc user=$USER"),
    (r"max jobs", "a limit of your association or QOS is reached: wait for jobs to end"),
    (
        r"without (?:any )?GPU|GPU resources?\b|must request .*GPU",
        "GPU jobs ask for none: set 'gres' in cluster_config.yaml, slurm: {gpu: {gres: 8}}; "
        "llmb-install --yes finds it out",
    ),
    (
        r"inactive or drain",
        "the partition takes no jobs now: try again later, or name another, 'partition' in "
        "cluster_config.yaml or --slurm-arg partition=NAME; sinfo lists them",
    ),
    (
        r"\baccount\b",
        "set 'account' in cluster_config.yaml, slurm section, unless SBATCH_ACCOUNT or --slurm-arg named "
        "it; sacctmgr show assoc user=$USER lists yours",
    ),
    (
        r"partition",
        "set 'partition' in cluster_config.yaml, slurm section, unless SBATCH_PARTITION or --slurm-arg "
        "named it; sinfo lists them",
    ),
    (r"time limit", "take another partition or a shorter limit: --time-limit HH:MM:SS"),
    (r"\bqos\b", "set 'qos' in the slurm section of cluster_config.yaml; sacctmgr show qos lists them"),
    (r"license", "scontrol show licenses lists them; --slurm-arg licenses=null asks for none"),
    (r"reservation", "scontrol show reservation lists them"),
    (r"feature", "'constraint' in the slurm section of cluster_config.yaml names what no node has: sinfo -o '%N %f'"),
    (r"node configuration", "no node has what it asks for: check 'gres' and 'partition' against sinfo -o '%P %D %G'"),
    (r"node count", "the partition has fewer nodes; take a smaller scale or another partition"),
    (r"generic resource", "check 'gres' in cluster_config.yaml against sinfo -o '%P %G'; null for none"),
    (r"node name", "'nodelist' and 'exclude' name nodes that there are: sinfo -N -o %N"),
    (r"invalid number of nodes", "'nodelist' may name as many nodes as the job has; a larger scale, or fewer names"),
    (r"time specification", "--time-limit HH:MM:SS in the place of --slurm-arg time"),
    (
        r"establish a configuration source|fetch_config",
        "this machine belongs to no Slurm cluster: run llmb-run on a login node, or set SLURM_CONF to its slurm.conf",
    ),
    (r"unrecognized option", "this Slurm does not know the option: check 'args', or set it to null"),
)


def hint_for(said: str) -> str | None:
    """The fix for what sbatch ``said``; None where there is none to name."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, said, re.IGNORECASE)), None)


Options = dict[str, str | None]

_NOT_TESTED = frozenset({"job-name", "chdir", "output", "open-mode", "export"})
_SIZES = ("nodes", "ntasks-per-node", "time", "segment")
# What a job as a whole may be refused for: no use in asking for each of these alone.
_OF_THE_WHOLE = frozenset({*_NOT_TESTED, *_SIZES, *GPU_OPTIONS, "no-requeue", "exclusive", "mem", "gres", "partition"})
_SHOWN = ("account", "partition", "qos", "gres", "reservation", "constraint", "nodelist", "time")
_NO_NODE = "Requested node configuration is not available"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What Slurm would refuse: a job ``what``, and what it ``said``; ``partition`` as the job names it."""

    what: str
    said: str
    partition: str | None

    @property
    def is_of_nodes(self) -> bool:
        """Whether no node fits: of nodes whose state Slurm does not know yet, it says so too."""
        return _NO_NODE in self.said

    @property
    def fault(self) -> Fault:
        """The refusal as users read it."""
        return Fault(message=f"Slurm would refuse a job {self.what}: {self.said}", hint=hint_for(self.said))


def refusals(client: Client, jobs: Sequence[tuple[Options, bool]], usable: frozenset[str]) -> Iterator[Refusal]:
    """What Slurm would refuse of ``jobs``: the options of each, and whether it fits its partition.

    One that does not would be refused for that alone, so of it each option is asked for by itself. ``usable``: the
    partitions that take jobs.
    """
    for options, is_fitting in _largest(jobs):
        asked = {name: value for name, value in options.items() if name not in _NOT_TESTED}
        said = _said(client, asked) if is_fitting else ""
        if said is None:
            continue
        parts = list(_parts(client, asked, usable))
        yield from parts
        if said and not parts:
            nodes = f"{asked['nodes']} node{'s' if asked['nodes'] != '1' else ''}"
            words = [f"{name} {asked[name]}" for name in _SHOWN if asked.get(name) is not None]
            yield Refusal(what=", ".join([f"of {nodes}", *words]), said=said, partition=asked.get("partition"))


def _largest(jobs: Sequence[tuple[Options, bool]]) -> list[tuple[Options, bool]]:
    """The job of most nodes of each kind, those that fit and those that do not by themselves."""
    largest: dict[object, tuple[Options, bool]] = {}
    for options, is_fitting in jobs:
        kind = is_fitting, *((name, value) for name, value in options.items() if name not in {*_NOT_TESTED, *_SIZES})
        if kind not in largest or int(options["nodes"] or 0) > int(largest[kind][0]["nodes"] or 0):
            largest[kind] = options, is_fitting
    return list(largest.values())


def _parts(client: Client, asked: Options, usable: frozenset[str]) -> Iterator[Refusal]:
    """The options that are refused each by itself, in a partition that would take it."""
    partition = asked.get("partition")
    base: Options = {"partition": partition} if partition in usable else {}
    if "account" in asked:
        base["account"] = asked["account"]
        if said := _said(client, base):
            yield Refusal(what=f"with account {base.pop('account')}", said=said, partition=partition)
    if _said(client, base) is not None:
        return
    for name in asked:
        if name not in {*_OF_THE_WHOLE, "account"} and (said := _said(client, {**base, name: asked[name]})):
            what = f"with {name} {asked[name]}" if asked[name] is not None else f"with {name}"
            yield Refusal(what=what, said=said, partition=partition)


def _said(client: Client, asked: Mapping[str, str | None]) -> str | None:
    """Why Slurm would not take such a job; None where it would, or is too busy to say so."""
    argv = ["sbatch", "--test-only", *(f"--{name}" if v is None else f"--{name}={v}" for name, v in asked.items())]
    try:
        done = client.run([*argv, "--wrap=true"], timeout=client.ask_seconds)
    except SilentError:  # sbatch will tell
        return None
    if done.code == 0:
        return None
    return last_line(done.err).removeprefix("allocation failure: ") or f"sbatch ended with exit code {done.code}"
