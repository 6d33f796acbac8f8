# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with the real Megatron-Bridge: every row, built by our program and by
NVIDIA's functions.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import llmb_workloads
from llmb.builtin.bridge.bridge_recipe import recipe
from llmb.builtin.bridge.bridge_rows import BridgeRow, BridgeSize, table_of
from llmb.builtin.bridge.script_settings import script_settings
from llmb.builtin.nvidia_images import releases
from llmb.builtin.plugins import builtin_plugins
from llmb.contract.gpus import known_types
from llmb.contract.job import Job, Training
from llmb.contract.model import ModelShape
from llmb.contract.spec import Workload
from llmb.contract.switches import Switches
from llmb.plugins.loader import load_plugins

# `make test-bridge` sets it: an interpreter for each release, the oldest first.
PYTHONS = os.environ.get("LLMB_TEST_BRIDGE_PYTHONS", "").split()
collect_ignore_glob = [] if PYTHONS else ["test_*.py"]

HERE = Path(__file__).parent
PROGRAMS = Path(llmb_workloads.__file__).parent.parent
LONGEST = 280  # seconds that a process may take: below pytest's limit for a test
VERSIONS = ("0.3.1", "0.4.2", "0.5.1", "0.6.0")

Record = Mapping[str, dict[str, dict[str, str | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row on one GPU count with the recipe that llmb stages for it."""

    label: str
    release: str
    version: str
    gpu: str
    gpus: int
    size: BridgeSize
    row: BridgeRow
    #: The trained model, with the layers and the vocabulary of the row.
    shape: ModelShape
    recipe: dict[str, Any]


@cache
def record(version: str) -> Record:
    """What NVIDIA's scripts configure, by row: `base`, `changed` and `environment`."""
    raw: dict[str, Any] = json.loads(
        (HERE / f"recorded-{version}.json").read_text(encoding="utf-8")
    )
    del raw["megatron-bridge"]
    parts = ("base", "changed", "environment")
    rows = {label: row for label, row in raw.items() if not label.endswith(" *")}
    return {
        label: {part: {**raw[f"{label.split()[0]} *"][part], **row[part]} for part in parts}
        for label, row in rows.items()
    }


def bridge_sizes() -> list[tuple[Workload, str, BridgeSize]]:
    """Every size that has rows."""
    found = load_plugins(builtin_plugins()).workloads().values()
    tables = [(workload, table_of(workload)) for workload in found if workload.bridge is not None]
    return [
        (workload, name, size) for workload, table in tables for name, size in table.sizes.items()
    ]


def job_of(
    workload: Workload, name: str, row: BridgeRow, *, gpu: str, scale: int, release: str, **own: Any
) -> Job:
    """The job of a row as llmb plans it."""
    model, gbs = workload.sizes[name].trained_model, row.batch(scale)
    model = replace(model, seq_length=row.seq_length or model.seq_length)
    assert gbs is not None
    assert row.mbs is not None
    dp = scale // (row.tp * row.pp * row.cp)
    training = Training(
        model=model,
        tp=row.tp,
        pp=row.pp,
        cp=row.cp,
        vp=row.vp,
        ep=row.ep,
        etp=row.etp or 1,
        dp=dp,
        mbs=row.mbs,
        gbs=gbs,
        ga=gbs // (row.mbs * dp),
        seq_length=model.seq_length,
        num_layers=row.layers or model.layers,
        learning_rate=3e-4,
    )
    each = min(known_types()[gpu].gpus_per_node, scale)
    values = {
        "repeat": 1,
        "profile": False,
        "env": {},
        "max_steps": 50,
        "time_limit": 1800,
        "image": None,
    }
    return Job(
        workload=workload.key,
        model_size=name,
        gpu_type=gpu,
        scale=scale,
        nodes=scale // each,
        gpus_per_node=each,
        experiment_name=name,
        training=training,
        framework="bridge",
        release=release,
        **{**values, **own},
    )


def recipe_of(
    workload: Workload, job: Job, size: BridgeSize, row: BridgeRow, gpu: str
) -> dict[str, Any]:
    """The recipe that llmb stages for a job."""
    release, count = job.release or "", row.count(job.scale)
    scripted = script_settings(workload, release, size.model, gpu=gpu, dtype=job.dtype, count=count)
    return recipe(job, size, row, releases()[release], gpu, scripted)


@cache
def cases() -> Mapping[str, Case]:
    """Every row of every release on each of its GPU counts, by version and label."""
    found = {}
    for workload, name, size in bridge_sizes():
        for release, rows in size.rows.items():
            for row in rows:
                for gpu, dtype, scale in (
                    (gpu, dtype, scale)
                    for gpu in row.gpu
                    for dtype in row.dtype
                    for scale in row.scales.counts
                ):
                    case = case_of(
                        workload, name, row, gpu=gpu, dtype=dtype, scale=scale, release=release
                    )
                    found[f"{case.version} {case.label}"] = case
    return found


def case_of(
    workload: Workload,
    name: str,
    row: BridgeRow,
    *,
    gpu: str,
    dtype: str,
    scale: int,
    release: str,
) -> Case:
    """The case of a row on ``scale`` GPUs."""
    size = table_of(workload).sizes[name]
    job = job_of(workload, name, row, gpu=gpu, dtype=dtype, scale=scale, release=release)
    return Case(
        label=f"{'smoke ' if size.cut else ''}{size.model} {gpu} {dtype} {scale}",
        release=release,
        version=releases()[release].bridge,
        gpu=gpu,
        gpus=scale,
        size=size,
        row=row,
        shape=job.trained.model,
        recipe=recipe_of(workload, job, size, row, gpu),
    )


def case_at(version: str, label: str) -> Case | None:
    """The case of a GPU count that may be none of a row: with the row that llmb selects for it."""
    model, gpu, dtype, gpus = label.split()
    release = next(name for name, known in releases().items() if known.bridge == version)
    for workload, name, size in bridge_sizes():
        row = size.row(release, gpu, dtype, int(gpus))
        if size.model == model and not size.cut and row is not None:
            return case_of(
                workload, name, row, gpu=gpu, dtype=dtype, scale=int(gpus), release=release
            )
    return None


@pytest.fixture
def switched() -> Callable[..., dict[str, Any]]:
    """Returns the recipe of the first row of the smallest size in a release with switches."""

    def make(version: str, **switches: Any) -> dict[str, Any]:
        workload, name, size = next(
            found for found in bridge_sizes() if found[2].cut and found[2].model == "llama3_8b"
        )
        release = next(release for release in size.rows if releases()[release].bridge == version)
        row = size.rows[release][0]
        gpu, dtype, scale = row.gpu[0], row.dtype[0], row.scales.counts[0]
        job = job_of(
            *(workload, name, row),
            gpu=gpu,
            dtype=dtype,
            scale=scale,
            release=release,
            switches=Switches(**switches),
        )
        return recipe_of(workload, job, size, row, gpu)

    return make


def with_batch(case: Case, gbs: int) -> Case:
    """The case with another global batch, as by --set gbs."""
    values = {**case.recipe["set"], "train.global_batch_size": gbs}
    return replace(case, recipe={**case.recipe, "set": values})


@pytest.fixture(scope="session")
def planned_job() -> Callable[..., Job]:
    """The job of a row as llmb plans it."""
    return job_of


@pytest.fixture(scope="session")
def run_bridge() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of this folder, or the program, with the Python of one release. Both streams
    are in ``stdout``.
    """

    def run(
        version: str, *arguments: object, cwd: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        python = PYTHONS[VERSIONS.index(version)]
        return subprocess.run(
            [python, "-W", "ignore", *map(str, arguments)],
            env={**environment(cwd), **variables},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST,
            check=False,
        )

    return run


def environment(home: Path) -> dict[str, str]:
    """The environment of a process: no network, one thread."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PROGRAMS),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(home),
    }


@pytest.fixture(scope="session")
def build(
    run_bridge: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """Builds rows on one side, "ours" or "theirs", in a process of its own, and returns what
    driver.py writes.
    """

    def built(side: str, version: str, rows: Mapping[str, Any]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(side)
        (folder / "work").mkdir()
        (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        done = run_bridge(
            version, HERE / "driver.py", side, "../rows.json", "../found.json", cwd=folder / "work"
        )
        assert done.returncode == 0, done.stdout[-4000:]
        found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        return found

    return built


@pytest.fixture(scope="session")
def construct(
    run_bridge: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """Returns what construct.py makes of rows."""

    def constructed(version: str, rows: Mapping[str, Any]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("construct")
        (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        done = run_bridge(version, HERE / "construct.py", "rows.json", "found.json", cwd=folder)
        assert done.returncode == 0, done.stdout[-4000:]
        found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        return found

    return constructed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with the argument `version` once per release."""
    if "version" in metafunc.fixturenames:
        metafunc.parametrize("version", VERSIONS, scope="session")


@pytest.fixture(scope="session")
def by_version() -> Callable[[str], dict[str, Case]]:
    """The cases of one release that are NVIDIA's rows, by label."""
    return lambda version: {
        case.label: case for case in cases().values() if case.version == version
    }


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Record]:
    """The record of one release."""
    return record


@pytest.fixture(scope="session")
def rebatch() -> Callable[[Case, int], Case]:
    """``with_batch``."""
    return with_batch


@pytest.fixture(scope="session")
def planned_at() -> Callable[[str, str], Case | None]:
    """``case_at``."""
    return case_at
