# SPDX-License-Identifier: Apache-2.0
"""Writes the texts of a new plugin's files: pyproject.toml, a module and workload.yaml."""

import re
from string import Template

from llmb.errors import UsageError

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "llmb-$name"
version = "0.1.0"
dependencies = ["llmb"]

[project.entry-points.llmb]
$entry = "$module"
"""

_MODULE = '''\
"""A workload plugin; workload.yaml lists what it can run."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
'''

_TABLE = """\
# Each row is a configuration for some GPU types, dtypes and scales. N is the job's GPU count, gbs the global batch.
key: pretrain_$name
title: A small llama
default_size: 1b
default_dtype: bf16
image: nvcr.io/nvidia/nemo:25.04.01
sizes:
  1b:
    model: {architecture: llama, layers: 16, hidden: 2048, ffn: 8192, heads: 32, kv_groups: 8, gated: true,
            vocab: 128256, seq_length: 4096}
    nemo: {recipe: llama32_1b, flops_name: llama3, vocab: 128256}
    rows: [{gpu: h100, dtype: bf16, scales: 8..64, mbs: 1, gbs: 16N}]
  tiny:
    model: {architecture: llama, layers: 2, hidden: 64, ffn: 256, heads: 4, kv_groups: 2, gated: true,
            vocab: 512, seq_length: 64}
    whole_nodes: false
    rows: [{gpu: cpu, dtype: fp32, scales: [1, 2], mbs: 2, gbs: 4N}]
"""


def plain_name(name: str) -> str:
    """The name of a new workload without ``pretrain_``. Raises UsageError for a name that is not valid."""
    plain = re.sub(r"^pretrain(ing)?[-_.]?", "", name.lower())
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*", plain):
        message = f"'{name}' is not a valid name of a workload"
        hint = "begin with a letter; then letters, digits and single - _ . between them, as in acme-2b"
        raise UsageError(message, hint=hint, code="name-invalid", value=name)
    return plain


def scaffold(plain: str) -> dict[str, str]:
    """The files of a plugin with the workload ``pretrain_<plain>``: text by path."""
    entry = re.sub("[-.]", "_", plain)
    module = f"llmb_{entry}"
    texts = {"pyproject.toml": _PYPROJECT, f"{module}/__init__.py": _MODULE, f"{module}/workload.yaml": _TABLE}
    return {path: Template(text).substitute(name=plain, entry=entry, module=module) for path, text in texts.items()}
