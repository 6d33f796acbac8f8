# SPDX-License-Identifier: Apache-2.0
"""A NeMo recipe is read whole, or refused with file, key and fix."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.nemo_pretrain.recipe import HubTokenizer, NullTokenizer, check_world, parse_recipe, read_recipe
from llmb_workloads.world import Place

Make = Callable[..., dict[str, Any]]
PROFILE = {"start_step": 45, "stop_step": 50, "ranks": [0, 1, 511]}


def test_a_recipe_keeps_every_value(nemo_recipe: Make) -> None:
    raw = nemo_recipe(profile=PROFILE, checkpoint={"save_at_step": 50}, load_checkpoint="/a/b")
    kept = dataclasses.asdict(parse_recipe(raw))
    assert kept.pop("profile") == {**PROFILE, "ranks": (0, 1, 511)}
    assert kept == {key: value for key, value in raw.items() if key != "profile"}


def test_the_kind_of_tokenizer_decides_its_keys(nemo_recipe: Make) -> None:
    assert parse_recipe(nemo_recipe()).tokenizer == NullTokenizer(kind="null", vocab_size=128255)
    hub = parse_recipe(nemo_recipe(tokenizer={"kind": "hub", "name": "meta-llama/Llama-3.1-405B"}))
    assert hub.tokenizer == HubTokenizer(kind="hub", name="meta-llama/Llama-3.1-405B")


@pytest.mark.parametrize("key", ["program", "schema", "model", "profile", "load_checkpoint", "model_flops"])
def test_every_key_must_be_there(nemo_recipe: Make, key: str) -> None:
    raw = nemo_recipe()
    del raw[key]
    with pytest.raises(RefusedError, match=rf"^recipe: has no key '{key}'; add it"):
        parse_recipe(raw)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": "torch_pretrain"}, "recipe.program: is 'torch_pretrain'; choose one of nemo_pretrain"),
        ({"schema": 2}, "recipe.schema: is 2; choose one of 1"),
        ({"schema": True}, "recipe.schema: is True; choose one of 1"),
        ({"micro_bacth": 1}, "recipe: has an unknown key 'micro_bacth'; did you mean 'micro_batch'?"),
        ({"parallelism": {"tp": "8"}}, "recipe.parallelism.tp: is '8'; write a whole number"),
        ({"parallelism": {"tp": 0}}, "recipe.parallelism.tp: is 0; write 1 or more"),
        ({"parallelism": {"vp": 0}}, "recipe.parallelism.vp: is 0; write 1 or more"),
        ({"parallelism": {"tp": 3}}, "recipe.parallelism: tp·pp·cp = 48 does not divide 512 GPUs; choose other sizes"),
        ({"parallelism": {"pp": 1}}, "recipe.parallelism.vp: is 8 without a pipeline; write null, or a pp above 1"),
        (
            {"parallelism": {"tp": 1}},
            "recipe.parallelism.sequence_parallel: is true without tensor parallelism; write false, or a tp above 1",
        ),
        (
            {"global_batch": 6},
            "recipe.global_batch: is 6, no multiple of micro_batch times 4 model replicas; choose a multiple of 4",
        ),
        ({"max_steps": 0}, "recipe.max_steps: is 0; write 1 or more"),
        ({"recipe": "../x"}, "recipe.recipe: is '../x'; write a name of letters, digits and underscores"),
        ({"precision": {"plugin": "os.system"}}, "recipe.precision.plugin: is 'os.system'; write a name of"),
        (
            {"comm_overlap": {"tp_comm_bootstrap_backend": "pmix"}},
            "recipe.comm_overlap.tp_comm_bootstrap_backend: is 'pmix'; choose one of nccl, gloo, mpi",
        ),
        ({"comm_overlap": {"userbuffers": ""}}, "recipe.comm_overlap.userbuffers: is ''; write a name of"),
        ({"model_recipe": "../x"}, "recipe.model_recipe: is '../x'; write a name of letters, digits and underscores"),
        (
            {"model": {"attention_backend": "Flash"}},
            "recipe.model.attention_backend: is 'Flash'; choose one of flash, fused, unfused, local, auto",
        ),
        ({"comm_overlap": {"wgrad_deferral_limit": 0}}, "recipe.comm_overlap.wgrad_deferral_limit: is 0; write 1 or"),
        (
            {"parallelism": {"pp": 1, "vp": None}},
            "recipe.comm_overlap.wgrad_deferral_limit: is 50 without a pipeline, which would never compute the "
            "gradients that wait; write null, or a pp above 1",
        ),
        ({"tokenizer": {"kind": "bpe"}}, "recipe.tokenizer.kind: is 'bpe'; choose one of null, hub"),
        ({"tokenizer": {"kind": "hub", "vocab_size": 1}}, "recipe.tokenizer: has an unknown key 'vocab_size'"),
        ({"tokenizer": None}, "recipe.tokenizer: holds None; write an object in braces"),
        ({"profile": {**PROFILE, "stop_step": 51}}, "recipe.profile: steps 45 to 51 do not lie within 50 steps"),
        ({"profile": {**PROFILE, "start_step": 50}}, "recipe.profile: steps 50 to 50 do not lie within 50 steps"),
        ({"profile": {**PROFILE, "ranks": [512]}}, "recipe.profile.ranks: are [512] of 512 ranks; choose some from 0"),
        ({"profile": {**PROFILE, "ranks": []}}, "recipe.profile.ranks: are [] of 512 ranks"),
        ({"profile": {**PROFILE, "ranks": "0-7"}}, "recipe.profile.ranks: is '0-7'; write a list in brackets"),
        ({"profile": {**PROFILE, "ranks": [0, "1"]}}, "recipe.profile.ranks[1]: is '1'; write a whole number"),
        ({"checkpoint": {"save_at_step": 51}}, "recipe.checkpoint.save_at_step: is 51 of 50 steps; choose one from 1"),
        ({"load_checkpoint": ""}, "recipe.load_checkpoint: is empty; write the folder above 'weights', or null"),
        (
            {"model": {"hybrid_override_pattern": "M-*"}},
            "recipe.model.hybrid_override_pattern: has 3 letters for 126 layers; write one letter for each layer",
        ),
    ],
)
def test_what_no_run_could_have_is_refused(nemo_recipe: Make, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_recipe(nemo_recipe(**changes))
    assert str(refusal.value).startswith(message)


def test_a_fault_names_its_file(nemo_recipe: Make, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(nemo_recipe(max_steps=-1)), encoding="utf-8")
    with pytest.raises(RefusedError, match=r"/recipe\.json: recipe\.max_steps: is -1; write 1 or more$"):
        read_recipe(file)


def test_a_file_that_is_missing_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"none\.json: cannot be read \(No such file or directory\)"):
        read_recipe(tmp_path / "none.json")
    (tmp_path / "half.json").write_text("{", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"half\.json: is not JSON"):
        read_recipe(tmp_path / "half.json")


def test_as_many_processes_as_gpus(nemo_recipe: Make) -> None:
    recipe = parse_recipe(nemo_recipe())
    check_world(recipe, Place(rank=511, world=512, local_rank=7))
    with pytest.raises(RefusedError) as refusal:
        check_world(recipe, Place(rank=0, world=1, local_rank=0))
    assert str(refusal.value) == (
        "environment: ranks started: 1, the recipe is for 64 × 8 GPUs; "
        "start 512 processes, one for each GPU, with srun or torchrun"
    )
