# SPDX-License-Identifier: Apache-2.0
"""Megatron core constructs the first and the last pipeline stage of every layout of the rows, with
the variables of its ranks. The number of parameters is that of llmb's formula.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.model import ModelShape, parameters

AT_ONCE = 40  # layouts that a process constructs within its time limit
# Megatron core's class of a layer, by a pattern's letter
CLASSES = {
    "M": "MambaLayer",
    "-": "MLPLayer",
    "*": "TransformerLayer",
    "E": "MoETransformerLayer",
}
# Parameters that llmb's formula omits: the norms of queries and keys in Qwen3, and the biases of
# GPT-OSS (queries, keys and values, projection, router, experts).
OMITTED = {
    "qwen3_30b_a3b": 48 * 2 * 128,
    "gpt_oss_120b": 36 * (64 * 80 + 2880 + 128 + 128 * 3 * 2880),
}
LLAMA = "llama31_405b gb300 fp8_cs 256"
HYBRID = "nemotronh_56b h100 fp8_cs 64"
# Broken configurations: a valid one, the changed entries of its recipe, the changed variables, and
# the error of the library.
SPOILT: dict[str, tuple[str, dict[str, Any], dict[str, str], str]] = {
    "layers against stages": (LLAMA, {"model.num_layers": 128}, {}, "num_layers"),
    "groups against tp": (
        HYBRID,
        {"model.tensor_model_parallel_size": 16, "model.num_query_groups": 16},
        {},
        "ngroups must be evenly divisible by tp_size",
    ),
    "attention by a variable": (
        LLAMA,
        {"model.attention_backend": "fused"},
        {"NVTE_FUSED_ATTN": "0"},
        "NVTE_FUSED_ATTN",
    ),
}


def layouts(cases: Mapping[str, Any]) -> dict[str, Any]:
    """One case for each model, layout, dtype and way to capture graphs, by its label."""
    distinct: dict[object, Any] = {}
    for case in cases.values():
        row = case.row
        words = case.label.removeprefix("smoke ").split()
        layout = (row.tp, row.pp, row.cp, row.vp, row.ep, row.etp, row.fsdp, row.graphs)
        distinct.setdefault((case.size.model, case.size.cut, words[2], *layout), case)
    return {case.label: case for case in distinct.values()}


def wanted(case: Any, changes: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """A case as construct.py reads it, with changed entries and variables."""
    return {
        "recipe": {**case.recipe, "overrides": dict(changes)},
        "environment": {**case.recipe["environment"], **variables},
        "gpu": case.gpu,
        "vocabulary": case.size.vocab or case.shape.vocab,
    }


@pytest.fixture(scope="session")
def constructed(version: str, by_version: Any, construct: Any) -> dict[str, Any]:
    """What construct.py makes of each layout, and of the broken ones."""
    cases = layouts(by_version(version))
    rows = {label: wanted(case, {}, {}) for label, case in cases.items()}
    rows |= {
        name: wanted(by_version(version)[label], changes, variables)
        for name, (label, changes, variables, _) in SPOILT.items()
    }
    found: dict[str, Any] = {}
    for start in range(0, len(rows), AT_ONCE):
        found |= construct(version, dict(list(rows.items())[start : start + AT_ONCE]))
    return found


def expected_layers(shape: ModelShape) -> Counter[str]:
    """The layers of a whole model by their class."""
    pattern = shape.pattern or "*" * shape.layers
    return Counter(CLASSES[letter] for letter in pattern)


def test_megatron_constructs_every_layout(
    version: str, constructed: Mapping[str, Any], by_version: Any
) -> None:
    """Models of one or two stages have the parameters of llmb's formula, and all have its layers."""
    wrong = {}
    for label, case in layouts(by_version(version)).items():
        found = constructed[label]
        if found["error"]:
            wrong[label] = found["error"]
            continue
        stages = found["stages"]
        whole = expected_layers(case.shape)
        made = sum((Counter(stage["layers"]) for stage in stages), Counter[str]())
        assert made <= whole, label
        if case.row.pp <= 2:
            assert made == whole, label
            count = parameters(replace(case.shape, vocab=stages[0]["vocabulary"]))
            count += OMITTED.get(case.size.model, 0)
            total = sum(stage["parameters"] for stage in stages)
            if total != count:
                wrong[label] = f"{total} parameters, {count} by the formula"
    assert not wrong
    print(f"{version}: {len(layouts(by_version(version)))} layouts constructed")


@pytest.mark.parametrize("name", SPOILT)
def test_megatrons_checks_find_broken_models(constructed: Mapping[str, Any], name: str) -> None:
    """The control: the construction reaches the library's checks."""
    assert SPOILT[name][-1] in constructed[name]["error"]
