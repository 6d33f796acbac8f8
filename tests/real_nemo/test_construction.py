# SPDX-License-Identifier: Apache-2.0
"""Tests that Megatron core constructs each configuration's whole model, in the environment of its
script.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from llmb.contract.model import parameters

if TYPE_CHECKING:
    from llmb.contract.job import Job

HERE = Path(__file__).parent
SIZES = {"15b", "340b", "8b", "70b", "405b", "405b-proxy", "56b", "smoke"}
# of Megatron core, by a pattern's letter
CLASSES = {"M": "MambaLayer", "-": "MLPLayer", "*": "TransformerLayer"}
LAYERS_56B = {"MambaLayer": 54, "MLPLayer": 54, "TransformerLayer": 10}

# Broken configurations: a valid one, the changed keys of its recipe.json, the changed variables of
# its script, and the error of Megatron core or NeMo.
H56B = "nemotronh 56b h100 fp8 layers118 tp8 pp1 cp1 vp1 25.05"
N340B = "nemotron4 340b h100 bf16 layers96 tp8 pp8 cp1 vp12 25.05"
SPOILT: dict[str, tuple[str, dict[str, Any], dict[str, str], str]] = {
    "attention that the model chooses": (
        "llama3.1 8b h100 bf16 layers32 tp1 pp1 cp2 vp1 25.04",
        {},
        {"NVTE_FUSED_ATTN": "0"},
        "NVTE_FUSED_ATTN set to 0, but expected 1 for attention backend type auto",
    ),
    "flash attention": (
        H56B,
        {},
        {"NVTE_FUSED_ATTN": "1"},
        "NVTE_FUSED_ATTN set to 1, but expected 0 for attention backend type flash",
    ),
    "query groups against tp": (
        "llama3.1 70b h100 bf16 layers80 tp4 pp4 cp2 vp5 25.04",
        {"model": {"num_query_groups": 2}},
        {},
        "num_query_groups (2) must be a multiple of tensor_model_parallel_size (4)",
    ),
    "layers against pp": (
        N340B,
        {"model": {"num_layers": 100}, "parallelism": {"vp": None}},
        {},
        "num_layers should be divisible by pipeline_model_parallel_size",
    ),
    "layers against pp x vp": (
        N340B,
        {"model": {"num_layers": 104}},
        {},
        "Make sure the number of model chunks is the same across all pipeline stages",
    ),
    "layers with embedding and loss": (
        "llama3.1 405b h100 bf16 layers126 tp8 pp8 cp2 vp8 25.04",
        {"model": {"num_layers": 128}},
        {},
        "num_layers: 130 after enable",
    ),
    "Mamba groups against tp": (
        H56B,
        {"parallelism": {"tp": 16}, "gpus_per_node": 16, "model": {"num_query_groups": 16}},
        {},
        "AssertionError",
    ),
}


def wanted(case: Any, changes: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """A case in the driver's format, with changed keys of its recipe.json and variables of its
    script.
    """
    recipe = {
        key: case.recipe[key] | new if isinstance(new, dict) else new
        for key, new in changes.items()
    }
    exported = {name: value for name, value in case.exported.items() if name != "numactl"}
    return {"recipe": case.recipe | recipe, "environment": {**exported, **variables}}


@pytest.fixture(scope="module")
def constructed(
    run_nemo: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
    cases_by_model: Mapping[str, Any],
) -> dict[str, Any]:
    """The driver's answer for each model, valid or broken."""
    folder = tmp_path_factory.mktemp("construct")
    sound = {name: wanted(case, {}, {}) for name, case in cases_by_model.items()}
    spoilt = {
        name: wanted(cases_by_model[own], changes, variables)
        for name, (own, changes, variables, _) in SPOILT.items()
    }
    (folder / "wanted.json").write_text(json.dumps(sound | spoilt), encoding="utf-8")
    done = run_nemo(HERE / "construct.py", "wanted.json", "found.json", cwd=folder)
    assert done.returncode == 0, done.stdout[-4000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


def test_every_size_is_constructed(cases_by_model: Mapping[str, Any]) -> None:
    assert {case.job.model_size for case in cases_by_model.values()} == SIZES
    # Megatron compares them with the model's attention: they must be those of the script.
    assert {case.exported["NVTE_FLASH_ATTN"] for case in cases_by_model.values()} == {"1"}
    assert {case.exported["NVTE_FUSED_ATTN"] for case in cases_by_model.values()} == {"0", "1"}


def test_megatron_constructs_the_planned_model(
    constructed: dict[str, Any], cases_by_model: Mapping[str, Any], model: str
) -> None:
    job: Job = cases_by_model[model].job
    found = constructed[model]
    assert found["error"] == ""
    assert (found["stages"], found["chunks"]) == (job.trained.pp, job.trained.vp or 1)
    # NeMo pads the vocabulary to a multiple of 128 for each tensor parallel rank.
    unit = 128 * job.trained.tp
    assert found["vocabulary"] % unit == 0
    assert 0 <= found["vocabulary"] - job.trained.model.vocab <= unit
    assert found["parameters"] == parameters(replace(job.trained.model, vocab=found["vocabulary"]))
    pattern = (
        job.trained.model.pattern or "*" * job.trained.num_layers
    )  # Megatron has one class for attention followed by an MLP
    assert found["layers"] == {
        CLASSES[letter]: pattern.count(letter) for letter in sorted(set(pattern))
    }


def test_the_hybrid_has_its_published_layers(
    constructed: dict[str, Any], cases_by_model: Mapping[str, Any]
) -> None:
    hybrids = [
        name
        for name, case in cases_by_model.items()
        if (case.job.model_size, case.job.trained.num_layers) == ("56b", 118)
    ]
    assert len(hybrids) == 4  # one of them with FP8 current scaling
    for name in hybrids:
        assert constructed[name]["layers"] == LAYERS_56B


def test_8b_has_no_padding_beyond_the_vocabulary_of_llama(
    constructed: dict[str, Any], cases_by_model: Mapping[str, Any]
) -> None:
    found = {
        constructed[name]["vocabulary"]
        for name, case in cases_by_model.items()
        if case.job.model_size == "8b"
    }
    assert found == {128256}


@pytest.mark.parametrize("name", SPOILT)
def test_megatrons_checks_find_broken_models(constructed: dict[str, Any], name: str) -> None:
    assert SPOILT[name][-1] in constructed[name]["error"]
