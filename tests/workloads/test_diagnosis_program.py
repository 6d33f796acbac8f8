# SPDX-License-Identifier: Apache-2.0
"""The program of a diagnosis with the real torch and gloo, as ranks of six pretended nodes."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import llmb_nodes
from llmb_nodes.program import diagnose, strategy

pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(900)]
NODES = 6
BAD = "n2"


def test_a_node_without_its_network_interface_is_found(
    torch_python: str, torch_environment: Mapping[str, str], tmp_path: Path
) -> None:
    package = Path(llmb_nodes.__file__).parent
    (tmp_path / "llmb_nodes").mkdir()
    (tmp_path / "llmb_nodes" / "__init__.py").touch()
    shutil.copytree(package / "program", tmp_path / "llmb_nodes" / "program")
    table = {"collective": {"seconds": 5, "limit": 120}, "patience": 300}
    (tmp_path / "checks.json").write_text(json.dumps(table))
    words = ["--table=checks.json", "--seconds=0.1", "--paths=all"]
    ranks = []
    for number in range(NODES):
        node = f"n{number}"
        environment = {
            **torch_environment,
            "LLMB_RANK": str(number),
            "LLMB_NODE_RANK": str(number),
            "LLMB_LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "WORLD_SIZE": str(NODES),
            "SLURMD_NODENAME": node,
            "GLOO_SOCKET_IFNAME": "absent0" if node == BAD else "lo",
        }
        argv = [torch_python, "-m", "llmb_nodes.program.diagnose", *words]
        with (tmp_path / f"{node}.log").open("w") as log:
            ranks.append(
                subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=log, stderr=log)
            )
    assert [rank.wait(600) for rank in ranks] == [0] * NODES
    log_text = (tmp_path / "n0.log").read_text()
    assert "node diagnosis: slowest value" in log_text
    read = diagnose.read(tmp_path)
    assert read is not None
    plan, rounds = read
    end = strategy.next_round(plan, rounds)
    assert isinstance(end, strategy.Diagnosis), log_text
    # Two cores for six nodes are noisy: others may be slow, and only this one fails.
    failing = [one for one in end.findings if one.problem and one.confirmed]
    assert [one.nodes for one in failing] == [(BAD,)]
    assert f"{BAD}: " in failing[0].problem
    values = [outcome.value for done in rounds for _, outcome in done]
    assert any(value is not None and value > 0 for value in values)
