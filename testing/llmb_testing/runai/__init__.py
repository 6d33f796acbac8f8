# SPDX-License-Identifier: Apache-2.0
"""Run:ai for tests: the API of its control plane on this machine. Pods are real processes.

    with serve(ControlPlane(tmp_path)) as plane:
        print(plane.url)                                  # for runai.base_url
        plane.trouble(Trouble(path="/workloads/distributed", answer="lost"))

It follows the API documentation (2.24) and rejects every field, parameter and path that is not in
it.
"""

from llmb_testing.runai.plane import ControlPlane
from llmb_testing.runai.server import serve
from llmb_testing.runai.workload import RunaiCluster, RunaiProject, RunaiWorkload, Trouble

__all__ = ["ControlPlane", "RunaiCluster", "RunaiProject", "RunaiWorkload", "Trouble", "serve"]
