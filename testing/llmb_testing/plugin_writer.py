# SPDX-License-Identifier: Apache-2.0
"""Writes plugins for tests: distributions with one workload each, which are found when ``folder``
is on PYTHONPATH.

write_plugin(folder, "pretrain_a", Needs(needs=(Venv(name="a", requirements=("small==1",)),)))
write_benchmark(folder, "netbench")
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmb.contract import needs
from llmb.contract.needs import Need, Needs
from llmb.core import files, typed

_TABLE = """\
key: {key}
title: A workload of a test
default_size: tiny
default_dtype: fp32
sizes:
  tiny:
    model: {{architecture: llama, layers: 2, hidden: 8, ffn: 8, heads: 2, kv_groups: 2, vocab: 8, seq_length: 8}}
    whole_nodes: false
    rows: [{{gpu: any, dtype: fp32, scales: [1, 2], mbs: 1, gbs: N}}]
"""

_MODULE = """\
from pathlib import Path

from llmb.api import hookimpl, read_workload
from llmb_testing.plugin_writer import read_needs

_HERE = Path(__file__).parent


@hookimpl
def llmb_workload():
    return read_workload(_HERE / "workload.yaml")


@hookimpl
def llmb_setup(workload, site):
    return read_needs(_HERE / "needs.json")
"""


_BENCHMARK = """\
key: {key}
title: A benchmark that trains no model
default_size: all_reduce
default_dtype: bf16
max_steps: 20
time_limit_minutes: 10
metrics:
  - {{name: busbw, unit: GB/s}}
  - {{name: algbw, unit: GB/s}}
  - {{name: latency, unit: us, better: lower}}
parameters:
  message_size: {{default: 16M, choices: [1M, 16M, 256M]}}
  algorithm: {{default: auto}}
sizes:
  all_reduce:
    whole_nodes: false
    rows: [{{gpu: any, dtype: [bf16, fp32], scales: 1..64}}]
  send_receive:
    metrics: [latency, busbw]
    rows: [{{gpu: h100, dtype: bf16, scales: [16, 32], memory_gb: 10, time_limit_minutes: 5}}]
"""

_LAUNCHES = """\
import sys
from pathlib import Path

from llmb.api import Launch, Program, hookimpl, read_workload

_HERE = Path(__file__).parent


@hookimpl
def llmb_workload():
    return read_workload(_HERE / "workload.yaml")


@hookimpl
def llmb_launch(job, site):
    values = [f"--{name}={value}" for name, value in job.parameters.items()]
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(script=str(_HERE / "program.py")),
        args=(f"--case={job.model_size}", f"--steps={job.max_steps}", *values),
        venv=str(site.venv or sys.prefix),
        image=job.image,
        environment=dict(job.env),
    )
"""

# Logs steps as llmb reads them without a plugin's own format.
_PROGRAM = """\
import os
import sys

steps = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--steps="))
if os.environ.get("RANK", "0") == "0":
    for step in range(steps):
        print(f"llmb step {step}/{steps - 1} busbw={480 + step % 3} algbw=270.5 latency=35.5", flush=True)
"""


def write_plugin(folder: Path, key: str, needs: Needs) -> None:
    """Write the distribution of a plugin with the workload ``key`` into ``folder``. Replaces an
    earlier one.
    """
    kinds = [[type(need).__name__, typed.to_data(need)] for need in needs.needs]
    _write(
        folder,
        key,
        {"__init__.py": _MODULE, "workload.yaml": _TABLE, "needs.json": json.dumps(kinds)},
    )


def write_benchmark(folder: Path, key: str) -> None:
    """Write the distribution of a plugin that trains no model, with metrics, parameters and a
    program of its own.
    """
    _write(
        folder, key, {"__init__.py": _LAUNCHES, "workload.yaml": _BENCHMARK, "program.py": _PROGRAM}
    )


def _write(folder: Path, key: str, texts: Mapping[str, str]) -> None:
    """Install a plugin with these files, of which a YAML file has a place for ``key``."""
    files = {
        path: text.format(key=key) if path.endswith(".yaml") else text
        for path, text in texts.items()
    }
    _install(folder, key, files)


def _install(folder: Path, key: str, texts: Mapping[str, str]) -> None:
    """Write a module with these files, and the metadata by which it is found."""
    name = re.sub(r"\W", "_", key)
    for path, text in texts.items():
        files.write_text(folder / name / path, text)
    info = folder / f"{name}-1.dist-info"
    files.write_text(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    files.write_text(info / "entry_points.txt", f"[llmb]\n{name} = {name}\n")


def read_needs(path: Path) -> Needs:
    """Return the needs that ``write_plugin`` wrote."""
    return Needs(
        needs=tuple(
            _need(kind, data) for kind, data in json.loads(path.read_text(encoding="utf-8"))
        )
    )


def _need(kind: str, data: dict[str, Any]) -> Need:
    fields = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
    }
    need: Need = getattr(needs, kind)(**fields)
    return need


def copy_plugin(package: Path, folder: Path, key: str, published: str) -> None:
    """Copy the ``package`` of a plugin into ``folder`` as a workload ``key`` with its own
    ``published`` figures.
    """
    texts = {
        str(path.relative_to(package)): path.read_text("utf-8") for path in package.rglob("*.py")
    }
    table = (package / "workload.yaml").read_text("utf-8")
    _install(folder, key, {**texts, "workload.yaml": re.sub(r"(?m)^key: .*", f"key: {key}", table)})
    files.write_text(folder / key / "published.yaml", published)
