# SPDX-License-Identifier: Apache-2.0
"""What Slurm's words for why a job waits mean, and what to do about those that no patience fixes."""

import re

_LIMITS = "a limit of your account or QOS: it starts as others end; sacctmgr show assoc user=$USER has the limits"
_AGAIN = "llmb-run jobs cancel RUN, then llmb-run jobs retry RUN"
# Waiting for its turn or for nodes in use (Priority, Resources, ...) needs no word.
_MEANINGS = (
    (r"JobHeldAdmin", "an administrator holds it, and only an administrator can release it"),
    (r"JobHeld|JobHoldMaxRequeue|requeued held|RequeueHold", "it is held: scontrol release JOB lets it go"),
    (r"InvalidAccount|InvalidQOS", f"its account or QOS is no longer one of yours: {_AGAIN} --slurm-arg KEY=VALUE"),
    (r"Assoc|QOS|Max\w+Per(Account|User)", _LIMITS),
    (r"PartitionDown|PartitionInactive", "the partition is down: it starts when its administrator has set it up again"),
    (r"PartitionTimeLimit", f"the partition allows less time: {_AGAIN} --time-limit HH:MM:SS"),
    (r"PartitionNodeLimit|PartitionConfig", "the partition gives a job fewer nodes: name another, or a smaller scale"),
    (r"ReqNodeNotAvail.*Reserved", "nodes are reserved for others, or for maintenance: scontrol show reservation"),
    (r"ReqNodeNotAvail|Nodes required for job are DOWN|NodeDown", "nodes are out of service: sinfo -R says why"),
    (r"BadConstraints", f"no node has what it asks for: {_AGAIN} --slurm-arg KEY=VALUE"),
    (r"Licenses", "licenses are in use: scontrol show licenses"),
    (r"Reservation", "its reservation has not begun or has ended: scontrol show reservation"),
    (
        r"DependencyNeverSatisfied",
        f"what it waits for has failed, so it never starts: {_AGAIN} --slurm-arg dependency=null",
    ),
    (r"Dependency", "it waits for another job, as --slurm-arg dependency asked: scontrol show job JOB"),
    (r"BeginTime", "it starts later: as --slurm-arg begin asked, or since it was requeued"),
    (r"launch failure|JobLaunchFailure", "its node could not start it: scontrol release JOB, once the node is well"),
)


def meaning(reason: str) -> str:
    """What to know of a job that waits for ``reason``; empty where there is nothing to do but to wait."""
    return next((text for pattern, text in _MEANINGS if re.search(pattern, reason)), "")
