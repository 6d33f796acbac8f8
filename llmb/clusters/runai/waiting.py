# SPDX-License-Identifier: Apache-2.0
"""What the words of Run:ai, and of Kubernetes below it, for why a workload waits mean, and what to do about them."""

import re

_AGAIN = "then llmb-run jobs cancel RUN, and llmb-run jobs retry RUN"
# Waiting for GPUs in use (Unschedulable, FailedScheduling) needs no word.
_MEANINGS = (
    (
        r"FailedMount|FailedAttachVolume|claim \S+ not found",
        f"its volume cannot be mounted: check runai.pvc.claim in cluster_config.yaml, {_AGAIN}",
    ),
    (
        r"ErrImagePull|ImagePullBackOff|InvalidImageName",
        f"its image cannot be pulled: check its name, and the project's credential for its registry, {_AGAIN}",
    ),
    (
        r"secret \S+ not found|CreateContainerConfigError",
        f"a secret is not there: make it in the project, or check runai.secrets in cluster_config.yaml, {_AGAIN}",
    ),
    (r"OverLimit|OverQuota", "the project's quota of GPUs is used up: it starts as others end, or ask for more"),
)


def meaning(reason: str) -> str:
    """What to know of a workload that waits for ``reason``; empty where there is nothing to do but to wait."""
    return next((text for pattern, text in _MEANINGS if re.search(pattern, reason)), "")
