# SPDX-License-Identifier: Apache-2.0
"""The configuration of a cluster: what cluster_config.yaml may say, and the layers that it is made of."""

from llmb.config.find import CONFIG_FILE, find_install
from llmb.config.layers import load_config, with_slurm_args
from llmb.config.schema import ClusterConfig

__all__ = ["CONFIG_FILE", "ClusterConfig", "find_install", "load_config", "with_slurm_args"]
