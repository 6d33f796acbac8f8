# SPDX-License-Identifier: Apache-2.0
"""The published models, built at full size on torch's meta device, have their published sizes."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

# Nemotron-H 56B as published: 54 Mamba-2, 54 MLP and 10 attention layers.
PATTERN = "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-"
MAMBA_56B = {"heads": 256, "head_dim": 64, "expand": 2, "chunk": 256, "state": 256, "groups": 8}
COUNT = """
import json, sys
from llmb_workloads.models import build, parameter_count
from llmb_workloads.torch_recipe import Mamba, TorchModel
for raw in json.load(sys.stdin):
    mamba = raw.pop("mamba")
    model = build(TorchModel(**raw, mamba=mamba and Mamba(**mamba)), "meta")
    print(parameter_count(model), model.config.tie_word_embeddings)
"""


def dense(architecture: str, layers: int, hidden: int, ffn: int, heads: int) -> dict[str, Any]:
    vocab, seq_length = (256000, 4096) if architecture == "nemotron" else (128256, 8192)
    sizes = {"layers": layers, "hidden": hidden, "ffn": ffn, "heads": heads, "kv_groups": 8}
    rest = {
        "vocab": vocab,
        "seq_length": seq_length,
        "head_dim": None,
        "pattern": None,
        "mamba": None,
    }
    return {"architecture": architecture, **sizes, **rest}


PUBLISHED = {
    "15.63": dense("nemotron", 32, 6144, 24576, 48),
    "341.03": dense("nemotron", 96, 18432, 73728, 96),
    "8.03": dense("llama", 32, 4096, 14336, 32),
    "70.55": dense("llama", 80, 8192, 28672, 64),
    "405.85": dense("llama", 126, 16384, 53248, 128),
    "56.32": dense("nemotronh", 118, 8192, 32768, 64)
    | {"vocab": 131072, "head_dim": 128, "pattern": PATTERN, "mamba": MAMBA_56B},
}


@pytest.mark.slow
@pytest.mark.timeout(1800)  # torch may be installed first
def test_full_size_models_have_their_published_sizes(
    torch_python: str, torch_environment: Mapping[str, str]
) -> None:
    ended = subprocess.run(
        [torch_python, "-c", COUNT],
        input=json.dumps(list(PUBLISHED.values())),
        env=torch_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [f"{int(count) / 1e9:.2f}" for count, _ in lines] == list(PUBLISHED)
    assert {tied for _, tied in lines} == {"False"}


def test_the_pattern_has_its_layers() -> None:
    assert (PATTERN.count("M"), PATTERN.count("-"), PATTERN.count("*")) == (54, 54, 10)
