# SPDX-License-Identifier: Apache-2.0
"""A Run:ai for tests: its control plane's API on this machine, whose pods are processes that really run.

    with serve(ControlPlane(tmp_path)) as plane:
        print(plane.url)                                  # for runai.base_url
        plane.trouble(Trouble(path="/workloads/distributed", answer="lost"))

It holds to the API's documentation (2.24), and refuses whatever field, parameter or path that does not name.
"""

from llmb_testing.runai.plane import ControlPlane
from llmb_testing.runai.server import serve
from llmb_testing.runai.workload import Cluster, Project, Trouble, Workload

__all__ = ["Cluster", "ControlPlane", "Project", "Trouble", "Workload", "serve"]
