# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the training program: tiny recipes, and a Python with torch."""

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import llmb_workloads
from llmb_testing.fork_server import ForkServer
from llmb_testing.ports import hold_port, number_of
from llmb_workloads.torch_pretrain import QUIET

PROGRAM = ("-m", "llmb_workloads.torch_pretrain")
MAMBA = {"heads": 8, "head_dim": 32, "expand": 2, "chunk": 32, "state": 32, "groups": 2}
TINY: dict[str, dict[str, Any]] = {
    "llama": {"layers": 4, "ffn": 384, "head_dim": None, "pattern": None, "mamba": None},
    "nemotron": {"layers": 4, "ffn": 512, "head_dim": None, "pattern": None, "mamba": None},
    "nemotronh": {"layers": 5, "ffn": 512, "head_dim": 32, "pattern": "M-*M-", "mamba": MAMBA},
}
COMMON = {"hidden": 128, "heads": 4, "kv_groups": 2, "vocab": 2048, "seq_length": 64}


@pytest.fixture(scope="session")
def raw_recipe() -> Callable[..., dict[str, Any]]:
    """Makes a decoded recipe of a tiny model; keyword arguments replace its keys."""

    def make(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
        recipe = {
            "program": "torch_pretrain",
            "model": {"architecture": architecture, **COMMON, **TINY[architecture]},
            "parallelism": {"tp": 1, "pp": 1, "cp": 1, "vp": None},
            "dtype": "fp32",
            "micro_batch": 2,
            "global_batch": 4,
            "max_steps": 50,
            "learning_rate": 3e-3,
            "seed": 1234,
            "model_flops": 5e8,
            "checkpoint": None,
            "profile": None,
        }
        assert not set(changes) - set(recipe)
        return copy.deepcopy(recipe | changes)

    return make


@pytest.fixture(scope="session")
def torch_python(torch_install: Path) -> str:
    """The Python of a venv with torch and transformers, which the tests' own venv lacks."""
    return str(torch_install / "venvs" / "torch" / "bin" / "python")


@pytest.fixture(scope="session")
def torch_environment() -> dict[str, str]:
    """The environment of such a Python: one thread, because tests run in parallel."""
    # Two processes with more threads than cores busy-wait for each other for seconds.
    package = Path(llmb_workloads.__file__).parent.parent
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "PYTHONPATH": str(package),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def torch_processes(
    torch_python: str, torch_environment: Mapping[str, str]
) -> Iterator[ForkServer]:
    """Runs programs in processes that need not import torch and transformers, which takes four
    seconds of CPU time.
    """
    names = ("llama", "nemotron", "nemotron_h")
    modules = [
        "llmb_workloads.torch_train",
        *(f"transformers.models.{name}.modeling_{name}" for name in names),
    ]
    with ForkServer(modules, {**QUIET, **torch_environment}, torch_python) as server:
        yield server


@pytest.fixture(scope="session")
def run_ranks(
    torch_processes: ForkServer, torch_environment: Mapping[str, str]
) -> Callable[..., list[tuple[int, str, str]]]:
    """Runs one process for each recipe, each with its own environment: exit codes, outputs,
    errors.
    """

    def run(
        folder: Path, recipes: list[object], environments: list[dict[str, str]]
    ) -> list[tuple[int, str, str]]:
        files = [folder / f"recipe{number}.json" for number in range(len(recipes))]
        for file, recipe in zip(files, recipes, strict=True):
            file.write_text(json.dumps(recipe), encoding="utf-8")

        def rank(file: Path, environment: dict[str, str]) -> tuple[int, str, str]:
            env = {**torch_environment, **environment}
            done = torch_processes.run([*PROGRAM, str(file)], env=env, cwd=folder, timeout=240)
            return done.returncode, done.stdout, done.stderr

        with ThreadPoolExecutor(len(files)) as ranks:
            return [*ranks.map(rank, files, environments)]

    return run


@pytest.fixture(scope="session")
def unused_port() -> Iterator[Callable[[], str]]:
    """Reserves free TCP ports until the ranks listen on them."""
    with contextlib.ExitStack() as held:
        yield lambda: str(number_of(held.enter_context(hold_port())))
