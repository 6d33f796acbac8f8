# SPDX-License-Identifier: Apache-2.0
"""The contract tests of cluster types on this machine's own queue."""

from typing import Any

import pytest

from llmb.builtin.own_types import LOCAL
from llmb.contract.cluster import Cluster
from llmb.contract.cluster_type import ClusterType
from llmb.contract.schema import ClusterConfig
from llmb_testing.contract_cluster import SECRET, VALUE, ClusterTypeContract

pytestmark = pytest.mark.timeout(600)


class TestLocal(ClusterTypeContract):
    """The supervisor's queue of the fixture ``machine``."""

    machine: Any

    @pytest.fixture
    def cluster_type(self) -> ClusterType:
        return LOCAL

    @pytest.fixture
    def cluster_config(self, machine: Any) -> ClusterConfig:
        machine.environ |= {SECRET: VALUE}
        type(self).machine = machine
        config: ClusterConfig = machine.cluster().config
        return config

    def make_cluster(self, kind: ClusterType, config: ClusterConfig) -> Cluster:
        found: Cluster = self.machine.cluster()
        return found
