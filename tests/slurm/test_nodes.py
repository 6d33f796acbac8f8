# SPDX-License-Identifier: Apache-2.0
"""`llmb-run nodes` on a real Slurm of ten pretended nodes, with planted facts, values and a hang."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_testing import nvml
from llmb_testing.nvml import Change
from llmb_testing.slurm import Shape, SlurmKit, missing_packages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler"),
]
SITE = """\
facts:
  pmix: null
measures:
  matrix_product: null
  memory: null
  host_to_device: null
  device_to_host: null
  all_reduce: null
  disk: null
  compute: {{unit: TFLOPS, command: '{folder}/measure'}}
  scratch: {{unit: GB/s, command: 'echo 5', minimum: 4}}
hang_seconds: 20
"""
# Takes the next of the node's planted values.
MEASURE = """\
#!/bin/bash
cd {folder}
[[ $SLURMD_NODENAME != n6 ]] || sleep 600
read -r value < "$SLURMD_NODENAME"
sed -i 1d "$SLURMD_NODENAME"
echo "$value"
"""
USUAL = [99.6, 100.2, 100.5, 99.8, 100.1, 100.3, 99.9, 100.0, 100.4, 99.7]
PLANTED = {
    "n2": Change(key="driver", value=550),
    "n3": Change(key="errors", value=1, gpu=4),
    "n4": Change(key="links", value=17, gpu=0),
    "n7": Change(key="gpus", value=1),
}


@pytest.fixture(scope="module")
def ten_nodes() -> Iterator[SlurmKit]:
    if missing := missing_packages(accounting=False):
        pytest.skip(f"no real Slurm here: apt-get install {' '.join(missing)}")
    with SlurmKit(Shape(nodes=10, accounting=False)) as kit:
        yield kit


@pytest.fixture
def planted(ten_nodes: SlurmKit, site_at: Callable[..., Any], tmp_path: Path) -> Any:
    """An install directory whose nodes have the planted facts and values."""
    folder = tmp_path / "planted"
    library = nvml.build(folder / "lib")
    for node, value in zip(ten_nodes.nodes, USUAL, strict=True):
        changes = [Change(key="errors", value=0), *([PLANTED[node]] if node in PLANTED else [])]
        nvml.environment(library, folder / f"script-{node}", changes)
        values = {"n5": [80.0, 100.1], "n9": [91.0, 90.8]}.get(node, [value, value])
        (folder / node).write_text("".join(f"{one}\n" for one in values))
    (folder / "measure").write_text(MEASURE.format(folder=folder))
    (folder / "measure").chmod(0o755)
    site = site_at(
        ten_nodes,
        gpu_types={"h100": {"gpus_per_node": 2}},
        workloads={
            "installed": ["node_check"],
            "config": {"node_check": {"venv_path": str(tmp_path / "install" / "venv")}},
        },
        environment={
            "LD_LIBRARY_PATH": str(library.parent),
            "NVML_SCRIPT": str(folder / "script-%n"),
        },
        plugins={"llmb-nodes": {"checks": "site-checks.yaml"}},
    )
    (site.install / "site-checks.yaml").write_text(SITE.format(folder=folder))
    return site


def by_name(text: str) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in json.loads(text)["nodes"]}


def test_each_planted_fault_is_found_by_its_node(planted: Any) -> None:
    done = planted.llmb("nodes", "check", "--nodelist", "n[1-10]", "--quick", "--format", "json")
    assert done.returncode == 3, done.stderr
    nodes = by_name(done.stdout)
    assert {name: node["word"] for name, node in nodes.items()} == {
        **dict.fromkeys(["n1", "n5", "n8", "n10"], "OK"),
        "n9": "SLOW",
        **dict.fromkeys(["n2", "n3", "n4", "n6", "n7"], "FAULT"),
    }
    reasons = {name: node["reasons"] for name, node in nodes.items() if node["reasons"]}
    assert "550.86.15" in reasons["n2"][0]
    assert "GPU 4" in reasons["n3"][0]
    assert "nvlinks_up" in reasons["n4"][0]
    assert "compute" in reasons["n6"][0]
    assert "gpus" in reasons["n7"][0]
    assert all(len(lines) == 1 for lines in reasons.values())
    # Flagged once, and as its peers when measured again.
    (note,) = [note for note in nodes["n5"]["notes"] if "compute" in note]
    assert "80" in note
    assert nodes["n5"]["measures"]["compute"]["value"] == 100.1
    slow = nodes["n9"]["measures"]["compute"]
    assert (slow["value"], slow["first"], slow["unit"]) == (90.8, 91.0, "TFLOPS")
    assert slow["ratio"] == pytest.approx(0.908, abs=0.005)
    assert nodes["n1"]["facts"]["driver"] == "570.86.15"
    assert nodes["n1"]["facts"]["ecc_uncorrected"] == [0] * 8

    # History, suspects of a later submission, and no node is drained.
    shown = by_name_of_history(planted.llmb("nodes", "show", "--format", "json").stdout)
    assert shown["n9"] == "SLOW"
    words = ["-w", "node_check", "-s", "quick", "--scale", "2", "--dry-run", "--format", "json"]
    done = planted.llmb("submit", *words, "--exclude", "@suspects")
    assert done.returncode == 0, done.stderr
    assert "n2,n3,n4,n6,n7,n9" in done.stdout
    assert planted.kit.run("sinfo", "--noheader", "--nodes=n2,n9", "--format=%T").split() == [
        "idle"
    ]


def by_name_of_history(text: str) -> dict[str, str]:
    return {row["node"]: row["word"] for row in json.loads(text)["nodes"]}


def test_without_a_driver_the_cpu_side_works(
    ten_nodes: SlurmKit, site_at: Callable[..., Any], tmp_path: Path
) -> None:
    site = site_at(
        ten_nodes,
        workloads={
            "installed": ["node_check"],
            "config": {"node_check": {"venv_path": str(tmp_path / "install" / "venv")}},
        },
    )
    done = site.llmb("nodes", "check", "--nodes", "2", "--quick", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "follow them" not in done.stderr  # it does so itself
    nodes = json.loads(done.stdout)["nodes"]
    assert len(nodes) == 2
    for node in nodes:
        assert node["measures"]["memory"]["value"] > 0
        assert "gpus" in node["absent"]
        assert node["facts"]["cores"] > 0
    config = yaml.safe_load((site.install / "cluster_config.yaml").read_text())
    assert "plugins" not in config


def test_a_node_that_dies_during_its_check_is_a_fault(
    planted: Any, llmb_start: Callable[..., Any]
) -> None:
    """The check waits on n6, which hangs, when n8 dies after its first value."""
    kit = planted.kit
    words = ("nodes", "check", "--nodelist", "n[6-8]", "--quick")
    process = llmb_start(*words, "--install", planted.install, **kit.environ)
    values = planted.install.parent / "planted" / "n8"
    deadline = time.monotonic() + 180
    while len(values.read_text().splitlines()) == 2:
        assert time.monotonic() < deadline, "n8 never measured"
        time.sleep(0.1)
    kit.fail_node("n8")
    try:
        printed, _ = process.communicate(timeout=240)
    finally:
        kit.start_node("n8")
    assert process.returncode == 3, printed
    shown = by_name(planted.llmb("nodes", "suspects", "--format", "json").stdout)
    (reason,) = shown["n8"]["evidence"]
    assert shown["n8"]["word"] == "FAULT"
    assert re.match(rf"failed during check {shown['n8']['check']}: .*\bn8\b", reason), reason
    assert "n7" not in shown or "failed during" not in str(shown["n7"]["evidence"])
