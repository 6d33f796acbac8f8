# SPDX-License-Identifier: Apache-2.0
"""The script of a run as text: the request at its head, and what each pod does. Pure."""

from dataclasses import replace
from pathlib import Path

from llmb.api import ClusterConfig, Launch, Stamp, node_script
from llmb_runai import request

# Words of bash. The operator of PyTorch jobs sets these variables in the pods of a workload.
_NODE = '"${RANK:?the operator of PyTorch jobs sets it}"'
_NODES, _MASTER, _PORT = '"${WORLD_SIZE-no}"', '"$MASTER_ADDR"', '"$MASTER_PORT"'


def render(launch: Launch, stamp: Stamp, config: ClusterConfig, programs: Path) -> str:
    """The script of ``launch``, with ``programs`` of the ranks. Raises UsageError for what bash
    cannot take.
    """
    pvc = request.section(config).pvc
    content = request.body(launch, stamp, f"launch_{launch.name}", config)
    words = (
        {"node": _NODE, "nodes": _NODES, "master": _MASTER, "port": _PORT}
        if launch.nodes > 1
        else {}
    )
    return node_script(
        request.launch_in_pod(pvc, launch),
        replace(stamp, directory=request.in_pod(pvc, stamp.directory)),
        config,
        job=f"'{request.workload_name(launch, stamp)}'",
        head=[*request.to_lines(request.kind_of(launch), content), ""],
        programs=Path(request.in_pod(pvc, programs)),
        **words,
    )
