# SPDX-License-Identifier: Apache-2.0
"""Reads the answers that ``llmb-install --record FILE`` of exemplar-performance wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmb import api
from llmb_exemplar.names import name_in_llmb
from llmb_exemplar.run_config import section_of

# The keys of releases 25.05 to 26.06, with ours.
_KEYS = {"install_path": "install", "gpu_type": "gpu_type", "venv_type": "venv_type"}
_METHODS = {"local": "here", "slurm": "srun"}
_SLURM = {
    "account": "slurm.account",
    "gpu_partition": "slurm.gpu.partition",
    "gpu_partition_gres": "slurm.gpu.gres",
    "cpu_partition": "slurm.cpu.partition",
    "cpu_partition_gres": "slurm.cpu.gres",
}


def options_of(file: Path) -> list[str]:
    """Return the options of ``llmb-install`` with the answers in ``file``, none if it has none.

    A secret is omitted: a command line shows it to everybody.
    """
    try:
        data = section_of({"": api.read_yaml(file)}, "")
    except api.LlmbError:
        return []
    return [word for key, value in _answers(data) for word in ("--set", f"{key}={value}")]


def _answers(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    slurm = section_of(section_of(data, "slurm_info") or data, "slurm")
    if "install_path" not in data:  # such as our own answers
        return
    yield "cluster_type", "slurm"
    for names, values in ((_KEYS, data), (_SLURM, slurm)):
        for name, key in names.items():
            if values.get(name) is not None:
                yield key, str(values[name])
    if (
        architecture := data.get("node_architecture") or slurm.get("node_architecture")
    ) is not None:
        yield "node_architecture", str(architecture)
    if (method := _METHODS.get(str(data.get("install_method")))) is not None:
        yield "method", method
    workloads = data.get("selected_workloads")
    if isinstance(workloads, list) and workloads:
        yield "workloads", f"[{', '.join(name_in_llmb(str(name)) for name in workloads)}]"
    variables = section_of(data, "environment_vars") or section_of(data, "env_vars")
    for name, value in variables.items():
        if not api.is_secret_name(name):
            yield f"environment.{name}", str(value)
