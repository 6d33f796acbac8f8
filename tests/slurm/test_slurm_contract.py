# SPDX-License-Identifier: Apache-2.0
"""The contract tests of cluster types on a real Slurm."""

from dataclasses import replace
from typing import Any

import pytest

from llmb.builtin.own_types import SLURM
from llmb.contract.cluster import Cluster
from llmb.contract.cluster_type import ClusterType
from llmb.contract.launch import Launch
from llmb.contract.schema import ClusterConfig
from llmb_testing.contract_cluster import ClusterTypeContract


class TestSlurm(ClusterTypeContract):
    """The cluster of the fixture ``site``."""

    patience = 240.0
    site: Any

    @pytest.fixture
    def cluster_type(self) -> ClusterType:
        return SLURM

    @pytest.fixture
    def cluster_config(self, site: Any) -> ClusterConfig:
        type(self).site = site
        config: ClusterConfig = site.config
        return config

    def make_cluster(self, kind: ClusterType, config: ClusterConfig) -> Cluster:
        found: Cluster = self.site.cluster()
        return found

    def completed(self, launch: Launch) -> Launch:
        return replace(launch, gpu_type="h100")
