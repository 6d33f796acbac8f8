# SPDX-License-Identifier: Apache-2.0
"""Tests the settings of NeMo that a size overrides: how they are read, and which are refused at
their line.
"""

import textwrap
from typing import Any

import pytest

from llmb.contract.nemo_recipe import NemoRecipe
from llmb.core import typed, yamlfile
from llmb.errors import InputFaults


def read(text: str) -> NemoRecipe:
    own = f"recipe: mixtral_8x7b\nflops_name: mixtral\nvocab: 31999\n{textwrap.dedent(text)}"
    return typed.read(NemoRecipe, yamlfile.parse(own, name="w.yaml"))


def test_every_kind_becomes_a_path() -> None:
    nemo = read("""\
        overrides: {model.config.moe_permute_fusion: true, trainer.strategy.ddp.average_in_collective: false}
        optimizer: {adam_beta2: 0.98, weight_decay: 0.01}
        recompute: {granularity: selective, modules: [moe_act, layernorm]}
        """)
    assert nemo.settings() == {
        "optim.config.adam_beta2": 0.98,
        "optim.config.weight_decay": 0.01,
        "model.config.recompute_granularity": "selective",
        "model.config.recompute_modules": ["moe_act", "layernorm"],
        "model.config.moe_permute_fusion": True,
        "trainer.strategy.ddp.average_in_collective": False,
    }
    assert nemo.of(None).settings() == nemo.settings()


def test_without_any_nothing_is_overridden() -> None:
    assert read("").settings() == {}


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ("overrides: {trainer.max_steps: 5}", "setting-reserved", "overrides.trainer.max_steps"),
        ("overrides: {model.config: 5}", "setting-reserved", "overrides.model.config"),
        (
            "overrides: {trainer.strategy.tensor_model_parallel_size: 2}",
            "setting-reserved",
            "overrides.trainer.strategy.tensor_model_parallel_size",
        ),
        (
            "overrides: {model.config.num_moe_experts: 2}",
            "setting-reserved",
            "overrides.model.config.num_moe_experts",
        ),
        ("overrides: {'model config': 5}", "path-invalid", "overrides.model config"),
        ("overrides: {model.config.x: {a: 1}}", "value-type", "overrides.model.config.x"),
        ("overrides: {model.config.x: 2026-01-02}", "value-type", "overrides.model.config.x"),
        ("optimizer: {use_precision_aware_optimizer: true}", "setting-reserved", None),
        ("optimizer: {lr: [1, {}]}", "value-type", "optimizer.lr.1"),
        ("recompute: {granularity: all}", "value-not-allowed", "recompute.granularity"),
        ("recompute: {granularity: full}", "value-not-allowed", "recompute.method"),
        (
            "recompute: {granularity: full, method: block}",
            "value-not-allowed",
            "recompute.num_layers",
        ),
        (
            "recompute: {granularity: selective, num_layers: 2}",
            "value-not-allowed",
            "recompute.num_layers",
        ),
        (
            "optimizer: {lr: 1.0e-4}\noverrides: {optim.config.lr: 2.0e-4}",
            "setting-duplicate",
            None,
        ),
        (
            (
                "recompute: {granularity: selective}\noverrides:"
                " {model.config.recompute_granularity: full}"
            ),
            "setting-duplicate",
            "overrides.model.config.recompute_granularity",
        ),
    ],
)
def test_what_cannot_be_overridden(text: str, code: str, key: str | None) -> None:
    with pytest.raises(InputFaults) as caught:
        read(text)
    (fault,) = caught.value.faults
    assert fault.code == code
    assert key is None or fault.key == key
    assert fault.place.startswith("w.yaml:")


@pytest.mark.parametrize(
    ("recompute", "settings"),
    [
        (
            {"granularity": "full", "method": "block", "num_layers": 5},
            {"granularity": "full", "method": "block", "num_layers": 5},
        ),
        ({"granularity": "selective"}, {"granularity": "selective"}),
    ],
)
def test_recomputation_in_megatrons_words(
    recompute: dict[str, Any], settings: dict[str, Any]
) -> None:
    nemo = read(f"recompute: {recompute}")
    assert nemo.settings() == {
        f"model.config.recompute_{name}": value for name, value in settings.items()
    }
