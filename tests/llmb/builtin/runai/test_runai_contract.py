# SPDX-License-Identifier: Apache-2.0
"""The contract tests of cluster types on Run:ai, whose control plane is a mock and whose pods
really run.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.cluster import Cluster
from llmb.contract.cluster_type import ClusterType
from llmb.contract.launch import Launch
from llmb.contract.schema import ClusterConfig
from llmb_runai.cluster_type import RUNAI
from llmb_testing.contract_cluster import ClusterTypeContract

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]


class TestRunai(ClusterTypeContract):
    """The project of the fixture ``site``. torchrun, of the environment with torch, starts the
    ranks.
    """

    patience = 240.0
    passes_secrets = False  # pods get them from Kubernetes
    site: Any
    venv: Path

    @pytest.fixture
    def cluster_type(self) -> ClusterType:
        return RUNAI

    @pytest.fixture
    def cluster_config(self, site: Any, torch_venv: Path) -> ClusterConfig:
        type(self).site, type(self).venv = site, torch_venv
        config: ClusterConfig = site.config
        return config

    def make_cluster(self, kind: ClusterType, config: ClusterConfig) -> Cluster:
        found: Cluster = self.site.cluster()
        return found

    def completed(self, launch: Launch) -> Launch:
        return replace(
            launch, image="registry.example/torch:1", gpu_type="h100", venv=str(self.venv)
        )
