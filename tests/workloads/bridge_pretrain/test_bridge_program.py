# SPDX-License-Identifier: Apache-2.0
"""The Megatron-Bridge program as it is started, with a small library in place of the real one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import llmb_workloads
from llmb.judge.differences import where_it_ran
from llmb.measure.facts import facts_of
from llmb.measure.log_reader import read_log
from llmb_workloads.bridge_pretrain.recipe import fill_cache, parse_recipe
from llmb_workloads.bridge_pretrain.settings import put
from llmb_workloads.fields import RefusedError

LAUNCHED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "MARGIN",
    "CHOSEN",
)
LIBRARY = {
    "megatron/bridge/config.py": """
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Optional

print("imported with", os.environ.get("MARGIN"), os.environ.get("CHOSEN"))

class Backend(Enum):
    flash = 1
    fused = 2

@dataclass
class Model:
    num_layers: int = 32
    graphs: Literal["none", "local"] = "none"
    backend: Optional[Backend] = None
    overlap: Optional["Overlap"] = None

@dataclass
class Overlap:
    limit: Optional[int] = None
    rate: float = 0.5

@dataclass
class Container:
    model: Model = field(default_factory=Model)

def tiny_pretrain_config():
    return Container()

def flat_pretrain_config():
    config = Container()
    config.env_vars = {"MARGIN": 16, "CHOSEN": "function", "BUFFERS": True}
    return config
""",
    "megatron/bridge/training/gpt_step.py": "def forward_step(): ...\n",
    "megatron/bridge/training/pretrain.py": """
def pretrain(config, forward_step_func):
    print("trained", config.model.num_layers, forward_step_func.__name__)
""",
    "torch/__init__.py": "",
    "torch/distributed.py": """
def is_initialized():
    return True

def barrier():
    print("barrier")

def destroy_process_group():
    print("destroyed")
""",
    "megatron_bridge-0.6.0+abc.dist-info/METADATA": """\
Metadata-Version: 2.1
Name: megatron-bridge
Version: 0.6.0+abc
""",
}


def recipe(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "program": "bridge_pretrain",
        "schema": 1,
        "name": "tiny",
        "release": "26.08",
        "libraries": {"megatron-bridge": "0.6.0"},
        "base": "megatron.bridge.config:tiny_pretrain_config",
        "set": {"model.num_layers": 4},
        "overrides": {},
        "environment": {"MARGIN": "20", "CHOSEN": "recipe"},
        "hub": {},
        "nodes": 1,
        "gpus_per_node": 1,
    }
    return {**values, **changes}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in LIBRARY.items():
        file = tmp_path / "library" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path / "library"


def start(
    library: Path, raw: dict[str, Any], *flags: str, **variables: str
) -> tuple[int, str, str]:
    folder = library.parent
    (folder / "recipe.json").write_text(json.dumps(raw), encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    path = os.pathsep.join([str(library), str(Path(llmb_workloads.__file__).parent.parent)])
    argv = [sys.executable, "-m", "llmb_workloads.bridge_pretrain", "recipe.json", *flags]
    environment = {**own, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        argv, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_the_variables_of_the_function_come_before_the_library(library: Path) -> None:
    """Those of the user and the recipe win. The library is imported once more, with all of them."""
    raw = recipe(
        base="megatron.bridge.config:flat_pretrain_config",
        function_environment=True,
        environment={"MARGIN": "20"},
    )
    code, out, _ = start(library, raw, "--print")
    assert code == 0
    environment = json.loads(out)["environment"]
    assert environment == {"MARGIN": "20"}
    code, out, err = start(library, raw, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    assert (code, "imported with 20 None" in err) == (0, True), err
    assert out.count("imported with 20 function") == 1
    assert "trained 4 forward_step" in out


def test_a_run(library: Path) -> None:
    """The variables come before the library; one that is set stays; then it trains and ends the
    process group.
    """
    code, out, err = start(library, recipe(), CHOSEN="user")
    assert (code, err) == (0, "")
    first, opening, *rest = out.splitlines()
    assert first == "imported with 20 user"
    assert "tiny_pretrain_config" in opening
    assert "megatron-bridge 0.6.0+abc" in opening
    assert [line for line in rest if not line.startswith("llmb node")] == [
        "trained 4 forward_step",
        "barrier",
        "destroyed",
    ]
    written = json.loads((library.parent / "configuration.json").read_text(encoding="utf-8"))
    assert written["configuration"]["model"]["num_layers"] == 4
    assert written["environment"] == {"MARGIN": "20", "CHOSEN": "user"}


def test_another_patch_level_is_a_warning(library: Path) -> None:
    """It trains, and the log says it once, where llmb reads it as a condition of the run."""
    ranks = {"WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    raw = recipe(libraries={"megatron-bridge": "0.6.2"}, gpus_per_node=2)
    outputs = [start(library, raw, RANK=rank, **ranks) for rank in ("0", "1")]
    assert [(code, err) for code, _, err in outputs] == [(0, "")] * 2
    expected = "megatron-bridge 0.6.0+abc, the recipe is for 0.6.2 of image 26.08"
    warnings = [
        line for _, out, _ in outputs for line in out.splitlines() if "llmb warning" in line
    ]
    assert warnings == [f"llmb warning: {expected}"]
    log = library.parent / "log.out"
    log.write_text(outputs[0][1], encoding="utf-8")
    assert read_log(log).environment.warnings == (expected,)
    assert [*where_it_ran(facts_of(read_log(log)))] == [f"warning in the log: {expected}"]


def test_print_is_json_alone(library: Path) -> None:
    values = {"model.overlap": {"call": "megatron.bridge.config:Overlap", "with": {"limit": 2}}}
    code, out, _ = start(
        library, recipe(set=values, overrides={"model.overlap.rate": 1}), "--print"
    )
    model = json.loads(out)["configuration"]["model"]
    assert (code, model["overlap"]["limit"], model["overlap"]["rate"], model["num_layers"]) == (
        0,
        2,
        1,
        32,
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another release": ({"libraries": {"megatron-bridge": "0.3.1"}}, "0.3.1"),
    "another minor version": ({"libraries": {"megatron-bridge": "0.5.1"}}, "0.5.1"),
    "no library": ({"libraries": {"megatron-core": "0.19.0"}}, "megatron-core"),
    "no function": ({"base": "megatron.bridge.config:tiny_pretain_config"}, "tiny_pretrain_config"),
    "no module": ({"base": "megatron.bridge.recipes:tiny"}, "megatron.bridge.recipes"),
    "no setting": ({"overrides": {"model.num_layer": 2}}, "num_layers"),
    "no part": ({"overrides": {"modle.num_layers": 2}}, "model"),
    "no choice": ({"overrides": {"model.graphs": "locl"}}, "local"),
    "no member": ({"set": {"model.backend": "fusd"}}, "fused"),
    "text for a number": ({"set": {"model.num_layers": "4"}}, "int"),
    "truth for a number": ({"set": {"model.num_layers": True}}, "int"),
    "null for a number": ({"set": {"model.num_layers": None}}, "null"),
    "through nothing": ({"set": {"model.overlap.limit": 2}}, "overlap"),
    "no argument": (
        {"set": {"model.overlap": {"call": "megatron.bridge.config:Overlap", "with": {"l": 1}}}},
        "Overlap",
    ),
    "no form": ({"set": {"model.overlap": {"made": 1}}}, "call"),
    "other ranks": ({"gpus_per_node": 2}, "2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_line(library: Path, case: str) -> None:
    changes, word = REFUSED[case]
    code, out, err = start(library, recipe(**changes))
    assert code == 2
    assert "trained" not in out
    assert err.startswith("llmb error: ")
    assert err.count("\n") == 1
    assert word in err


def test_values_by_kind(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member by its name, a whole number for a float, null where it is allowed."""
    monkeypatch.syspath_prepend(str(library))
    import importlib

    module = importlib.import_module("megatron.bridge.config")
    config = module.tiny_pretrain_config()
    put(config, "model.backend", "fused", "here")
    put(config, "model.overlap", {"call": "megatron.bridge.config:Overlap", "with": {}}, "here")
    put(config, "model.overlap.rate", 1, "here")
    put(config, "model.overlap.limit", None, "here")
    put(config, "model.overlap", {"name": "megatron.bridge.config:Backend"}, "here")
    assert (config.model.backend, config.model.overlap) == (module.Backend.fused, module.Backend)
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"base": "no colon"}, "recipe.base"),
        ({"nodes": 0}, "recipe.nodes"),
        ({"set": []}, "recipe.set"),
    ],
)
def test_an_invalid_recipe_names_the_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_recipe(recipe(**changes))
    assert caught.value.place == place


def test_the_cache_of_the_hub_is_one_that_the_hub_client_reads(tmp_path: Path) -> None:
    """Its layout: refs/main names the snapshot. Filled twice, as by two ranks, it is the same."""
    (tmp_path / "asset").mkdir()
    (tmp_path / "asset" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "asset" / "tokenizer.json").write_text("[]", encoding="utf-8")
    for _ in range(2):
        cache = fill_cache({"owner/model": str(tmp_path / "asset")}, tmp_path)
    model = cache / "models--owner--model"
    revision = (model / "refs" / "main").read_text(encoding="utf-8")
    assert [path.name for path in model.rglob("*") if path.is_file()].count("config.json") == 1
    assert (model / "snapshots" / revision / "config.json").read_text(encoding="utf-8") == "{}"
    assert (model / "snapshots" / revision / "tokenizer.json").read_text("utf-8") == "[]"
    fill_cache({"owner/pinned@abc123": str(tmp_path / "asset")}, tmp_path)
    pinned = cache / "models--owner--pinned"
    assert (pinned / "snapshots" / "abc123" / "config.json").is_file()
    assert not (pinned / "refs").exists()
    with pytest.raises(RefusedError):
        fill_cache({"owner/other": str(tmp_path)}, tmp_path)
