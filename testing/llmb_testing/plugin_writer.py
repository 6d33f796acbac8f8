# SPDX-License-Identifier: Apache-2.0
"""Writes plugins for tests: distributions with one workload each, whose needs the test chooses.

write_plugin(folder, "pretrain_a", Needs(needs=(Venv(name="a", requirements=("small==1",)),)))

They are found when ``folder`` is on PYTHONPATH.
"""

import json
import re
from pathlib import Path
from typing import Any

from llmb.system import files
from llmb.text import typed
from llmb.workload import needs
from llmb.workload.needs import Need, Needs

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


def write_plugin(folder: Path, key: str, wanted: Needs) -> None:
    """Write the distribution of a plugin with the workload ``key`` into ``folder``; replaces an earlier one."""
    name = re.sub(r"\W", "_", key)
    module, info = folder / name, folder / f"{name}-1.dist-info"
    files.write_text(module / "__init__.py", _MODULE)
    files.write_text(module / "workload.yaml", _TABLE.format(key=key))
    kinds = [[type(need).__name__, typed.to_data(need)] for need in wanted.needs]
    files.write_text(module / "needs.json", json.dumps(kinds))
    files.write_text(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    files.write_text(info / "entry_points.txt", f"[llmb]\n{name} = {name}\n")


def read_needs(path: Path) -> Needs:
    """The needs that ``write_plugin`` wrote."""
    return Needs(needs=tuple(_need(kind, data) for kind, data in json.loads(path.read_text(encoding="utf-8"))))


def _need(kind: str, data: dict[str, Any]) -> Need:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    made: Need = getattr(needs, kind)(**fields)
    return made
