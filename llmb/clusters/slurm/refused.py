# SPDX-License-Identifier: Apache-2.0
"""What to do about the reasons that Slurm gives for refusing a job."""

import re

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
