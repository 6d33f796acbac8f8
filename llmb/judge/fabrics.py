# SPDX-License-Identifier: Apache-2.0
"""Find the published bus bandwidth for the fabric of a collective, in fabrics.yaml. Pure.

A bandwidth that was measured on another fabric says nothing, so there is no ratio unless the log
shows every fact that a row needs. This holds for tables of nccl-tests and for workloads that run a
collective, whose size is its name: microbench.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from llmb.contract.settings import Settings
from llmb.core import typed, yamlfile
from llmb.core.values import dataclass
from llmb.measure.fabric import Fabric
from llmb.measure.nccl_tests import BUSBW
from llmb.measure.result import ReferenceValue, Result
from llmb.plan.published import Figure

RELEASE = "nccl-tests"
MESSAGE_SIZE = "message_size"  # the parameter of a workload that runs a collective
_UNIT = "GB/s"
_FIX = "NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV"
# The facts of a row in words, in the order in which they matter, and the fix for logs without one.
_WORDS = {
    "operation": "the operation",
    "gpu_type": "the GPU type (GPUs that NVSwitch connects)",
    "gpus_per_node": "the GPUs of each node",
    "nodes": "the number of nodes",
    "transport": "NCCL's transport",
    "nics": "the NICs of each node",
    "nic_gbit": "the speed of a NIC",
}
_OF_NCCL = frozenset({"transport", "nics", "nic_gbit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRow:
    """A published bus bandwidth, with the fabric that it is valid for."""

    gpu_type: str
    gpus_per_node: int
    nodes: int
    most_nodes: int = 0  #: 0: as many as ``nodes``
    transport: tuple[str, ...]
    operations: tuple[str, ...]
    nics: int | None = None  #: None within one node
    nic_gbit: int | None = None
    algorithm: str | None = None  #: as the user chose it by NCCL_ALGO
    least: int  #: the largest message has this many bytes at least
    busbw: float  #: GB/s
    source: str

    def unfit(self, fabric: Fabric) -> str | None:
        """Return the first fact in which ``fabric`` differs, None if it may be this fabric."""
        most_nodes = self.most_nodes or self.nodes
        fits_by_fact = {
            "operation": fabric.operation in (None, *self.operations),
            "gpu_type": fabric.gpu_type in (None, self.gpu_type),
            "gpus_per_node": fabric.gpus_per_node in (None, self.gpus_per_node),
            "nodes": fabric.nodes is None or self.nodes <= fabric.nodes <= most_nodes,
            "algorithm": fabric.algorithm == self.algorithm,
            "transport": fabric.transport in (None, *self.transport),
            "nics": None in (self.nics, fabric.nics) or self.nics == fabric.nics,
            "nic_gbit": None in (self.nic_gbit, fabric.nic_gbit)
            or self.nic_gbit == fabric.nic_gbit,
        }
        return next((name for name, fits in fits_by_fact.items() if not fits), None)

    def unknown(self, fabric: Fabric) -> list[str]:
        """Return the facts that the row needs and the log of ``fabric`` does not show."""
        needed = [name for name in _WORDS if getattr(self, name, "") is not None]
        return [name for name in needed if getattr(fabric, name) is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricTable:
    """The content of fabrics.yaml."""

    busbw: tuple[FabricRow, ...]


@lru_cache(maxsize=1)
def table() -> FabricTable:
    """Return the published bus bandwidths."""
    return typed.read(FabricTable, yamlfile.load_packaged(Path(__file__).with_name("fabrics.yaml")))


def decides(result: Result, figures: Sequence[Figure]) -> bool:
    """Return True if only the bandwidth of its own fabric says anything of a result.

    ``figures`` are published, or of a baseline, whose runs had the cluster's own fabric.
    """
    if result.metrics.headline != BUSBW or (figures and figures[0].release != RELEASE):
        return False
    has_fabric = result.log is not None and result.log.fabric is not None
    return bool(figures) or (has_fabric and bool(_largest(result)))


def find_expected(result: Result) -> tuple[ReferenceValue | None, str]:
    """Return the published bandwidth for a result's fabric, or None and why there is none."""
    fabric = _fabric_of(result)
    rows = [row for row in table().busbw if row.unfit(fabric) is None]
    if not rows:
        return None, f"no bus bandwidth is published for this fabric: {in_words(fabric)}"
    unknown_facts = min((row.unknown(fabric) for row in rows), key=len)
    if unknown_facts:
        missing = " and ".join(_WORDS[name] for name in unknown_facts)
        fix = f"; to log it, set {_FIX}" if _OF_NCCL & set(unknown_facts) else ""
        return None, f"no ratio, since the log does not show {missing}{fix}"
    (row, *_) = rows
    if _largest(result) < row.least:
        size = f"{row.least >> 30}G"
        return None, f"no ratio: the largest message has less than {size}"
    return (
        ReferenceValue(
            release=RELEASE,
            window="",
            step_time_s=None,
            source=row.source,
            metric=BUSBW,
            value=row.busbw,
            unit=_UNIT,
        ),
        "",
    )


def in_words(fabric: Fabric) -> str:
    """Return the known facts: ``all_reduce, 8 h100 on each of 2 nodes, IB, 8 NICs``."""
    gpus = " ".join(filter(None, (str(fabric.gpus_per_node or ""), fabric.gpu_type or "GPUs")))
    nodes = "" if fabric.nodes is None else f" on each of {fabric.nodes} nodes"
    speed = f" of {fabric.nic_gbit} Gbit/s" if fabric.nic_gbit else ""
    facts = (
        fabric.operation,
        gpus + (" on 1 node" if fabric.nodes == 1 else nodes),
        fabric.transport,
        f"{fabric.nics} NICs{speed}" if fabric.nics and fabric.nodes != 1 else "",
        f"NCCL_ALGO={fabric.algorithm}" if fabric.algorithm else "",
    )
    return ", ".join(fact for fact in facts if fact)


def _fabric_of(result: Result) -> Fabric:
    """Return the fabric that the log shows, with what the configuration of a collective adds."""
    log, configuration = result.log, result.identity.configuration
    fabric = (None if log is None else log.fabric) or Fabric()
    if configuration is None or MESSAGE_SIZE not in configuration.parameters:
        return fabric
    is_named = log is not None and bool(log.gpu_models)  # by the driver: H100 PCIe is not an H100
    per_node = fabric.gpus_per_node or _gpus_of_node(configuration)
    return replace(
        fabric,
        operation=configuration.model_size,
        gpu_type=fabric.gpu_type or (None if is_named else configuration.gpu_type),
        gpus_per_node=per_node,
        nodes=fabric.nodes or (configuration.scale // per_node if per_node else None),
    )


def _gpus_of_node(configuration: Settings) -> int | None:
    """Return the GPUs of each node, None unless they divide the job's."""
    per_node = configuration.gpus_per_node
    if per_node is None:
        return None
    per_node = min(per_node, configuration.scale)
    return per_node if configuration.scale % per_node == 0 else None


def _largest(result: Result) -> int:
    """Return the bytes of the largest message, by the names of the metrics; 0 without any.

    That of a collective is its parameter.
    """
    configuration = result.identity.configuration
    if configuration is not None and MESSAGE_SIZE in configuration.parameters:
        return _bytes(configuration.parameters[MESSAGE_SIZE])
    sizes = [
        _bytes(name.removeprefix(f"{BUSBW}_"))
        for name in result.metrics.measured
        if name.startswith(f"{BUSBW}_")
    ]
    return max(sizes, default=0)


def _bytes(size: str) -> int:
    factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(size[-1:], 1)
    digits = size if factor == 1 else size[:-1]
    return int(digits) * factor if digits.isdecimal() else 0
