# SPDX-License-Identifier: Apache-2.0
"""A table of nccl-tests is compared with the figure of its own fabric, and with no other.

The lines are those of NCCL 2.27 (init.cc, nvls.cc, net_ib.cc) and of nccl-tests 2.17 (util.cu).
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.metrics import MetricSpec
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.judge.fabrics import table
from llmb.judge.judge import judge
from llmb.measure.fabric import Fabric
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result
from llmb.plan.published import Figure

NAME = "NVIDIA H100 80GB HBM3"


def heading(hosts: int = 1, gpus: int = 8, name: str = NAME) -> str:
    ranks = "".join(
        f"#  Rank {host * gpus + gpu:2d} Group  0 Pid  {900 + gpu:5d} on    node{host:03d} device "
        f"{gpu:2d} [0000:{gpu:02x}:00] {name}\n"
        for host in range(hosts)
        for gpu in range(gpus)
    )
    return (
        "# nccl-tests version 2.17.6 nccl-headers=22703 nccl-library=22703\n"
        "# Collective test starting: /opt/nccl-tests/build/{operation}_perf\n"
        f"# Using devices\n{ranks}"
    )


def of_nccl(hosts: int = 1, link: str = "IB", speed: int = 400000, **words: object) -> str:
    prefix = "node000:901:950 [0] NCCL INFO "
    nics = range(8)
    lines = [
        *(f"NET/IB: [{n}] mlx5_{n}:uverbs{n}:1/{link} provider=Mlx5 speed={speed} context=0x7f pciPath=/s ar=1" for n in nics),
        f"NET/IB : Using {' '.join(f'[{n}]mlx5_{n}:1/{link}' for n in nics)} [RO]; OOB eth0:10.0.0.1<0>",
        f"Using network {words.get('network', 'IB')}",
        *(["NCCL_ALGO set by environment to RING"] if words.get("ring") else []),
        f"NVLS multicast support is {words.get('nvls', '')}available on dev 0 (NVLS_NCHANNELS 24)",
        f"comm 0x55f0 rank 0 nRanks {8 * hosts} nNodes {hosts} localRanks 8 localRank 0 MNNVL 0",
    ]  # fmt: skip
    return "".join(f"{prefix}{line}\n" for line in lines)


def rows(busbw: float, algbw: float = 274.36, redop: str = "sum", size: int = 8589934592) -> str:
    return (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong\n"
        f"  {size:12d}    2147483648     float  {redop:>6s}      -1    31308  {algbw:6.2f}"
        f"  {busbw:6.2f}       0    31310  {algbw:6.2f}  {busbw:6.2f}       0\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 159.2 \n#\n"
    )


def read(folder: Path, log: str, operation: str = "all_reduce") -> Result:
    path = folder / "log.txt"
    path.write_text(log.replace("{operation}", operation), encoding="utf-8")
    (result,) = judge([result_of_log(path, LogReader())], [])
    return result


def test_one_node_with_nvlink_sharp(tmp_path: Path) -> None:
    got = read(tmp_path, heading() + of_nccl() + rows(470.4))
    assert got.log is not None
    assert got.log.fabric == Fabric(
        operation="all_reduce",
        gpu_type="h100",
        gpus_per_node=8,
        nodes=1,
        nics=8,
        nic_gbit=400,
        transport="NVLS",
    )
    assert (got.verdict.word, got.verdict.ratio) == ("PASS", 0.98)
    assert got.verdict.reference is not None
    assert got.verdict.reference.value == 480


@pytest.mark.parametrize(
    ("operation", "redop", "log", "value"),
    [
        ("all_gather", "none", heading() + of_nccl(), 370),
        ("reduce_scatter", "sum", heading() + of_nccl(nvls="not "), 370),
        ("all_reduce", "sum", heading() + of_nccl(ring=True), 370),
        ("all_gather", "none", heading(2) + of_nccl(2), 368),
        ("all_gather", "none", heading(16) + of_nccl(16, link="RoCE"), 368),
        ("all_reduce", "sum", heading(2) + of_nccl(2, ring=True), 368),
    ],
)
def test_each_fabric_has_its_own_figure(
    operation: str, redop: str, log: str, value: float, tmp_path: Path
) -> None:
    got = read(tmp_path, log + rows(value, redop=redop), operation)
    assert got.verdict.reference is not None, got.verdict.reason
    assert (got.verdict.reference.value, got.verdict.ratio) == (value, 1.0)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (of_nccl() + heading(name="NVIDIA H100 PCIe"), ["does not show the GPU type"]),
        (heading(), ["does not show NCCL's transport", "NCCL_DEBUG=INFO"]),
        (of_nccl(), ["does not show the operation", "the GPU type"]),
        (heading(2) + of_nccl(2, ring=True).replace("speed=", "x="), ["the speed of a NIC"]),
        (heading(2) + of_nccl(2, network="AWS Libfabric", ring=True), ["is published", "EFA"]),
        (heading(2) + of_nccl(2, ring=True, speed=200000), ["is published", "NICs of 200 Gbit/s"]),
        (heading(2) + of_nccl(2), ["is published", "2 nodes"]),
        (heading(name="NVIDIA B200") + of_nccl(), ["is published", "8 b200 on 1 node"]),
        (heading(gpus=4) + of_nccl(), ["is published", "4 h100"]),
    ],
)
def test_another_fabric_has_no_ratio_and_the_reason_names_the_fact(
    log: str, words: list[str], tmp_path: Path
) -> None:
    got = read(tmp_path, log + rows(456.0, redop="none" if "Rank" not in log else "sum"))
    assert (got.verdict.word, got.verdict.ratio) == ("NO_REFERENCE", None)
    assert all(word in (got.verdict.reason or "") for word in words), got.verdict.reason


def test_a_small_message_says_nothing(tmp_path: Path) -> None:
    got = read(tmp_path, heading() + of_nccl() + rows(120.0, size=268435456))
    assert (got.verdict.word, got.verdict.reason) == (
        "NO_REFERENCE",
        "no ratio: the largest message has less than 1G",
    )


def test_wrong_values_are_invalid_whatever_the_fabric(tmp_path: Path) -> None:
    wrong = rows(480.0).replace("480.00       0    31310", "480.00       3    31310")
    got = read(tmp_path, heading() + of_nccl() + wrong)
    assert (got.verdict.word, got.verdict.ratio) == ("INVALID", None)


def test_an_operation_without_a_name_is_known_by_its_factor(tmp_path: Path) -> None:
    """nccl-tests multiplies by 2 (n - 1) / n for an all-reduce: 1.75 for 8 ranks."""
    old = "\n".join(line for line in heading().splitlines() if "starting" not in line) + "\n"
    got = read(tmp_path, old + of_nccl() + rows(480.13, algbw=274.36))
    assert got.log is not None
    assert got.log.fabric is not None
    assert got.log.fabric.operation == "all_reduce"
    got = read(tmp_path, old + of_nccl() + rows(240.07, algbw=274.36))
    assert got.log is not None
    assert got.log.fabric is not None
    assert got.log.fabric.operation == "reduce_scatter"


def test_gpus_of_several_nodes_that_nvlink_connects(tmp_path: Path) -> None:
    """NCCL counts the nodes of one NVLink domain as one."""
    lines = of_nccl().replace("localRank 0 MNNVL 0", "localRank 0 MNNVL 1")
    got = read(tmp_path, heading(2, 4, "NVIDIA GB200") + lines + rows(800.0))
    assert got.log is not None
    assert got.log.fabric is not None
    fabric = got.log.fabric
    assert (fabric.nodes, fabric.gpus_per_node, fabric.transport) == (2, 4, "MNNVL")


def test_a_report_in_json_has_the_machines(tmp_path: Path) -> None:
    devices = [
        {"rank": n, "hostname": f"node{n // 8}", "device": n % 8, "device_info": NAME}
        for n in range(16)
    ]
    place = {"time": 31.0, "alg_bw": 196.0, "bus_bw": 367.5, "nwrong": 0.0}
    report = {
        "version": 2,
        "args": ["./all_reduce_perf_mpi", "-J", "x"],
        "config": {"devices": devices},
        "results": [{"size": 8589934592, "out_of_place": place, "in_place": place}],
        "end_time": "2026-11-22 09:41:00",
    }
    got = read(tmp_path, json.dumps(report, separators=(",", ":")))
    assert got.log is not None
    assert got.log.fabric is not None
    fabric = got.log.fabric
    assert (fabric.operation, fabric.gpu_type, fabric.nodes) == ("all_reduce", "h100", 2)
    assert (got.verdict.word, got.metrics.mean("busbw")) == ("NO_REFERENCE", 367.5)


def test_every_row_has_what_its_transport_needs() -> None:
    for row in table().busbw:
        by_nics = row.nodes > 1 and row.transport != ("MNNVL",)
        assert by_nics == (row.nics is not None) == (row.nic_gbit is not None)
        assert row.source.startswith("github.com/")


@pytest.mark.parametrize(
    ("log", "value"),
    [
        (heading(name="NVIDIA A100-SXM4-80GB") + of_nccl(nvls="not "), 231.6),
        (heading(name="NVIDIA H200") + of_nccl(), 480),
        (heading(gpus=4, name="NVIDIA GB200") + of_nccl(ring=True), 679.6),
        (
            heading(18, 4, "NVIDIA GB300")
            + of_nccl().replace("localRank 0 MNNVL 0", "localRank 0 MNNVL 1"),
            937,
        ),
    ],
)
def test_the_figures_of_azure_s_machines(log: str, value: float, tmp_path: Path) -> None:
    got = read(tmp_path, log + rows(value, size=17179869184))
    assert got.verdict.reference is not None, got.verdict.reason
    assert (got.verdict.reference.value, got.verdict.word) == (value, "PASS")
    smaller = read(tmp_path, log + rows(value, size=4294967296))
    assert (smaller.verdict.word, smaller.verdict.ratio) == ("NO_REFERENCE", None)


MICROBENCH = Settings(
    framework="nemo",
    workload="microbench",
    model_size="all_reduce",
    dtype="fp32",
    gpu_type="h100",
    scale=8,
    gpus_per_node=8,
    parameters={"message_size": "8G"},
)
PUBLISHED = Figure(
    workload="microbench",
    model_size="all_reduce",
    gpu_type="h100",
    dtype="fp32",
    scale=8,
    gbs=None,
    metric=MetricSpec(name="busbw", unit="GB/s"),
    value=480.0,
    parameters={"message_size": "8G"},
    release="nccl-tests",
    source="github.com/NVIDIA/nccl-tests, thread 212, 2024-05-06",
    window=Window(4, 18),
    steps=20,
)


OF_DRIVER = f'llmb node node000: {{"gpu": "{NAME}", "gpus": 8}}\n'


def collective(folder: Path, log: str, figure: Figure = PUBLISHED, **settings: object) -> Result:
    """The verdict of a microbench run of 20 iterations at 470.4 GB/s."""
    path = folder / "log-x.out"
    path.write_text(log + "".join(f"llmb step {n}/19 busbw=470.4\n" for n in range(20)))
    spec = ParseSpec(metrics=("busbw",), metric_units={"busbw": "GB/s"})
    metric = MetricSpec(name="busbw", unit="GB/s")
    result = result_of_log(path, LogReader(spec=spec, metrics=(metric,), headline="busbw"))
    configuration = replace(MICROBENCH, **settings)  # type: ignore[arg-type]
    identity = replace(result.identity, configuration=configuration)
    (judged,) = judge([replace(result, identity=identity)], [figure])
    return judged


def test_a_collective_of_a_workload_is_compared_on_the_same_fabric(tmp_path: Path) -> None:
    got = collective(tmp_path, of_nccl())
    assert (got.verdict.word, got.verdict.ratio) == ("PASS", 0.98)


@pytest.mark.parametrize(
    ("log", "settings", "words"),
    [
        ("", {}, ["does not show NCCL's transport", "NCCL_DEBUG=INFO"]),
        (OF_DRIVER + of_nccl(nvls="not "), {}, ["is published", "NVLink"]),
        (of_nccl(ring=True), {"parameters": {"message_size": "512M"}}, ["less than 1G"]),
        (
            OF_DRIVER.replace(NAME, "NVIDIA H100 PCIe") + of_nccl(),
            {},
            ["GPU type"],
        ),
        (of_nccl(), {"model_size": "all_to_all"}, ["is published", "all_to_all"]),
    ],
)
def test_a_collective_on_another_fabric_has_no_ratio(
    log: str, settings: dict[str, object], words: list[str], tmp_path: Path
) -> None:
    figure = replace(PUBLISHED, **settings)  # type: ignore[arg-type]
    got = collective(tmp_path, log, figure, **settings)
    assert (got.verdict.word, got.verdict.ratio) == ("NO_REFERENCE", None)
    assert all(word in (got.verdict.reason or "") for word in words), got.verdict.reason


def test_a_baseline_has_the_cluster_s_own_fabric(tmp_path: Path) -> None:
    got = collective(tmp_path, "", replace(PUBLISHED, release="before", value=470.4))
    assert (got.verdict.word, got.verdict.ratio) == ("PASS", 1.0)
