# SPDX-License-Identifier: Apache-2.0
"""The contract tests of plugins: subclass one in a test module, and pytest runs its tests on your
plugin.

from llmb_testing.contract import ParserContract, WorkloadContract

class TestWorkload(WorkloadContract):
    plugin = "llmb_acme"

class TestParser(ParserContract):
    plugin = "llmb_acme"
    expected = {"step_time": 0.25}
"""

from llmb_testing.contract_cluster import ClusterTypeContract
from llmb_testing.contract_parser import ParserContract
from llmb_testing.contract_support import config_of
from llmb_testing.contract_workload import WorkloadContract

__all__ = ["ClusterTypeContract", "ParserContract", "WorkloadContract", "config_of"]
