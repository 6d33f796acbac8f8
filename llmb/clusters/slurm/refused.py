# SPDX-License-Identifier: Apache-2.0
"""What to do about the reasons that Slurm gives for refusing a job."""

from __future__ import annotations

_HINTS = (
    ("account", "set 'account' in cluster_config.yaml, slurm section, unless SBATCH_ACCOUNT or --slurm-arg named it; "
                "sacctmgr show assoc user=$USER lists yours"),
    ("partition", "set 'partition' in cluster_config.yaml, slurm section, unless SBATCH_PARTITION or --slurm-arg named "
                  "it; sinfo lists them"),
    ("time limit", "take another partition or a shorter limit: --time-limit HH:MM:SS"),
    ("qos", "set 'qos' in the slurm section of cluster_config.yaml; sacctmgr show qos lists them"),
    ("reservation", "scontrol show reservation lists them"),
    ("feature", "'constraint' in the slurm section of cluster_config.yaml names what no node has: sinfo -o '%N %f'"),
    ("node configuration", "no node has what it asks for: check 'gres' and 'partition' against sinfo -o '%P %D %G'"),
    ("node count", "the partition has fewer nodes; take a smaller scale or another partition"),
    ("generic resource", "check 'gres' in cluster_config.yaml, slurm section, against sinfo -o '%P %G'; null for none"),
    ("node name", "'nodelist' and 'exclude' name nodes that there are: sinfo -N -o %N"),
    ("invalid number of nodes", "'nodelist' may name as many nodes as the job has; a larger scale, or fewer names"),
    ("time specification", "--slurm-arg time=HH:MM:SS, or minutes, or DAYS-HOURS"),
    ("unrecognized option", "this Slurm does not know the option: check 'args', or set it to null"),
    ("policy", "a limit of your association or QOS is reached: sacctmgr show assoc user=$USER"),
    ("max jobs", "a limit of your association or QOS is reached: wait for jobs to end"),
)  # fmt: skip


def hint_for(said: str) -> str | None:
    """The cure for what sbatch ``said``; None where there is none to name."""
    text = said.lower()
    return next((hint for word, hint in _HINTS if word in text), None)
