# SPDX-License-Identifier: Apache-2.0
"""A NeMo recipe is read whole, or refused with file, key and fix."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.nemo_pretrain.recipe import (
    HubTokenizer,
    NullTokenizer,
    check_world,
    parse_recipe,
    read_recipe,
)
from llmb_workloads.world import Process

Make = Callable[..., dict[str, Any]]
PROFILE = {"start_step": 45, "stop_step": 50, "ranks": [0, 1, 511]}


EXPERTS = {
    "num_moe_experts": 8,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 14336,
    "moe_shared_expert_intermediate_size": None,
    "moe_layer_freq": None,
}


def test_a_mixture_of_experts_has_sizes_of_its_own(nemo_recipe: Make) -> None:
    read = parse_recipe(nemo_recipe(model={"moe": EXPERTS}, parallelism={"ep": 8, "etp": 1}))
    assert read.model.moe is not None
    assert (read.model.moe.num_moe_experts, read.parallelism.ep, read.parallelism.etp) == (8, 8, 1)


def test_a_recipe_of_an_earlier_release_has_neither_experts_nor_overrides(
    nemo_recipe: Make,
) -> None:
    raw = nemo_recipe()
    del raw["overrides"], raw["model"]["moe"], raw["model"]["mla"], raw["parallelism"]["etp"]
    read = parse_recipe(raw)
    assert (read.overrides, read.model.moe, read.model.mla, read.parallelism.etp) == (
        {},
        None,
        None,
        None,
    )


def test_a_recipe_keeps_every_value(nemo_recipe: Make) -> None:
    raw = nemo_recipe(
        profile=PROFILE,
        checkpoint={"save_at_step": 50},
        load_checkpoint="/a/b",
        stragglers={"report_interval": 20.0},
    )
    kept = dataclasses.asdict(parse_recipe(raw))
    assert kept.pop("profile") == {**PROFILE, "ranks": (0, 1, 511)}
    assert kept == {key: value for key, value in raw.items() if key != "profile"}


def test_the_kind_of_tokenizer_decides_its_keys(nemo_recipe: Make) -> None:
    assert parse_recipe(nemo_recipe()).tokenizer == NullTokenizer(kind="null", vocab_size=128255)
    hub = parse_recipe(nemo_recipe(tokenizer={"kind": "hub", "name": "meta-llama/Llama-3.1-405B"}))
    assert hub.tokenizer == HubTokenizer(kind="hub", name="meta-llama/Llama-3.1-405B")


@pytest.mark.parametrize(
    "key", ["program", "schema", "model", "profile", "load_checkpoint", "model_flops"]
)
def test_every_key_is_required(nemo_recipe: Make, key: str) -> None:
    raw = nemo_recipe()
    del raw[key]
    with pytest.raises(RefusedError, match=rf"^recipe: .*'{key}'"):
        parse_recipe(raw)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"program": "torch_pretrain"}, "recipe.program"),
        ({"schema": 2}, "recipe.schema"),
        ({"schema": True}, "recipe.schema"),
        ({"micro_bacth": 1}, "recipe"),
        ({"parallelism": {"tp": "8"}}, "recipe.parallelism.tp"),
        ({"parallelism": {"tp": 0}}, "recipe.parallelism.tp"),
        ({"parallelism": {"vp": 0}}, "recipe.parallelism.vp"),
        ({"parallelism": {"tp": 3}}, "recipe.parallelism"),
        ({"parallelism": {"pp": 1}}, "recipe.parallelism.vp"),
        (
            {"parallelism": {"tp": 1}},
            "recipe.parallelism.sequence_parallel",
        ),
        (
            {"global_batch": 6},
            "recipe.global_batch",
        ),
        ({"max_steps": 0}, "recipe.max_steps"),
        ({"recipe": "../x"}, "recipe.recipe"),
        ({"precision": {"plugin": "os.system"}}, "recipe.precision.plugin"),
        (
            {"comm_overlap": {"tp_comm_bootstrap_backend": "pmix"}},
            "recipe.comm_overlap.tp_comm_bootstrap_backend",
        ),
        ({"comm_overlap": {"userbuffers": ""}}, "recipe.comm_overlap.userbuffers"),
        ({"model_recipe": "../x"}, "recipe.model_recipe"),
        (
            {"model": {"attention_backend": "Flash"}},
            "recipe.model.attention_backend",
        ),
        ({"comm_overlap": {"wgrad_deferral_limit": 0}}, "recipe.comm_overlap.wgrad_deferral_limit"),
        (
            {"parallelism": {"pp": 1, "vp": None}},
            "recipe.comm_overlap.wgrad_deferral_limit",
        ),
        ({"tokenizer": {"kind": "bpe"}}, "recipe.tokenizer.kind"),
        ({"tokenizer": {"kind": "hub", "vocab_size": 1}}, "recipe.tokenizer"),
        ({"tokenizer": None}, "recipe.tokenizer"),
        ({"profile": {**PROFILE, "stop_step": 51}}, "recipe.profile"),
        ({"profile": {**PROFILE, "start_step": 50}}, "recipe.profile"),
        ({"profile": {**PROFILE, "ranks": [512]}}, "recipe.profile.ranks"),
        ({"profile": {**PROFILE, "ranks": []}}, "recipe.profile.ranks"),
        ({"profile": {**PROFILE, "ranks": "0-7"}}, "recipe.profile.ranks"),
        ({"profile": {**PROFILE, "ranks": [0, "1"]}}, "recipe.profile.ranks[1]"),
        ({"checkpoint": {"save_at_step": 51}}, "recipe.checkpoint.save_at_step"),
        ({"load_checkpoint": ""}, "recipe.load_checkpoint"),
        (
            {"model": {"hybrid_override_pattern": "M-*"}},
            "recipe.model.hybrid_override_pattern",
        ),
        ({"parallelism": {"ep": 2}}, "recipe.parallelism.ep"),
        ({"model": {"moe": {**EXPERTS, "moe_router_topk": 0}}}, "recipe.model.moe.moe_router_topk"),
        (
            {"model": {"moe": {**EXPERTS, "moe_layer_freq": [1, 0]}}},
            "recipe.model.moe.moe_layer_freq",
        ),
        ({"model": {"moe": EXPERTS}, "parallelism": {"ep": 3}}, "recipe.parallelism.ep"),
        ({"model": {"moe": EXPERTS}, "parallelism": {"ep": 8, "etp": 16}}, "recipe.parallelism"),
        ({"model": {"moe": {"num_moe_experts": 8}}}, "recipe.model.moe"),
        ({"overrides": []}, "recipe.overrides"),
    ],
)
def test_an_invalid_value_is_refused(
    nemo_recipe: Make, changes: dict[str, Any], place: str, wording: Callable[..., None]
) -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_recipe(nemo_recipe(**changes))
    assert refusal.value.place == place
    wording("nemo_pretrain", str(refusal.value))


def test_a_fault_names_its_file(nemo_recipe: Make, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(nemo_recipe(max_steps=-1)), encoding="utf-8")
    with pytest.raises(RefusedError) as refusal:
        read_recipe(file)
    assert refusal.value.place == f"{file}: recipe.max_steps"


def test_a_file_that_is_missing_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=os.strerror(errno.ENOENT)) as missing:
        read_recipe(tmp_path / "none.json")
    assert missing.value.place == str(tmp_path / "none.json")
    (tmp_path / "half.json").write_text("{", encoding="utf-8")
    with pytest.raises(RefusedError) as refusal:
        read_recipe(tmp_path / "half.json")
    assert refusal.value.place == str(tmp_path / "half.json")


def test_as_many_processes_as_gpus(nemo_recipe: Make, wording: Callable[..., None]) -> None:
    recipe = parse_recipe(nemo_recipe())
    check_world(recipe, Process(rank=511, world=512, local_rank=7))
    with pytest.raises(RefusedError) as refusal:
        check_world(recipe, Process(rank=0, world=1, local_rank=0))
    assert refusal.value.place == "environment"
    wording("nemo_pretrain", str(refusal.value))
