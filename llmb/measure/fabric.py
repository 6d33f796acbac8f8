# SPDX-License-Identifier: Apache-2.0
"""The machines and links that a collective ran on, as far as its log shows them."""

import re

from llmb.contract.gpus import known_types
from llmb.contract.samples import Environment, Links, NcclTable, Samples
from llmb.core.values import dataclass

NVLS, NVLINK, MNNVL, EFA, TCP = "NVLS", "NVLink", "MNNVL", "EFA", "TCP"
ALL_REDUCE, REDUCE_SCATTER = "all_reduce", "reduce_scatter"
_NAME_OF_EFA, _NAME_OF_TCP = "AWS Libfabric", "Socket"
_WITHOUT_NVSWITCH = frozenset({"pcie", "nvl"})  # words of cards' names
_NEAR = 0.02  # a fraction: bandwidths are printed with two decimals


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The conditions of a collective's bandwidth. A field is None if the log omits it."""

    operation: str | None = None  #: of nccl-tests, such as ``all_reduce``
    gpu_type: str | None = None  #: by the GPU's name, for GPUs that NVSwitch connects
    gpus_per_node: int | None = None
    nodes: int | None = None
    nics: int | None = None  #: of one node
    nic_gbit: int | None = None  #: of one NIC, in Gbit/s
    #: Between nodes ``MNNVL``, ``IB``, ``RoCE``, ``EFA`` or ``TCP``; within one ``NVLS`` (NVLink
    #: SHARP) or ``NVLink``.
    transport: str | None = None
    algorithm: str | None = None  #: that the user chose by NCCL_ALGO, None for NCCL's own choice


def fabric_of(samples: Samples) -> Fabric | None:
    """Return the fabric of a log, None if it has no line about it."""
    environment, table = samples.environment, samples.nccl_table
    links = environment.links
    if table is None and links == Links():
        return None
    nodes, gpus_per_node = _machines(environment, table)
    gpu_type = _gpu_type(environment)
    return Fabric(
        operation=None if table is None else _operation(table, environment),
        gpu_type=gpu_type,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        nics=links.nics,
        nic_gbit=links.nic_gbit,
        transport=_transport(environment, nodes, gpu_type),
        algorithm=links.algorithm or None,
    )


def _machines(environment: Environment, table: NcclTable | None) -> tuple[int | None, int | None]:
    """Return the nodes and the GPUs of each, which nccl-tests lists; NCCL counts NVLink domains."""
    links, ranks = environment.links, environment.world_size
    if table is not None and environment.gpus and ranks and environment.hosts:
        nodes = len(environment.hosts)
        return nodes, ranks // nodes if ranks % nodes == 0 else None
    return (None, None) if links.mnnvl else (links.nodes, links.gpus_per_node)


def _operation(table: NcclTable, environment: Environment) -> str | None:
    """Return the collective, by its name or by the factor of its bus bandwidth.

    nccl-tests prints no name before 2.17, but it multiplies by 2 (n - 1) / n for an all-reduce of n
    ranks, by (n - 1) / n for a reduce-scatter.
    """
    ranks = environment.world_size
    if environment.operation or not table.reduces or table.factor is None or not ranks:
        return environment.operation or None
    factors = {ALL_REDUCE: 2 * (ranks - 1) / ranks, REDUCE_SCATTER: (ranks - 1) / ranks}
    matches = [
        name for name, factor in factors.items() if abs(table.factor - factor) <= _NEAR * factor
    ]
    return matches[0] if len(matches) == 1 else None


def _gpu_type(environment: Environment) -> str | None:
    names = {*environment.gpus, *(node.gpu for node in environment.described if node.gpu)}
    types = {_type_of(name) for name in names}
    return types.pop() if len(types) == 1 else None


def _type_of(name: str) -> str | None:
    """Return ``h100`` for NVIDIA H100 80GB HBM3, None for H100 PCIe and H100 NVL."""
    words = re.split(r"[\s-]+", name.lower())
    if _WITHOUT_NVSWITCH & set(words):
        return None
    return next((word for word in words if word in known_types()), None)


def _transport(environment: Environment, nodes: int | None, gpu_type: str | None) -> str | None:
    links = environment.links
    if nodes is None:
        return None
    if nodes == 1:
        if links.nvls is None:
            return None
        return NVLS if links.nvls else NVLINK if gpu_type is not None else None
    if links.mnnvl:
        return MNNVL
    if len(environment.networks) != 1:
        return None
    network = environment.networks[0]
    if network.startswith(_NAME_OF_EFA):
        return EFA
    return TCP if network.startswith(_NAME_OF_TCP) else links.link or None
