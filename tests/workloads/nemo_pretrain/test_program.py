# SPDX-License-Identifier: Apache-2.0
"""The NeMo program as it is started, where there is no NeMo: it refuses in one line, and in
time.
"""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import llmb_workloads
from llmb_workloads.fields import RefusedError
from llmb_workloads.library import plain
from llmb_workloads.nemo_pretrain.build import assign, find, override, straggler_callback
from llmb_workloads.nemo_pretrain.recipe import NemoStragglers

Make = Callable[..., dict[str, Any]]
USAGE = "usage: python -m llmb_workloads.nemo_pretrain RECIPE.json [--print]\n"
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")


def start(*arguments: object, **variables: str) -> tuple[int, str, str]:
    own = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    environment = {
        **own,
        "PYTHONPATH": str(Path(llmb_workloads.__file__).parent.parent),
        **variables,
    }
    argv = [sys.executable, "-m", "llmb_workloads.nemo_pretrain", *map(str, arguments)]
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def recipe_file(nemo_recipe: Make, tmp_path: Path) -> Path:
    file = tmp_path / "recipe.json"
    file.write_text(
        json.dumps(
            nemo_recipe(
                nodes=1,
                gpus_per_node=2,
                global_batch=4,
                parallelism={"tp": 2, "pp": 1, "cp": 1, "vp": None},
                comm_overlap={"wgrad_deferral_limit": None},
            )
        ),
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize("arguments", [(), ("a.json", "b.json"), ("--help",), ("--print",)])
def test_usage(arguments: tuple[str, ...]) -> None:
    assert start(*arguments) == (2, "", USAGE)


def test_a_fault_in_the_file_is_one_line(tmp_path: Path, wording: Callable[..., None]) -> None:
    code, out, err = start(tmp_path / "none.json")
    assert (code, out) == (2, "")
    wording("nemo_pretrain", err)


def test_too_few_processes_are_refused_before_nemo_is_imported(
    recipe_file: Path, wording: Callable[..., None]
) -> None:
    code, _, err = start(recipe_file)
    assert code == 2
    wording("nemo_pretrain", err)


@pytest.mark.parametrize("names", [LAUNCHED[:3], LAUNCHED[3:]], ids=["torchrun", "srun"])
def test_without_nemo_it_says_so(
    recipe_file: Path, names: tuple[str, ...], wording: Callable[..., None]
) -> None:
    code, out, err = start(recipe_file, **dict(zip(names, ("1", "2", "1"), strict=True)))
    assert (code, out) == (2, "")
    wording("nemo_pretrain", err)
    assert err.count("\n") == 1


def test_print_needs_no_other_process(recipe_file: Path) -> None:
    code, out, err = start(recipe_file, "--print")
    assert (code, out) == (2, "")
    assert err.split()[2] == "nemo_toolkit"


class Thing:
    """In the place of one of NeMo's classes: takes any argument, as its strategy does."""

    def __init__(self, size: int = 1, **others: Any) -> None:
        self.size, self.others = size, others


@dataclass
class Config:
    """A fiddle configuration as far as the program looks at it."""

    __fn_or_cls__: Any
    __arguments__: dict[str, Any] = field(default_factory=dict)


def test_a_setting_that_a_class_lacks_is_refused_though_it_takes_any() -> None:
    config = Config(Thing)
    assign(config, size=2)
    assert config.size == 2  # type: ignore[attr-defined]
    with pytest.raises(RefusedError, match="'sise'"):
        assign(config, sise=3)


def test_a_name_that_a_module_lacks_gets_the_nearest_one() -> None:
    assert find("json", "loads") is json.loads
    with pytest.raises(RefusedError, match=r"'lodas'.*'loads'"):
        find("json", "lodas")


class Detector:
    """In the place of NVRx's StragglerDetectionCallback, with its arguments of 0.4."""

    def __init__(
        self,
        report_time_interval: float,
        calc_relative_gpu_perf: bool,
        calc_individual_gpu_perf: bool,
        num_gpu_perf_scores_to_print: int,
        gpu_relative_perf_threshold: float,
        gpu_individual_perf_threshold: float,
        stop_if_detected: bool,
        enable_ptl_logging: bool,
        profiling_interval: int = 1,
        logger_name: str | None = "nemo_logger.StragglerDetectionCallback",
    ) -> None:
        raise NotImplementedError


def test_the_straggler_detector_has_every_argument_and_never_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = {
        "nvidia_resiliency_ext": SimpleNamespace(),
        "nvidia_resiliency_ext.ptl_resiliency": SimpleNamespace(
            StragglerDetectionCallback=Detector
        ),
        "nemo_run": SimpleNamespace(Config=Config),
    }
    for name, module in parts.items():
        monkeypatch.setitem(sys.modules, name, module)
    callback = straggler_callback(NemoStragglers(report_interval=20.0))
    values = {name: value for name, value in vars(callback).items() if not name.startswith("__")}
    inspect.signature(Detector).bind(**values)
    assert callback.__fn_or_cls__ is Detector
    assert (values["report_time_interval"], values["stop_if_detected"]) == (20.0, False)


class Colour(Enum):
    """A choice of a setting."""

    red = 1
    green = 2


class Painted:
    """A class with settings, one of which is a configuration and one a member."""

    def __init__(self, thing: Any = None, colour: Colour = Colour.red) -> None: ...


def test_a_setting_is_overridden_by_its_path() -> None:
    inner = Config(Thing)
    config = Config(Painted)
    config.thing, config.colour = inner, Colour.red  # type: ignore[attr-defined]
    override(config, "thing.size", 7)
    override(config, "colour", "green")
    assert (inner.size, config.colour) == (7, Colour.green)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("thing.sise", 7, r"overrides\.thing\.sise: .*'size'"),
        ("thnig.size", 7, r"overrides\.thnig\.size: .*'thing'"),
        ("colour.red", 7, r"overrides\.colour\.red: colour is .* has no settings"),
        ("colour", "blue", r"overrides\.colour: .*red, green"),
    ],
)
def test_a_setting_that_cannot_be_overridden(path: str, value: Any, words: str) -> None:
    config = Config(Painted)
    config.thing, config.colour = Config(Thing), Colour.red  # type: ignore[attr-defined]
    with pytest.raises(RefusedError, match=words):
        override(config, path, value)


@dataclass
class Point:
    """A value within a configuration."""

    x: int


def test_a_configuration_is_shown_with_its_defaults() -> None:
    nested = Config(Thing, {"others": Config(Thing, {"size": 3})})
    assert plain({"a": [nested, Point(1), print, 1.5, None, {7}]}) == {
        "a": [
            {
                "_target_": f"{__name__}.Thing",
                "size": 1,
                "others": {"_target_": f"{__name__}.Thing", "size": 3},
            },
            {"_target_": f"{__name__}.Point", "x": 1},
            "builtins.print",
            1.5,
            None,
            "{7}",
        ]
    }
