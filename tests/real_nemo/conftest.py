# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with the real NeMo: every row and some variants, planned by llmb and built
in one process.
"""

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import llmb_workloads
from llmb.builtin.plugins import builtin_plugins
from llmb.builtin.slurm.sbatch_script import Setting, render
from llmb.contract.entry import JobEntry
from llmb.contract.job import Job
from llmb.contract.launch import Stamp
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.contract.switches import Switches
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import prepare
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

# `make test-nemo` sets it. Without it nothing here is collected, so that `make test` stays fast.
NEMO_PYTHON = os.environ.get("LLMB_TEST_NEMO_PYTHON")
collect_ignore_glob = [] if NEMO_PYTHON else ["test_*.py"]

HERE = Path(__file__).parent
PROGRAMS = Path(llmb_workloads.__file__).parent.parent
LONGEST = 280  # seconds that a process may take: below pytest's limit for a test
GPU_TYPES = ("a100", "h100", "b200", "gb200")
PUBLISHED = ("15b", "340b", "8b", "70b", "405b", "405b-proxy", "56b")  # sizes that NVIDIA measured
CHECKPOINT = "/lustre/checkpoints/default--None=0.0000-epoch=0-consumed_samples=12800.0"

# In addition to the rows: requests with switches and overrides, with their GPU types.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "profile": ("h100", {"workload": "nemotron4_340b", "scales": (256,), "profile": True}),
    "profiled ranks": (
        "h100",
        {
            "workload": "nemotron4_15b",
            "scales": (16,),
            "profile": True,
            "switches": Switches(profile_start=20, profile_stop=25, profile_ranks="0,8"),
        },
    ),
    "save": (
        "h100",
        {"workload": "llama3.1_405b", "scales": (512,), "switches": Switches(save_checkpoint=True)},
    ),
    "save hybrid": (
        "h100",
        {"workload": "nemotronh_56b", "scales": (32,), "switches": Switches(save_checkpoint=True)},
    ),
    "load": (
        "b200",
        {
            "workload": "nemotron4_340b",
            "scales": (128,),
            "dtypes": ("bf16",),
            "switches": Switches(load_checkpoint=CHECKPOINT),
        },
    ),
    "hub llama": (
        "h100",
        {"workload": "llama3.1_8b", "scales": (8,), "switches": Switches(tokenizer="hub")},
    ),
    "hub hybrid": (
        "h100",
        {"workload": "nemotronh_56b", "scales": (32,), "switches": Switches(tokenizer="hub")},
    ),
    "current scaling": (
        "h100",
        {"workload": "nemotron4_15b", "scales": (16,), "switches": Switches(fp8="current")},
    ),
    "trace": (
        "h100",
        {"workload": "nemotron4_15b", "scales": (16,), "switches": Switches(nccl_trace=True)},
    ),
    "without PMIx": ("h100", {"workload": "llama3.1_70b", "scales": (64,), "mpi": "none"}),
    "overrides": (
        "h100",
        {
            "workload": "nemotron4_15b",
            "scales": (32,),
            "params": {
                "tp": (4,),
                "pp": (2,),
                "cp": (2,),
                "vp": (4,),
                "mbs": (1,),
                "gbs": (64,),
                "max_steps": (7,),
                "num_layers": (16,),
            },
        },
    ),
}

# Models that no row has but --set can request: Megatron must construct what the plan accepts.
CHANGED: tuple[dict[str, Any], ...] = (
    {"workload": "llama3.1_70b", "scales": (64,), "params": {"pp": (1,), "vp": (1,)}},
    {"workload": "llama3.1_405b", "scales": (512,), "params": {"pp": (16,), "vp": (4,)}},
    {"workload": "llama3.1_405b-proxy", "scales": (32,), "params": {"pp": (2,), "vp": (5,)}},
    {
        "workload": "nemotron4_15b",
        "scales": (16,),
        "params": {"tp": (1,), "cp": (2,), "pp": (2,), "vp": (2,)},
    },
    {"workload": "nemotronh_56b", "scales": (32,), "params": {"pp": (2,), "num_layers": (60,)}},
    {"workload": "nemotronh_56b", "scales": (32,), "switches": Switches(fp8="current")},
)

# Changes of a valid recipe of Llama 3.1 8b that the program refuses with NeMo.
REFUSED: dict[str, dict[str, Any]] = {
    "no such recipe": {"recipe": "llama31_9b"},
    "no such plugin": {"precision": {"plugin": "bf16_with_fp8_mixd"}},
    "no such buffers": {"comm_overlap": {"userbuffers": "userbuffers_bf16_h200"}},
    "no such model": {"model_recipe": "llama31_9b"},
    "no performance mode": {"recipe": "mamba2_130m"},
    "no pattern": {"model": {"hybrid_override_pattern": "-" * 32}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, the recipe.json that llmb would stage for it, and its Slurm script."""

    gpu: str
    job: Job
    recipe: dict[str, Any]
    script: str

    @property
    def label(self) -> str:
        """The name of the row in differences.yaml: workload, size, GPU type, dtype, GPUs,
        release.
        """
        job, release = self.job, self.recipe["release"] or "2.3.1"
        words = (
            job.workload.removeprefix("pretrain_"),
            job.model_size,
            self.gpu,
            job.dtype,
            job.scale,
            release,
        )
        return " ".join(map(str, words)) + (" strong" if job.switches.strong_scaling else "")

    @property
    def model_name(self) -> str:
        """The label without the scale: equal for rows with the same model and settings."""
        job, release = self.job, self.recipe["release"] or "2.3.1"
        words = (
            job.workload.removeprefix("pretrain_"),
            job.model_size,
            self.gpu,
            job.dtype,
            f"layers{job.trained.num_layers}",
        )
        ways = (
            f"tp{job.trained.tp}",
            f"pp{job.trained.pp}",
            f"cp{job.trained.cp}",
            f"vp{job.trained.vp or 1}",
        )
        return " ".join(
            (*words, *ways, release, *((job.switches.fp8,) if job.switches.fp8 else ()))
        )

    @property
    def exported(self) -> dict[str, str]:
        """The variables that the script exports, and how many local ranks share a NUMA node."""
        lines = re.findall(r"^export (\w+=.*)$", self.script.partition("\nsrun ")[0], re.MULTILINE)
        variables = dict(shlex.split(line)[0].split("=", 1) for line in lines)
        shared = re.search(r"llmb_numa=\$\(\(LLMB_LOCAL_RANK / (\d+)\)\)", self.script)
        return {**variables, **({"numactl": shared[1]} if shared is not None else {})}

    @property
    def set_in_rank(self) -> dict[str, str]:
        """Names of the variables that each rank sets before it starts the program; the values
        differ by rank.
        """
        ranks = self.script.partition("\nsrun ")[2]
        lines = re.findall(
            r"(?:^\s*|')export (\w+=.*)$|^for llmb_pair in (.*); do$", ranks, re.MULTILINE
        )
        return dict.fromkeys(
            re.findall(r"(?<!\S)(\w+)=", " ".join(map(" ".join, lines))), "in the rank"
        )

    @property
    def row(self) -> dict[str, Any]:
        """The values from which nvidia.py makes the command line of the launcher."""
        job = self.job
        sizes = {
            name: getattr(job.trained, name)
            for name in ("tp", "pp", "cp", "ep", "vp", "mbs", "gbs")
        }
        sizes |= {"nodes": job.nodes, "dtype": job.dtype}
        return {
            **sizes,
            "size": job.model_size,
            "gpu": self.gpu,
            "release": self.recipe["release"],
            "gpus_per_node": job.gpus_per_node,
            "steps": job.max_steps,
            "recipe": self.recipe,
        }


@pytest.fixture(scope="session")
def nemo_python() -> Path:
    """The Python of the environment with NeMo."""
    return Path(str(NEMO_PYTHON))


@pytest.fixture(scope="session")
def run_nemo() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of this folder, or the program, with NeMo's Python. Both output streams are in
    ``stdout``.
    """

    def run(
        *arguments: object, cwd: Path, stderr: int = subprocess.STDOUT, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(NEMO_PYTHON), *map(str, arguments)],
            env=environment(cwd) | variables,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=LONGEST,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def run_two() -> Callable[..., list[tuple[int, str]]]:
    """Runs a script as two ranks, as a cluster does, and returns exit codes and outputs."""

    def run(*arguments: object, cwd: Path, **variables: str) -> list[tuple[int, str]]:
        argv = [str(NEMO_PYTHON), *map(str, arguments)]
        common = {**environment(cwd), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", **variables}
        with tempfile.TemporaryFile("w+") as first, tempfile.TemporaryFile("w+") as second:
            outputs = (first, second)
            ranks = [
                subprocess.Popen(
                    argv,
                    env={**common, "RANK": rank, "LOCAL_RANK": rank},
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                for rank, output in zip("01", outputs, strict=True)
            ]
            try:
                codes = [rank.wait(timeout=LONGEST) for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait()
            for output in outputs:
                output.seek(0)
            return [(code, output.read()) for code, output in zip(codes, outputs, strict=True)]

    return run


def environment(home: Path) -> dict[str, str]:
    """The environment: no hub, no network, one thread."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PROGRAMS),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "False",
        "HOME": str(home),
    }


@cache
def cases() -> Mapping[str, Case]:
    """Every row that NeMo runs, and the variants, by name."""
    found = {
        f"{case.gpu} {case.job.experiment_name}": case
        for gpu in GPU_TYPES
        for case in planned(gpu, rows(gpu))
    }
    for name, (gpu, variant) in VARIANTS.items():
        request = {"dtypes": ("fp8",), **variant}
        mpi = request.pop("mpi", None)  # of the cluster, not of the job
        (found[name],) = planned(gpu, [job_entry(**request)], force=True, mpi=mpi)
    return found


def published() -> Mapping[str, Case]:
    """The rows that can be compared with NVIDIA's, by label."""
    return {
        case.label: case
        for name, case in cases().items()
        if name not in VARIANTS and case.job.model_size in PUBLISHED
    }


@cache
def models() -> Mapping[str, Case]:
    """A case for each model: of the published rows, of the size smoke, and some by --set."""
    own = [case for name, case in cases().items() if name not in VARIANTS]
    own += [case for gpu in GPU_TYPES for case in planned(gpu, rows(gpu, smoke=True))]
    own += planned(
        "h100", [job_entry(**{"dtypes": ("fp8",), **request}) for request in CHANGED], force=True
    )
    return {case.model_name: case for case in reversed(own)}


def rows(gpu: str, *, smoke: bool = False) -> list[JobEntry]:
    """One request for each row, dtype and scale of this GPU type: of the published sizes, or of
    smoke.
    """
    return [
        job_entry(
            workload=key,
            size=name,
            dtypes=(dtype,),
            scales=(scale,),
            switches=Switches(strong_scaling=True if row.strong_scaling else None),
        )
        for key, workload in load_plugins(builtin_plugins()).workloads().items()
        for name, size in workload.sizes.items()
        if size.nemo is not None and (name == "smoke") == smoke
        for row in size.rows
        if gpu in row.gpu
        for dtype in row.dtype
        for scale in row.scales.counts
    ]


def planned(
    gpu: str, requests: list[JobEntry], *, force: bool = False, mpi: str | None = None
) -> list[Case]:
    """The jobs of the requests on a Slurm cluster of this GPU type, with their staged recipes."""
    plugins = load_plugins(builtin_plugins())
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type=gpu,
        sections={"slurm": SlurmConfig(mpi=mpi)},
        kind=all_types()["slurm"],
    )
    plan = make_plan(requests, plugins.workloads(), config, force=force)
    items, faults = prepare(plan, plugins, config)
    assert not plan.faults
    assert not faults
    launches = [(item.job, item.launch) for item in items if item.launch is not None]
    assert len(launches) == len(requests)
    setting = Setting(config=config, programs="/programs", knows_segment=True)
    stamp = Stamp(id="<id>", timestamp="<timestamp>", directory="/run")
    return [
        Case(
            gpu=gpu,
            job=job,
            recipe=json.loads(launch.files[0].text),
            script=render(launch, stamp, setting),
        )
        for job, launch in launches
    ]


@pytest.fixture(scope="session")
def built(
    run_nemo: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """The values of NeMo's objects: `found` by case, and `untouched` by the name of NeMo's
    recipe.
    """
    folder = tmp_path_factory.mktemp("driver")
    sound = cases()["hub llama"].recipe
    recipes = {
        "found": {name: case.recipe for name, case in cases().items()},
        "compared": {label: case.row for label, case in published().items()},
        "refused": {
            name: sound
            | {
                key: sound[key] | new if isinstance(new, dict) else new
                for key, new in changes.items()
            }
            for name, changes in REFUSED.items()
        },
    }
    (folder / "recipes.json").write_text(json.dumps(recipes), encoding="utf-8")
    done = run_nemo(HERE / "driver.py", "recipes.json", "found.json", cwd=folder)
    assert done.returncode == 0, done.stdout[-4000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with the argument `row` once per row, and with `model` once per model."""
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", [name for name in cases() if name not in VARIANTS])
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", models())


@pytest.fixture(scope="session")
def cases_by_label() -> Mapping[str, Case]:
    """The rows, by their names in differences.yaml."""
    return published()


@pytest.fixture(scope="session")
def cases_by_model() -> Mapping[str, Case]:
    """A case for each model."""
    return models()


@pytest.fixture
def case(row: str) -> Case:
    """The plan of the row."""
    return cases()[row]


@pytest.fixture
def found(row: str, built: dict[str, Any]) -> dict[str, Any]:
    """The values of NeMo's objects of the row."""
    one: dict[str, Any] = built["found"][row]
    return one


@pytest.fixture
def variant(built: dict[str, Any]) -> Callable[[str], tuple[Job, dict[str, Any]]]:
    """Finds a variant by name: its job, and the values of NeMo's objects."""
    return lambda name: (cases()[name].job, built["found"][name])
