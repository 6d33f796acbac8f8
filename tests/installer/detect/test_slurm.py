# SPDX-License-Identifier: Apache-2.0
"""Tests of detecting Slurm: a real cluster, and recorded output of others."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb.builtin.slurm.partitions import read
from llmb_installer.detect.machine import find_gpu_type, find_likeliest, invent_gpu_name
from llmb_installer.detect.scheduler import (
    SlurmFound,
    find_slurm,
    read_accounts,
    read_mpi_kinds,
    read_nodes,
)
from llmb_testing.slurm import Shape, SlurmKit, missing_packages

# sinfo's answers, one line for each kind of node in a partition.
BLACKWELL = """\
batch*|up|4:00:00|1-64|120|idle|gpu:h100:8(S:0-1)|h[001-120]|none
batch*|up|4:00:00|1-64|8|down*|gpu:h100:8(S:0-1)|h[121-128]|Not responding
rack|up|infinite|1-infinite|18|idle|gpu:gb200:4(S:0,1)|g[01-18]|none
new|up|1-00:00:00|1-infinite|16|mixed|gpu:nvidia_h200:8,nvme:1|x[01-16]|none
cpu|up|infinite|1-infinite|40|idle|(null)|c[01-40]|none
old|down|infinite|1-infinite|4|idle|gpu:a100:8|a[1-4]|none
"""
MIXED = """\
all*|up|infinite|1-infinite|4|idle|gpu:H100-SXM5:8|a[1-4]|none
all*|up|infinite|1-infinite|4|idle|gpu:a100:4|b[1-4]|none
"""
UNTYPED = "gpu*|up|infinite|1-infinite|4|idle|gpu:8|n[1-4]|none\n"
NO_GRES = "work*|up|infinite|1-infinite|4|idle|(null)|n[1-4]|none\n"
NO_DEFAULT = "gpu|up|infinite|1-infinite|4|idle|gpu:nvidia_b200:8(IDX:0-7)|n[1-4]|none\n"

NODES = """\
NodeName=h001 Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 Partitions=batch,debug State=IDLE OS=Linux 5.15 Arch-less
NodeName=g01 Arch=aarch64 CoresPerSocket=72 Partitions=rack
NodeName=h121 CoresPerSocket=56 State=DOWN* Partitions=batch
NodeName=lone Arch=x86_64 State=IDLE
"""


def found(text: str, nodes: str = "") -> SlurmFound:
    return SlurmFound(cluster="c", partitions=read(text), nodes=tuple(read_nodes(nodes)))


def test_kinds_of_gpus() -> None:
    kinds = {
        (kind.partition, kind.gpu_type, kind.per_node, kind.nodes)
        for kind in found(BLACKWELL).gpu_kinds()
    }
    assert kinds == {
        ("batch", "h100", 8, 128),
        ("rack", "gb200", 4, 18),
        ("new", "h200", 8, 16),
        ("old", "a100", 8, 4),
    }


@pytest.mark.parametrize(
    ("text", "partition", "types"),
    [
        (BLACKWELL, "", ["h100"]),
        (BLACKWELL, "batch,rack", ["h100", "gb200"]),
        (BLACKWELL, "cpu", []),
        (BLACKWELL, "gone", []),
        (MIXED, "", ["h100", "a100"]),
        (UNTYPED, "", []),
        (NO_GRES, "", []),
        (NO_DEFAULT, "", []),
        (NO_DEFAULT, "gpu", ["b200"]),
    ],
)
def test_gpu_types_of_a_partition(text: str, partition: str, types: list[str]) -> None:
    assert found(text).gpu_types_of(partition) == types


def test_clusters_without_gres() -> None:
    assert not found(NO_GRES).gpu_kinds()
    untyped = found(UNTYPED).gpu_kinds()
    assert [(kind.gpu_type, kind.gres_type, kind.per_node) for kind in untyped] == [(None, "", 8)]


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("h100", "h100"),
        ("nvidia_h100_80gb_hbm3", "h100"),
        ("H100-SXM5", "h100"),
        ("tesla_v100", None),
        ("nvidia_gb200", "gb200"),
        ("b200", "b200"),
        ("h200", "h200"),
        ("nvidia_gb300", "gb300"),
        ("l40s", None),
        ("gpu", None),
        ("a100-sxm4-80gb", "a100"),
        ("xb200", None),
    ],
)
def test_names_match_whole(name: str, gpu_type: str | None) -> None:
    assert find_gpu_type(name) == gpu_type


@pytest.mark.parametrize(
    ("name", "own", "like"),
    [
        ("nvidia_h200", "h200", "h100"),
        ("GB300", "gb300", "gb200"),
        ("b300-sxm", "b300", "b200"),
        ("tesla_v100", "v100", "h100"),
        ("a40", "a40", "a100"),
        ("hopper", "hopper", "h100"),
        ("_", "gpu", "h100"),
    ],
)
def test_an_unknown_gpu(name: str, own: str, like: str) -> None:
    assert (invent_gpu_name(name), find_likeliest(name)) == (own, like)


@pytest.mark.parametrize(
    ("partition", "machine"),
    [
        ("batch", "x86_64"),
        ("rack", "aarch64"),
        ("batch,rack", None),
        ("debug", "x86_64"),
        ("gone", None),
        ("", "x86_64"),
    ],
)
def test_architecture(partition: str, machine: str | None) -> None:
    assert found(BLACKWELL, NODES).architecture_of(partition) == machine


@pytest.mark.parametrize(
    ("associations", "default", "accounts"),
    [
        ("b\na\nb\n", "a\n", ("a", "b")),
        ("root\nteam\n", "root\n", ("team",)),
        ("root\n", "root\n", ("root",)),
        ("a\n", "gone\n", ("a",)),
        ("", "", ()),
    ],
)
def test_accounts(associations: str, default: str, accounts: tuple[str, ...]) -> None:
    assert read_accounts(associations, default) == accounts


def test_kinds_of_mpi() -> None:
    old = (
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available:"
        " pmix_v4\n"
    )
    assert read_mpi_kinds(old) == ("pmix", "pmi2")
    none = "srun: MPI types are...\nsrun: none\n"
    assert read_mpi_kinds(none) == ()


def test_a_machine_without_slurm(tmp_path: Path) -> None:
    asked = find_slurm({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert (asked.commands, asked.partitions) == ((), {})
    assert "sinfo" in asked.fault
    assert asked.fix


def test_a_slurm_that_does_not_answer(tmp_path: Path) -> None:
    for name in ("sinfo", "sbatch"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'sinfo: error: Unable to contact slurm controller' >&2; exit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    asked = find_slurm({"PATH": f"{tmp_path}:/bin"})
    assert asked.commands[:1] == ("sbatch",)
    assert asked.fault
    assert asked.is_configured


def test_a_machine_with_slurms_packages_and_no_cluster(tmp_path: Path) -> None:
    text = "sinfo: fatal: Could not establish a configuration source"
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho '{text}' >&2; exit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    assert not find_slurm({"PATH": f"{tmp_path}:/bin"}).is_configured


@pytest.fixture(scope="module")
def kits() -> Iterator[Callable[[bool], SlurmKit]]:
    """Real clusters, with and without accounting, each started when it is first asked for."""
    if missing := missing_packages(accounting=True):
        pytest.skip(
            f"no real Slurm here: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    started: dict[bool, SlurmKit] = {}
    with contextlib.ExitStack() as stack:

        def kit(accounting: bool) -> SlurmKit:
            if accounting not in started:
                made = SlurmKit(Shape(nodes=2, gpus=4, gpu_type="gb200", accounting=accounting))
                started[accounting] = stack.enter_context(made)
            return started[accounting]

        yield kit


def test_a_real_cluster_with_accounting(kits: Callable[[bool], SlurmKit]) -> None:
    kit = kits(True)
    asked = find_slurm({**os.environ, **kit.environ})
    assert asked.fault == ""
    assert (asked.cluster, asked.default_partition) == ("kit", "gpu")
    assert asked.gpu_types_of("") == ["gb200"]
    assert asked.gpu_kinds("gpu")[0].per_node == 4
    assert asked.partitions["closed"].available == "down"
    assert asked.architecture_of("short,gpu") == os.uname().machine
    assert asked.accounting
    assert asked.accounts == ("benchmarks",)
    assert not asked.pyxis
    assert "sbatch" in asked.commands


def test_a_real_cluster_without_accounting(kits: Callable[[bool], SlurmKit]) -> None:
    asked = find_slurm({**os.environ, **kits(False).environ})
    assert (asked.fault, asked.accounting, asked.accounts) == ("", False, ())
    assert asked.gpu_kinds()
    nodes = find_slurm({**os.environ, **kits(False).environ}, nodes_only=True)
    assert (nodes.partitions, nodes.nodes, nodes.cluster) == (asked.partitions, asked.nodes, None)
