# SPDX-License-Identifier: Apache-2.0
"""The contract's job of two nodes: a new plugin passes it, and one that starts the nodes wrong does
not.
"""

import importlib
import os
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


def start(cluster: Any, run: api.RunRecord, lock: str, variables: dict[str, str]) -> None:
    """Start the script of a run as a process, which has these variables too."""
    argv = ["setsid", "-f", "flock", lock, "bash", str(run.script), "llmb-job", run.stamp.id]
    environment = api.job_environment(run.launch, cluster.config, cluster.environ)
    subprocess.run(
        argv,
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


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
                number = given.get("number", str)(node)
                start(self, run, f"{self.section.lock}.{node}", {"PAIR_NODE": number})
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


def documented_render() -> Callable[..., str]:
    """The method of docs/cluster-types.md for a scheduler that starts one node."""
    page = (Path(__file__).parents[3] / "docs/cluster-types.md").read_text()
    section = page.partition("### A job of several nodes")[2]
    names: dict[str, Any] = {"api": api}
    exec(section.partition("```python\n")[2].partition("```")[0], names)
    render: Callable[..., str] = names["render"]
    return render


@pytest.fixture
def documented(
    create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[api.ClusterConfig], Any]:
    """Makes a cluster whose scheduler starts a script on the first node alone."""
    program = tmp_path / "bin/acme-run"
    write_folder(program.parent, {"acme-run": '#!/bin/bash\nshift 2\nexec "$@"\n'})
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    processes: Any = importlib.import_module("llmb_pair.cluster")

    class Acme(processes.Processes):  # type: ignore[misc]
        render = documented_render()

        def submit(self, run: api.RunRecord) -> str:
            api.stage_programs(self.config)
            own = {"ACME_SCRIPT": str(run.script), "ACME_JOB": run.stamp.id}
            start(self, run, self.section.lock, own)
            return run.stamp.id

    return lambda config: Acme(config=config, section=config.section, environ=dict(os.environ))


@pytest.mark.parametrize(
    "test",
    [
        "test_the_ranks_of_several_nodes_meet",
        "test_a_rank_fails_after_the_others_have_ended",
    ],
)
def test_the_documented_script_starts_itself_on_each_node(
    test: str, documented: Create, tmp_path: Path
) -> None:
    check(documented, tmp_path, 120.0, test)


def test_a_new_plugin_starts_two_nodes(create: Create, tmp_path: Path) -> None:
    check(create, tmp_path, 120.0)


def test_a_node_that_fails_after_the_first_fails_the_job(create: Create, tmp_path: Path) -> None:
    check(create, tmp_path, 120.0, "test_a_rank_fails_after_the_others_have_ended")


def test_a_node_that_fails_and_ends_while_the_first_one_sleeps_fails_the_job(
    create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the first node may look again only after the other one has ended."""
    program = tmp_path / "bin/sleep"
    text = """#!/bin/bash
if [[ ${PAIR_NODE-} == 0 ]]; then  # its ranks end within the first second, and the other fails later
    if mkdir "$0.first"; then set -- 1; else set -- 8; fi
fi
exec /bin/sleep "$@"
"""
    write_folder(program.parent, {"sleep": text})
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    check(create, tmp_path, 120.0, "test_a_rank_fails_after_the_others_have_ended")


@pytest.mark.parametrize("create", WRONG.values(), ids=WRONG, indirect=True)
def test_the_contract_finds_wrong_nodes(create: Create, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"not within|place|MASTER_ADDR"):
        check(create, tmp_path, 4.0)
