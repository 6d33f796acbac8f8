# SPDX-License-Identifier: Apache-2.0
"""`llmb-run nodes diagnose` on a real Slurm of sixteen pretended nodes, with planted faults."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.slurm import Shape, SlurmKit, missing_packages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SWITCHES = (
    *(f"SwitchName=leaf{n} Nodes=n[{4 * n + 1}-{4 * n + 4}]" for n in range(4)),
    "SwitchName=spine Switches=leaf[0-3]",
)
# In place of the all-reduce: 100 GB/s, with a spread of 1 % by the group, and the planted faults,
# each a line of nodes and a number. The nodes of a line must all be in the group. A node that has
# the line "hang" sleeps, and one with "error" fails.
COLLECTIVE = r"""#!/bin/bash
cd {folder}
[[ ! -e hang-$SLURMD_NODENAME ]] || sleep 600
[[ ! -e error-$SLURMD_NODENAME ]] || {{ echo "NCCL error: unhandled system error" >&2; exit 1; }}
exec python3 - <<'END'
import os, pathlib, random
group = os.environ["LLMB_GROUP"].split(",")
value = 100 * random.Random(f"{{group}}").gauss(1, 0.01)
for line in pathlib.Path("faults").read_text().splitlines():
    nodes, factor, *path = line.split()
    members = set(nodes.split(","))
    applies = not path or path[0] == os.environ["LLMB_PATH"]
    inside = members.intersection(group)
    if applies and nodes.startswith("out:"):
        members = set(nodes[4:].split(","))
        inside = members.intersection(group)
        applies = 0 < len(inside) < len(group)
    elif members - inside:
        applies = False
    value *= float(factor) if applies else 1
print(value)
END
"""


@pytest.fixture(scope="module")
def sixteen_nodes() -> Iterator[SlurmKit]:
    if missing := missing_packages(accounting=False):
        pytest.skip(f"no real Slurm here: apt-get install {' '.join(missing)}")
    with SlurmKit(Shape(nodes=16, accounting=False, topology=SWITCHES)) as kit:
        yield kit


@dataclass
class Planted:
    """An install directory whose groups of nodes have the planted faults."""

    site: Any
    folder: Path

    def diagnose(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = self.site.llmb("nodes", "diagnose", *words, "--format", "json")
        assert done.returncode == code, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["complete"]
        return answer


@pytest.fixture
def plant(
    sixteen_nodes: SlurmKit, site_at: Callable[..., Any], tmp_path: Path
) -> Callable[..., Planted]:
    folder = tmp_path / "planted"
    folder.mkdir()

    def make(*faults: str, files: tuple[str, ...] = ()) -> Planted:
        (folder / "faults").write_text("".join(f"{line}\n" for line in faults))
        for name in files:
            (folder / name).touch()
        script = folder / "collective"
        script.write_text(COLLECTIVE.format(folder=folder))
        script.chmod(0o755)
        site = site_at(
            sixteen_nodes,
            gpu_types={"h100": {"gpus_per_node": 1}},
            workloads={
                "installed": ["node_check"],
                "config": {"node_check": {"venv_path": str(tmp_path / "install" / "venv")}},
            },
            plugins={"llmb-nodes": {"checks": "site-checks.yaml"}},
        )
        (site.install / "site-checks.yaml").write_text(
            f"collective: {{command: {script}, limit: 20}}\n"
        )
        return Planted(site, folder)

    return make


def found(answer: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    return [(one["kind"], one["nodes"], one["word"]) for one in answer["findings"]]


def test_healthy_nodes_take_two_rounds(plant: Callable[..., Planted]) -> None:
    answer = plant().diagnose("--nodelist", "n[1-16]", "--quick")
    assert found(answer) == []
    assert len(answer["rounds"]) <= 3
    assert len(answer["nodes"]) == 16
    assert answer["usual"]["all"] == pytest.approx(100, rel=0.05)
    # The groups follow the switches.
    first = [one["nodes"] for one in answer["rounds"][0]]
    assert first == [[f"n{4 * n + k}" for k in range(1, 5)] for n in range(4)]


@pytest.mark.parametrize(
    ("faults", "files", "expected", "rounds", "code"),
    [
        (["n7 0.6"], [], ("node", ["n7"], "SLOW"), 6, 0),
        ([], ["error-n2"], ("node", ["n2"], "FAULT"), 6, 3),
        (["n9,n12 0.5"], [], ("pair", ["n9", "n12"], "SLOW"), 9, 0),
        (
            ["out:n5,n6,n7,n8 0.5"],
            [],
            ("switch", ["n5", "n6", "n7", "n8"], "SLOW"),
            4,
            0,
        ),
    ],
    ids=["slow node", "failing node", "slow pair", "switch group"],
)
def test_a_planted_fault_is_found_by_name(
    plant: Callable[..., Planted],
    faults: list[str],
    files: list[str],
    expected: tuple[str, list[str], str],
    rounds: int,
    code: int,
) -> None:
    planted = plant(*faults, files=tuple(files))
    answer = planted.diagnose("--nodelist", "n[1-16]", "--quick", code=code)
    assert found(answer) == [expected]
    assert len(answer["rounds"]) <= rounds
    (reason,) = [one["reason"] for one in answer["findings"]]
    assert ("n2: " in reason and "NCCL error" in reason) if files else "usual" in reason
    if expected[0] == "switch":
        assert "leaf1" in reason


def test_a_hang_ends_with_its_group_and_is_found(plant: Callable[..., Planted]) -> None:
    planted = plant(files=("hang-n4",))
    answer = planted.diagnose("--nodelist", "n[1-8]", "--quick", code=3)
    assert found(answer) == [("node", ["n4"], "FAULT")]
    assert "did not end" in answer["findings"][0]["reason"]
    assert len(answer["rounds"]) <= 5


def test_a_fault_of_the_network_alone_and_of_all_nodes(plant: Callable[..., Planted]) -> None:
    planted = plant("n3 0.5 network")
    answer = planted.diagnose(
        "--nodes", "8", "--quick", "--path", "both", "--expect", "200", code=3
    )
    assert [(one["kind"], one["path"], one["word"]) for one in answer["findings"]] == [
        ("everywhere", "all", "FAULT"),
        ("node", "network", "SLOW"),
        ("everywhere", "network", "FAULT"),
    ]
    assert answer["findings"][1]["nodes"] == ["n3"]


def test_a_dry_run_shows_rounds_and_gpu_hours_and_submits_nothing(
    plant: Callable[..., Planted],
) -> None:
    site = plant().site
    words = ("nodes", "diagnose", "--nodelist", "n[1-16]", "--dry-run")
    done = site.llmb(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    assert (estimate["nodes"], estimate["gpus"], estimate["group"]) == (16, 16, 4)
    assert (estimate["healthy"]["rounds"], estimate["healthy"]["minutes"]) == (2, 0.7)
    assert estimate["one_fault"]["rounds"] == 8
    # 16 GPUs for 8 rounds of 20 s
    assert estimate["one_fault"]["gpu_hours"] == pytest.approx(16 * 8 * 20 / 3600, abs=0.01)
    done = site.llmb(*words)
    assert "one fault, at most" in done.stdout, done.stderr
    assert "--nodelist 'n[1-16]'" in done.stdout
    assert "00:21:00" in done.stdout  # with repeats and hangs
    assert site.kit.run("squeue", "--noheader") == ""
    assert json.loads(site.llmb("jobs", "--format", "json").stdout) == []


def test_the_nodes_of_a_run_and_a_table_for_people(plant: Callable[..., Planted]) -> None:
    planted = plant("n3 0.5")
    check = planted.site.llmb("submit", "-w", "node_check", "-s", "quick", "--scale", "1")
    assert check.returncode == 0, check.stderr
    planted.site.comes_to_rest()
    (run,) = json.loads(planted.site.llmb("jobs", "--format", "json").stdout)
    few = planted.site.llmb("nodes", "diagnose", run["id"])
    assert few.returncode == 2
    assert "too few" in few.stderr
    both = planted.site.llmb("nodes", "diagnose", run["id"], "--nodelist", "n[1-4]")
    assert both.returncode == 2
    done = planted.site.llmb("nodes", "diagnose", "--nodelist", "n[1-6]", "--quick")
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["n3"]]
    assert "node" in row
    assert "SLOW" in row
    assert "--exclude n3" in done.stderr
    assert "of all pairs of nodes met" in done.stderr
