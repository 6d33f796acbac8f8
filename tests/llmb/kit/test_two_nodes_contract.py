# SPDX-License-Identifier: Apache-2.0
"""The contract's job of two nodes: a new plugin passes it, and one that starts the nodes wrong does
not.
"""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb import api
from llmb.check.scaffold import CLUSTER, scaffold
from llmb.core.files import write_folder
from llmb.plugins.guarded_cluster import guard
from llmb_testing.contract import ClusterTypeContract

pytestmark = pytest.mark.timeout(600)
Create = Callable[[api.ClusterConfig], Any]
NODE, MASTER = '"$PAIR_NODE"', "127.0.0.1"


@pytest.fixture
def create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Create]:
    """Makes a cluster of the new plugin whose nodes are processes; the test's parameter is what is
    wrong with it.
    """
    given = getattr(request, "param", {})
    write_folder(tmp_path / "plugin", scaffold("pair", CLUSTER))
    monkeypatch.syspath_prepend(str(tmp_path / "plugin"))
    processes: Any = importlib.import_module("llmb_pair.cluster")

    class Pair(processes.Processes):  # type: ignore[misc]
        def render(self, launch: api.Launch, stamp: api.Stamp) -> str:
            master = given.get("master", MASTER)
            return api.node_script(
                launch, stamp, self.config, job=stamp.id, node=NODE, master=master
            )

        def submit(self, run: api.RunRecord) -> str:
            api.stage_programs(self.config)
            for node in range(given.get("nodes", run.launch.nodes)):
                argv: list[str | Path] = [
                    "setsid",
                    "-f",
                    "flock",
                    f"{self.section.lock}.{node}",
                    "bash",
                    run.script,
                ]
                number = given.get("number", str)(node)
                variables = {
                    **api.job_environment(run.launch, self.config, self.environ),
                    "PAIR_NODE": number,
                }
                subprocess.run(
                    [*argv, "llmb-job", run.stamp.id],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=True,
                )
            return run.stamp.id

    yield lambda config: Pair(config=config, section=config.section, environ=processes.os.environ)
    for name in [name for name in sys.modules if name.partition(".")[0] == "llmb_pair"]:
        del sys.modules[name]


def kind_and_config(create: Create, folder: Path) -> tuple[api.ClusterType, api.ClusterConfig]:
    section: Any = importlib.import_module("llmb_pair").Section
    kind = api.ClusterType(
        name="pair", create=create, title="processes", schema=section, source="llmb-pair:pair"
    )
    own = section(lock=str(folder / "lock"))
    config = api.ClusterConfig(
        cluster_type="pair", gpu_type="cpu", llmb_install=folder, kind=kind, sections={"pair": own}
    )
    return kind, config


WRONG = {
    "the second node is never started": {"nodes": 1},
    "each node has an address of its own": {"master": '"127.0.0.$(( llmb_node + 1 ))"'},
    "every node is the first": {"number": lambda node: "0"},
    "nodes are numbered from 1": {"number": lambda node: str(node + 1)},
}


def check(
    create: Create,
    folder: Path,
    patience: float,
    test: str = "test_the_ranks_of_several_nodes_meet",
) -> None:
    """Run a test of the contract with the plugin's cluster, and wait for its end."""
    kind, config = kind_and_config(create, folder)
    contract = ClusterTypeContract()
    contract.patience = patience
    contract._left = []
    cluster = guard(kind, lambda: create(config))
    try:
        getattr(contract, test)(cluster, config)
    finally:
        cluster.cancel(contract._left)
        contract.patience = 60.0
        contract.until(cluster, contract._left)


def test_a_new_plugin_starts_two_nodes(create: Create, tmp_path: Path) -> None:
    check(create, tmp_path, 120.0)


def test_a_node_that_fails_after_the_first_fails_the_job(create: Create, tmp_path: Path) -> None:
    check(create, tmp_path, 120.0, "test_a_rank_fails_after_the_others_have_ended")


@pytest.mark.parametrize("create", WRONG.values(), ids=WRONG, indirect=True)
def test_the_contract_finds_wrong_nodes(create: Create, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"not within|place|MASTER_ADDR"):
        check(create, tmp_path, 4.0)
