# SPDX-License-Identifier: Apache-2.0
"""Tests of the dry run: the jobs with every number on any cluster type, and lists that are checked
whole.
"""

import csv
import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]

FIELDS = [
    "workload",
    "model_size",
    "dtype",
    "gpu_type",
    "scale",
    "repeat",
    "profile",
    "env",
    "tp",
    "pp",
    "cp",
    "vp",
    "ep",
    "etp",
    "dp",
    "mbs",
    "gbs",
    "ga",
    "seq_length",
    "num_layers",
    "max_steps",
    "nodes",
    "gpus_per_node",
    "time_limit",
    "image",
    "experiment_name",
    "script",
    "estimate",
]

IMAGE = "nvcr.io/nvidia/nemo:25.04.01"
RUNAI = {
    "base_url": "https://host/api/v1",
    "project": "p",
    "pvc": {"name": "w", "path": "/w", "claim": "c"},
}

# For each workload: a size, dtype and scale, and what must come of it on H100s.
PUBLISHED: dict[str, dict[str, Any]] = {
    "pretrain_nemotron4 15b fp8 16": {
        "tp": 2,
        "pp": 1,
        "cp": 1,
        "vp": None,
        "ep": 1,
        "etp": 1,
        "dp": 8,
        "mbs": 2,
        "gbs": 64,
        "ga": 4,
        "seq_length": 4096,
        "num_layers": 32,
        "max_steps": 50,
        "nodes": 2,
        "gpus_per_node": 8,
        "time_limit": "00:20:00",
        "experiment_name": "pretrain_nemotron4_15b_fp8_gpus16_tp2_pp1_cp1_vpNone_mbs2_gbs64",
    },
    "pretrain_nemotron4 340b bf16 512": {
        "tp": 8,
        "pp": 8,
        "cp": 1,
        "vp": 12,
        "ep": 1,
        "etp": 1,
        "dp": 8,
        "mbs": 1,
        "gbs": 128,
        "ga": 16,
        "seq_length": 4096,
        "num_layers": 96,
        "max_steps": 50,
        "nodes": 64,
        "gpus_per_node": 8,
        "time_limit": "00:20:00",
        "experiment_name": "pretrain_nemotron4_340b_bf16_gpus512_tp8_pp8_cp1_vp12_mbs1_gbs128",
    },
    "pretrain_llama3.1 70b fp8 64": {
        "tp": 4,
        "pp": 8,
        "cp": 1,
        "vp": 5,
        "ep": 1,
        "etp": 1,
        "dp": 2,
        "mbs": 1,
        "gbs": 128,
        "ga": 64,
        "seq_length": 8192,
        "num_layers": 80,
        "max_steps": 50,
        "nodes": 8,
        "gpus_per_node": 8,
        "time_limit": "00:30:00",
        "experiment_name": "pretrain_llama3.1_70b_fp8_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs128",
    },
    "pretrain_llama3.1 70b bf16 64": {
        "tp": 4,
        "pp": 4,
        "cp": 2,
        "vp": 5,
        "ep": 1,
        "etp": 1,
        "dp": 2,
        "mbs": 1,
        "gbs": 128,
        "ga": 64,
        "seq_length": 8192,
        "num_layers": 80,
        "max_steps": 50,
        "nodes": 8,
        "gpus_per_node": 8,
        "time_limit": "00:30:00",
        "experiment_name": "pretrain_llama3.1_70b_bf16_gpus64_tp4_pp4_cp2_vp5_mbs1_gbs128",
    },
    "pretrain_llama3.1 405b-proxy bf16 32": {
        "tp": 8,
        "pp": 1,
        "cp": 2,
        "vp": None,
        "ep": 1,
        "etp": 1,
        "dp": 2,
        "mbs": 1,
        "gbs": 64,
        "ga": 32,
        "seq_length": 8192,
        "num_layers": 8,
        "max_steps": 50,
        "nodes": 4,
        "gpus_per_node": 8,
        "time_limit": "00:30:00",
        "experiment_name": "pretrain_llama3.1_405b-proxy_bf16_gpus32_tp8_pp1_cp2_vpNone_mbs1_gbs64",
    },
    "pretrain_nemotronh 56b fp8 2048": {
        "tp": 8,
        "pp": 1,
        "cp": 1,
        "vp": None,
        "ep": 1,
        "etp": 1,
        "dp": 256,
        "mbs": 1,
        "gbs": 6144,
        "ga": 24,
        "seq_length": 8192,
        "num_layers": 118,
        "max_steps": 50,
        "nodes": 256,
        "gpus_per_node": 8,
        "time_limit": "00:25:00",
        "experiment_name": "pretrain_nemotronh_56b_fp8_gpus2048_tp8_pp1_cp1_vpNone_mbs1_gbs6144",
    },
}


def tree(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def dry(llmb_here: Command) -> Callable[..., list[dict[str, Any]]]:
    """The jobs of a dry run that succeeds."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        done = llmb_here(*arguments, "--dry-run", "--format", "json")
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert list(data) == ["jobs", "schema_version", "session"]
        jobs: list[dict[str, Any]] = data["jobs"]
        return jobs

    return run


Dry = Callable[..., list[dict[str, Any]]]


@pytest.mark.parametrize(
    ("cluster_type", "keys", "arguments", "gpus"),
    [
        ("slurm", {}, ("-w", "microbench_gemm", "--scale", "1"), 8),
        ("slurm", {}, ("-w", "microbench_gemm", "--scale", "8"), 8),
        ("slurm", {}, ("-w", "nemotron4_15b", "--scale", "16", "--gpus-per-node", "4"), 32),
        # of a type with one processor to a node
        (
            "slurm",
            {"slurm": {"container": "none"}},
            *(("-w", "microbench_gemm", "--scale", "2", "--gpus-per-node", "2"), 2),
        ),
        ("runai", {"runai": RUNAI}, ("-w", "microbench_gemm", "--scale", "1"), 1),
        ("local", {}, ("-w", "microbench_gemm", "--scale", "1"), 1),
    ],
)
def test_gpu_hours_are_of_the_nodes_that_slurm_gives_to_the_job_alone(
    cluster_type: str,
    keys: dict[str, Any],
    arguments: tuple[str, ...],
    gpus: int,
    cluster: Cluster,
    dry: Dry,
) -> None:
    install = cluster(cluster_type, "cpu" if gpus == 2 else "h100", **keys)
    (job,) = dry(
        *("submit", *arguments, "--dtype", "bf16", "--time-limit", "00:30:00"),
        *("--install", install),
    )
    assert job["estimate"]["most_gpu_hours"] == pytest.approx(gpus / 2)
    if job["estimate"]["from"] == "limit":
        assert job["estimate"]["gpu_hours"] == pytest.approx(gpus / 2)


@pytest.mark.parametrize("row", PUBLISHED)
@pytest.mark.parametrize(
    ("cluster_type", "keys", "image"),
    [
        ("slurm", {}, IMAGE),
        ("slurm", {"slurm": {"container": "none"}}, None),
        ("runai", {"runai": RUNAI}, IMAGE),
    ],
)
def test_a_job_of_each_workload_on_h100(
    row: str, cluster_type: str, keys: dict[str, Any], image: str | None, cluster: Cluster, dry: Dry
) -> None:
    workload, size, dtype, scale = row.split()
    install = cluster(cluster_type, "h100", **keys)
    (job,) = dry(
        "single",
        "-w",
        workload,
        "-s",
        size,
        "--dtype",
        dtype,
        "--scale",
        scale,
        "--install",
        install,
    )
    assert list(job) == [*FIELDS, "framework"]
    assert job.pop("framework") == "nemo"
    assert job.pop("script") is None or isinstance(job, dict)
    assert set(job.pop("estimate")) == {*("gpu_hours", "most_gpu_hours", "from", "release")}
    assert job == {
        "workload": workload,
        "model_size": size,
        "dtype": dtype,
        "gpu_type": "h100",
        "scale": int(scale),
        "repeat": 1,
        "profile": False,
        "env": {},
        "image": image,
        **PUBLISHED[row],
    }


@pytest.mark.parametrize(
    "workload", ["pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh"]
)
def test_a_tiny_job_of_each_workload_on_this_machine(
    workload: str, cluster: Cluster, dry: Dry
) -> None:
    install = cluster("local", "cpu")
    (job,) = dry(
        "single",
        "-w",
        workload,
        "-s",
        "tiny",
        "--dtype",
        "fp32",
        "--scale",
        2,
        "--install",
        install,
    )
    assert list(job) == FIELDS
    assert (job["gpu_type"], job["nodes"], job["gpus_per_node"], job["image"]) == (
        "cpu",
        1,
        2,
        None,
    )
    assert (job["dp"], job["gbs"], job["ga"], job["vp"]) == (2, 8, 2, None)
    assert job["experiment_name"] == f"{workload}_tiny_fp32_gpus2_tp1_pp1_cp1_vpNone_mbs2_gbs8"
    script = job["script"]
    assert job["experiment_name"] in script
    assert "<id>" in script
    assert "_<timestamp>/" in script
    assert str(install) in script


def test_a_dry_run_writes_nothing_and_needs_nothing_installed(
    cluster: Cluster, llmb_run: Command, home: Path, wording: Callable[..., None]
) -> None:
    install = cluster("local", "cpu")
    before = tree(install), tree(home)
    done = llmb_run(
        "submit-all", "--max-scale", 4, "--install", install, "--dry-run", PATH="/nonexistent"
    )
    assert done.returncode == 0
    assert (tree(install), tree(home)) == before
    wording("submit-all", done.stderr)
    assert done.stdout.count("pretrain_nemotronh") == 6


@pytest.mark.parametrize("fmt", ["json", "csv"])
def test_nothing_but_data_on_stdout(
    fmt: str, cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    install = cluster(slurm={"account": "a"})
    done = llmb_here(
        "single",
        "-w",
        "nemotron4",
        "--scale",
        4096,
        "--repeats",
        3,
        "--install",
        install,
        "-d",
        "--format",
        fmt,
    )
    wording("single", done.stderr)
    if fmt == "json":
        assert [job["repeat"] for job in json.loads(done.stdout)["jobs"]] == [1, 2, 3]
    else:
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        assert list(rows[0]) == [*FIELDS[:-2], "framework"]
        assert [row["repeat"] for row in rows] == ["1", "2", "3"]


def test_a_table_for_people_with_totals(
    cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--repeats", 3, "--install", cluster(), "-d"
    )
    assert [line.split()[:7] for line in done.stdout.splitlines()[2:]] == [
        ["pretrain_nemotron4", "15b", "fp8", "h100", "nemo", "16", "1-3"]
    ]
    wording("single", done.stderr)


def test_a_table_in_markdown(cluster: Cluster, llmb_here: Command) -> None:
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--install", cluster(), "-d", "--format", "md"
    )
    assert done.stdout.startswith("| Workload")
    assert len(done.stdout.splitlines()) == 3


def test_a_single_job_of_defaults_takes_size_and_dtype_of_the_workload(
    cluster: Cluster, dry: Dry
) -> None:
    install = cluster()
    (job,) = dry("single", "-w", "nemotron-h", "--scale", 32, "--install", install)
    assert (job["model_size"], job["dtype"]) == ("56b", "fp8")
    (job,) = dry("single", "-w", "nemotron4_340b", "--scale", 256, "--install", install)
    assert (job["model_size"], job["dtype"]) == ("340b", "fp8")


def test_the_layers_of_the_environment(cluster: Cluster, dry: Dry, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("""
pretrain_nemotron4_15b:
  scales: [16]
  dtypes: fp8
  defaults: {env: {C: list, D: list, E: list}}
  tasks:
    - overrides: {env: {D: task, E: task}}
""")
    install = cluster(
        environment=dict.fromkeys("ABCDE", "cluster"),
        workloads={
            "config": {"pretrain_nemotron4": {"environment": dict.fromkeys("BCDE", "workload")}}
        },
    )
    (job,) = dry(
        "submit-all",
        jobs,
        "--env",
        "E=command line",
        "--env",
        "F=a=b",
        "--env",
        "G=",
        "--install",
        install,
    )
    assert job["env"] == {
        "A": "cluster",
        "B": "workload",
        "C": "list",
        "D": "task",
        "E": "command line",
        "F": "a=b",
        "G": "",
    }


def test_set_changes_the_job_and_its_name(cluster: Cluster, dry: Dry) -> None:
    (job,) = dry(
        "single",
        "-w",
        "nemotron4",
        "--scale",
        16,
        "--set",
        "tp=4",
        "--set",
        "gbs=128",
        "--set",
        "max_steps=10",
        "--install",
        cluster(),
    )
    assert (job["tp"], job["dp"], job["gbs"], job["ga"], job["max_steps"]) == (4, 4, 128, 16, 10)
    assert (
        job["experiment_name"]
        == "pretrain_nemotron4_15b_fp8_gpus16_tp4_pp1_cp1_vpNone_mbs2_gbs128_steps10"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--env", "HF_TOKEN=hf_abc"),
        ("--env", "NOVALUE"),
        ("--env", "X", "--env", "HF_TOKEN=1", "--set", "tp", "--set", "xp=1", "--set", "fp8=x"),
        ("--set", "tpp=2"),
        ("--set", "tp=0"),
        ("--set", "tp=8.0"),
        ("--set", "max_steps="),
        ("--env", "WORLD_SIZE=3"),
        ("--env", "1X=3"),
        ("--gpus-per-node", "16"),
        ("--image", "word"),
        ("-p", "--profile-ranks", "0-7000"),
        ("--set", "tp=²"),
        ("--set", "tp=3"),
        ("--set", "tp=3", "--force"),
        ("-s", "16b"),
        ("--dtype", "fp9"),
        ("--gpu-type", "h200"),
        ("--strong-scaling",),
    ],
)
def test_a_wrong_value_ends_2_with_the_fix(
    arguments: tuple[str, ...], cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    install = cluster(slurm={"gres": 8})
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--install", install, "-d", *arguments
    )
    assert done.returncode == 2
    wording("single", done.stderr)
    assert "hint: " in done.stderr
    assert "hf_abc" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("force", [False, True])
def test_force_lifts_the_limits_of_scale(
    force: bool, cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    words = [
        "single",
        "-w",
        "nemotron4",
        "--scale",
        24,
        "--install",
        cluster(),
        "-d",
        *["--force"] * force,
    ]
    done = llmb_here(*words)
    assert done.returncode == (0 if force else 2)
    wording("single", done.stderr)


def test_another_gpu_type_of_the_cluster(cluster: Cluster, dry: Dry) -> None:
    install = cluster(gpu_types={"h200": {"like": "h100", "gpus_per_node": 4}})
    (job,) = dry(
        "single", "-w", "nemotron4", "--scale", 16, "--gpu-type", "h200", "--install", install
    )
    assert (job["gpu_type"], job["tp"], job["nodes"], job["gpus_per_node"]) == ("h200", 2, 4, 4)


def test_the_shells_partition_is_reported(
    cluster: Cluster,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    monkeypatch.setenv("SLURM_GPUS_PER_NODE", "4")
    install = cluster(slurm={"gpu": {"gres": 8}})
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--install", install, "-d", "--format", "json"
    )
    wording("single", done.stderr)
    assert json.loads(done.stdout)["jobs"][0]["nodes"] == 4


FIVE_IN_TEXT = """\
pretrain_nemotron4_15b:
('fp8', [16], 1)
('fp8' [16], 1)
(['fp8', 'bf16'], [16, 24], 1)
pretrain_nemotron4_341b:
('fp8', [256], 1)
('bf16', [256], 1)

pretrain_lama3.1_8b:
('bf16', [8], 2)
pretrain_nemotronh_56b :
(['bf16'], [32, 64], 3)  # fp8 alone
"""

IN_TEXT = [
    ("3", "('fp8' [16], 1)"),
    ("4", "24"),
    ("5", "'341b'"),
    ("9", "'pretrain_lama3.1_8b'"),
    ("12", "'bf16'"),
]

FIVE_IN_YAML = """\
pretrain_nemotron4_15b:
  dtypes: [fp8, bf16]
  scales: [16]
  tasks:
    - {repeats: 0}
    - {overrides: {params: {tp: 3}}}
    - {overides: {}}
    - {}
pretrain_nemotron4_15c:
  scales: [16]
pretrain_nemotron4_340b:
  scales: [256]
  defaults: {env: {NGC_API_KEY: nvapi-1}}
"""

IN_YAML = [
    ("5", "pretrain_nemotron4_15b.tasks.0.repeats"),
    ("6", "3·1·1 = 3"),
    ("7", "pretrain_nemotron4_15b.tasks.2.overides"),
    ("9", "'15c'"),
    ("13", "pretrain_nemotron4_340b.defaults.env.NGC_API_KEY"),
]


@pytest.mark.parametrize(
    "extra", [("--dry-run",), (), ("--force",), ("--dtype", "fp8", "--max-scale", "16")]
)
@pytest.mark.parametrize(
    ("name", "text", "faults"),
    [("jobs.txt", FIVE_IN_TEXT, IN_TEXT), ("jobs.yaml", FIVE_IN_YAML, IN_YAML)],
)
@pytest.mark.parametrize("command", ["submit-all", "bulk"])
def test_five_faults_are_five_located_errors_and_nothing_is_submitted(
    command: str,
    name: str,
    text: str,
    faults: list[tuple[str, str]],
    extra: tuple[str, ...],
    cluster: Cluster,
    llmb_here: Command,
    tmp_path: Path,
    home: Path,
    wording: Callable[..., None],
) -> None:
    if command == "bulk" and "--dtype" in extra:
        extra = ()
    if name == "jobs.txt" and "--force" in extra:
        text = text.replace("[16, 24]", "[16, 20]")  # force lifts the scale, but not whole nodes
        faults = [faults[0], ("4", "20 GPUs"), *faults[2:]]
    jobs, install = tmp_path / name, cluster()
    jobs.write_text(text)
    before = tree(install), tree(home)
    done = llmb_here(command, jobs, "--install", install, *extra)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(faults) == 5, done.stderr
    for line, (number, what) in zip(errors, faults, strict=True):
        assert line.startswith(f"error: {jobs}:{number}: ")
        assert what in line
    if command == "submit-all" and extra in ((), ("--force",)):
        wording("submit-all", done.stderr)
    assert done.returncode == 2
    assert done.stdout == ""
    assert (tree(install), tree(home)) == before
    assert "nvapi-1" not in done.stderr
    assert ("nothing was submitted" in done.stderr) is ("--dry-run" not in extra)


def test_keep_going_shows_what_is_right_and_ends_1(
    cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(FIVE_IN_TEXT)
    done = llmb_here(
        "submit-all", jobs, "--install", cluster(), "-d", "--keep-going", "--format", "json"
    )
    assert done.returncode == 1
    assert [(job["dtype"], job["scale"]) for job in json.loads(done.stdout)["jobs"]] == [
        ("fp8", 16),
        ("fp8", 16),
        ("bf16", 16),
    ]
    assert done.stderr.count("error: ") == 5


def test_keep_going_leaves_a_faulty_line_out(
    cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(FIVE_IN_YAML)
    done = llmb_here(
        "submit-all", jobs, "--install", cluster(), "-d", "--keep-going", "--format", "json"
    )
    assert done.returncode == 1
    assert [(job["dtype"], job["scale"]) for job in json.loads(done.stdout)["jobs"]] == [
        ("fp8", 16),
        ("bf16", 16),
    ]


def test_what_this_machine_cannot_run_is_a_fault_of_its_line(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("nemotron4_tiny:\n('bf16', [1], 1)\nnemotron4_15b:\n('bf16', [16], 2)\n")
    done = llmb_here("submit-all", jobs, "--install", cluster("local", "h100"), "-d")
    assert done.returncode == 2
    wording("submit-all", done.stderr)


def test_a_list_of_both_formats_gives_the_same_jobs(
    cluster: Cluster, dry: Dry, tmp_path: Path
) -> None:
    (tmp_path / "jobs.txt").write_text("nemotron-h_56b:\n('fp8', [32, 64], 2)\n")
    (tmp_path / "jobs.yml").write_text(
        "nemotronh_56b: {dtypes: fp8, scales: [32, 64], repeats: 2}\n"
    )
    install = cluster()
    text, yaml = (
        dry("submit-all", tmp_path / name, "--install", install)
        for name in ("jobs.txt", "jobs.yml")
    )
    assert text == yaml
    assert [(job["scale"], job["repeat"]) for job in text] == [(32, 1), (32, 2), (64, 1), (64, 2)]


def test_filters_and_changes_given_with_a_list(cluster: Cluster, dry: Dry, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(
        "nemotron4_15b:\n(['fp8', 'bf16'], [16, 32], 1)\nllama3.1_8b:\n('bf16', [8], 3)\n"
    )
    install = cluster()

    def kept(*filters: object) -> list[tuple[object, ...]]:
        found = dry("submit-all", jobs, *filters, "--install", install)
        return [
            (job["model_size"], job["dtype"], job["scale"], job["repeat"], job["profile"])
            for job in found
        ]

    assert kept("--dtype", "fp8", "--max-scale", 16) == [("15b", "fp8", 16, 1, False)]
    assert kept("--workloads", "llama-3.1", "--repeats", 1, "-p") == [("8b", "bf16", 8, 1, True)]
    assert kept("--min-scale", "--workloads", "nemotron4_15b") == [
        ("15b", "fp8", 16, 1, False),
        ("15b", "bf16", 16, 1, False),
    ]
    assert kept("--scale", "32,8", "--dtype", "bf16", "--repeats", 1) == [
        ("15b", "bf16", 32, 1, False),
        ("8b", "bf16", 8, 1, False),
    ]


def test_an_unmatched_filter_is_reported(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("nemotron4_15b:\n('fp8', [16], 1)\n")
    install = cluster()
    done = llmb_here("submit-all", jobs, "--scale", "16,64", "--install", install, "-d")
    assert done.returncode == 0
    wording("submit-all", done.stderr)
    done = llmb_here("submit-all", jobs, "--dtype", "bf16", "--install", install, "-d")
    assert done.returncode == 2
    wording("submit-all", done.stderr)


def test_everything_that_is_installed(cluster: Cluster, dry: Dry) -> None:
    install = cluster(workloads={"installed": ["pretrain_nemotronh"]})
    found = dry("submit-all", "--max-scale", 64, "--repeats", 2, "--install", install)
    assert [(job["model_size"], job["scale"], job["repeat"]) for job in found] == [
        ("56b", 64, 1),
        ("56b", 64, 2),
        ("56b", 32, 1),
        ("56b", 32, 2),
    ]


def test_a_job_that_nothing_launches_is_reported(
    cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    words = ("-s", "tiny", "--set", "tp=2", "--scale", 2, "--install", cluster(), "-d")
    done = llmb_here("single", "-w", "nemotron4", *words)
    wording("single", done.stderr)


def test_every_job_that_needs_an_image_is_named_with_its_line(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("nemotron4_tiny:\n('bf16', [1, 2], 1)\nllama3.1_tiny:\n('fp32', 1, 1)\n")
    install = cluster()
    done = llmb_here("submit-all", jobs, "--install", install, "-d")
    assert done.returncode == 2
    wording("submit-all", done.stderr)
    done = llmb_here(
        "submit-all", jobs, "--image", "nvcr.io/nvidia/pytorch:26.01", "--install", install, "-d"
    )
    assert done.returncode == 0, done.stderr


def test_list_says_which_sizes_cannot_run_and_what_makes_them_run(
    cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    install = cluster(workloads={"installed": ["pretrain_nemotron4", "pretrain_llama3.1"]})
    for words in ((), ("-w", "nemotron4_tiny")):
        done = llmb_here("list", *words, "--install", install)
        assert done.returncode == 0
        wording("list", done.stderr)
    assert "torch" not in llmb_here("list", "-w", "nemotron4_15b", "--install", install).stderr


def test_bulk_takes_what_submit_all_takes_with_a_list(
    cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text("nemotron4_15b:\n(['fp8', 'bf16'], [16, 32, 64], 1)\n")
    words = (
        path,
        "--dtype",
        "fp8",
        "--max-scale",
        32,
        "--repeats",
        2,
        "-d",
        "--format",
        "json",
        "--install",
        cluster(),
    )
    outputs = [llmb_here(command, *words).stdout for command in ("bulk", "submit-all")]
    assert len(json.loads(outputs[0])["jobs"]) == 4
    assert outputs[0] == outputs[1]


def test_a_cluster_type_of_a_plugin_that_is_not_built_yet_has_no_script(
    cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--install", cluster("slrum"), "-d"
    )
    assert done.returncode == 2
    wording("single", done.stderr)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        ("--set", "foo=1"),
        ("--time-limit", "5"),
        ("--env", "NOVALUE"),
        ("--gpu-type", "b200"),
        ("--dtype", "fp9"),
        ("broken.yaml",),
        ("missing.yaml",),
    ],
)
def test_every_refusal_says_that_nothing_was_submitted(
    wrong: tuple[str, ...], dry_run: bool, cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("a: [\n")
    what = (
        ("submit-all", tmp_path / wrong[0])
        if wrong[0].endswith("yaml")
        else ("single", "-w", "nemotron4", "--scale", 16, *wrong)
    )
    done = llmb_here(*what, "--install", cluster(), *["-d"] * dry_run)
    assert done.returncode == 2
    assert done.stderr.count("nothing was submitted") == (not dry_run)
    assert ("nothing was submitted" in done.stderr.splitlines()[-1]) is not dry_run


@pytest.mark.parametrize(
    "name",
    [
        "b200",  # known: one line adds it
        "h300x",  # unknown: it is like another
        "h10",
    ],
)
def test_a_gpu_type_that_is_not_there_is_added_not_guessed(
    name: str, cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--gpu-type", name, "--install", cluster(), "-d"
    )
    wording("single", done.stderr)


def test_a_table_shows_the_variables(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "pretrain_nemotron4_15b:\n  {scales: [16], dtypes: fp8, tasks: [{}, {overrides: {env: {B: x"
        " y}}}]}\n"
    )
    done = llmb_here("submit-all", jobs, "--env", "A=1", "--install", cluster(), "-d")
    plain, changed = done.stdout.splitlines()[2:]
    assert shlex.split(changed)[-1] == "B=x y"
    assert "B=" not in plain
    wording("submit-all", done.stderr)


def test_what_all_jobs_of_a_size_share_is_printed_once(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "pretrain_nemotron4_15b:\n  {scales: [16], tasks: [{}, {overrides: {env: {C: 3}}}],"
        " defaults: {env: {B: x y}}}\npretrain_llama3.1_8b:\n  {scales: [16], dtypes: fp8, tasks:"
        " [{overrides: {env: {D: 4}}}]}\n"
    )
    done = llmb_here("submit-all", jobs, "--env", "A=1", "--install", cluster(), "-d")
    wording("submit-all", done.stderr)
    rows = done.stdout.splitlines()[2:]
    assert "B=" not in done.stdout
    assert [line.split()[-1] for line in rows if "=" in line] == ["C=3", "D=4"]


def test_a_table_fits_a_narrow_terminal(
    cluster: Cluster, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = llmb_here(
        "single", "-w", "llama3.1", "-s", "405b", "--scale", 512, "-p", "--install", cluster(), "-d"
    )
    head, _, line = done.stdout.splitlines()
    assert max(map(len, (head, line))) <= 80
    assert line.split()[:3] == ["llama3.1", "405b", "fp8"]


def test_a_narrow_table_keeps_the_columns_that_distinguish_rows(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("pretrain_nemotron4_15b: {dtypes: fp8, scales: [1024], add_profile: true}\n")
    done = llmb_here("submit-all", jobs, "--install", cluster(), "-d")
    head, _, *rows = done.stdout.splitlines()
    assert max(map(len, (head, *rows))) <= 80
    assert head.split()[0] == "Workload"
    assert head.split()[-1] == "Profile"
    assert [line.split()[:2] for line in rows] == [["nemotron4", "15b"]] * 2
    assert len(set(rows)) == 2
    assert "omitted in 80 columns: " in done.stderr


def test_a_slurm_without_pmix_is_named_and_overlap_is_set_up_without_it(
    llmb_here: Command,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """What Debian's Slurm answers, with pyxis: an image's ranks then start without MPI."""
    words = (
        "single",
        "-w",
        "llama3.1_70b",
        "--scale",
        64,
        "--install",
        cluster(slurm={"gres": 8}),
        "-d",
    )
    (tmp_path / "srun").write_text(
        "#!/bin/sh\ncase $* in *--mpi=list*) echo 'MPI plugin types are...'; echo none; echo pmi2"
        " ;;\n*) echo '--container-image --container-workdir --container-mount-home"
        " --container-writable --container-env' ;;\nesac\n"
    )
    (tmp_path / "srun").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        done = llmb_here(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    wording("single", done.stderr)
    (job,) = json.loads(done.stdout)["jobs"]
    assert "--mpi" not in job["script"]
    assert '"tp_comm_bootstrap_backend": "nccl"' in job["script"]
    done = llmb_here(*words, "--set", "max_steps=7", "--format", "json")
    assert "'pmix'" not in done.stderr


def test_a_dry_run_says_what_is_missing_without_asking_the_controller(
    llmb_here: Command,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """Debian's srun has neither pyxis nor the plugin pmix; its image and another job's mount are
    not there either.
    """
    asked = tmp_path / "asked"
    for name in ("srun", "sbatch", "sinfo", "scontrol", "squeue", "sacct"):
        (tmp_path / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >> {asked}\ncase $* in *--mpi=list*) echo none; echo'
            " pmi2 ;; *--help*) echo '--partition --segment' ;; *) exit 1 ;;\nesac\n"
        )
        (tmp_path / name).chmod(0o755)
    slurm = {"gpu": {"partition": "batch", "gres": 8}, "mpi": "pmix"}
    install = cluster(slurm=slurm, workloads={"installed": ["pretrain_llama3.1"]})
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        words = (
            "single",
            "-w",
            "llama3.1_8b",
            "--dtype",
            "bf16",
            "--scale",
            8,
            "--install",
            install,
            "-d",
        )
        done = llmb_here(*words, "--format", "json")
        wording("single", done.stderr)
        assert done.returncode == 0
        assert len(json.loads(done.stdout)["jobs"]) == 1
        assert {line for line in asked.read_text().splitlines() if "--help" not in line} == {
            "srun --mpi=list"
        }
        refused = llmb_here(*words[:-1])
    assert refused.returncode == 1
    # what the checks refuse
    for text in (f"{install}/images/nvidia+nemo+25.04.01.sqsh", "pyxis", "'pmix'"):
        assert text in refused.stderr
        assert text in done.stderr


def test_f_is_the_list_and_never_a_force(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    """NVIDIA's `submit -f FILE` names the list."""
    install = cluster()
    path = tmp_path / "jobs.yaml"
    path.write_text("nemotron4_15b: {dtypes: [bf16], scales: [16]}\n")
    for words in (("submit-all", "-f", path), ("bulk", "--file", path)):
        done = llmb_here(*words, "--install", install, "-d", "--format", "json")
        assert [job["scale"] for job in json.loads(done.stdout)["jobs"]] == [16], done.stderr
    # only a force takes this scale
    path.write_text("nemotron4_15b: {dtypes: [bf16], scales: [48]}\n")
    assert llmb_here("submit-all", "-f", path, "--install", install, "-d").returncode == 2
    assert llmb_here("submit-all", path, "--force", "--install", install, "-d").returncode == 0
    two = llmb_here("submit-all", path, "-f", path, "--install", install, "-d")
    assert two.returncode == 2
    wording("submit-all", two.stderr)
    for line in ("single -w nemotron4_15b --scale 48 -f", "jobs retry --failed -f"):
        done = llmb_here(*line.split(), "--install", install)
        assert done.returncode == 2
        wording("submit-all", done.stderr)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("MAX_STEPS=100", {"max_steps": 100}),
        ("TP=4", {"tp": 4}),
        ("ENABLE_CHECKPOINT=true", {"switches": {"save_checkpoint": True}}),
        ("RUN_CONF_IMAGE=a/b:1", {"image": "a/b:1"}),
    ],
)
def test_a_launch_variable_given_for_a_job_is_used_as_the_setting(
    given: str,
    expected: dict[str, Any],
    cluster: Cluster,
    llmb_here: Command,
    wording: Callable[..., None],
) -> None:
    words = (
        "single",
        "-w",
        "nemotron4_15b",
        "--scale",
        "16",
        "-d",
        "--install",
        cluster(),
        "--format",
        "json",
    )
    done = llmb_here(*words, "--env", given)
    (job,) = json.loads(done.stdout)["jobs"]
    assert {name: job[name] for name in expected} == expected
    assert given.partition("=")[0] not in job["env"]
    wording("single", done.stderr)


def test_a_launch_variable_and_an_option_that_differ(cluster: Cluster, llmb_here: Command) -> None:
    words = ("single", "-w", "nemotron4_15b", "--scale", "16", "-d", "--install", cluster())
    assert llmb_here(*words, "--env", "MAX_STEPS=100", "--max-steps", 50).returncode == 2
    assert llmb_here(*words, "--env", "MAX_STEPS=50", "--max-steps", 50).returncode == 0


@pytest.mark.parametrize(
    "given", ["SBATCH_QOS=x", "HIDDEN_SIZE=1", "ENABLE_PROFILE=true", "MAX_STEPS=many"]
)
def test_a_launch_variable_given_for_a_job_is_refused_with_the_right_option(
    given: str, cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    done = llmb_here(
        "single",
        "-w",
        "nemotron4_15b",
        "--scale",
        "16",
        "--env",
        given,
        "-d",
        "--install",
        cluster(),
    )
    assert done.returncode == 2
    wording("single", done.stderr)


def test_overrides_that_are_not_in_the_name_are_in_the_table(
    cluster: Cluster, llmb_here: Command
) -> None:
    words = ("--image", "own/image:1", "--mount", "/data", "--no-vboost", "--container-writable")
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--install", cluster(), "-d", *words
    )
    assert done.returncode == 0, done.stderr
    for word in ("image=own/image:1", "mount=/data:/data", "no-vboost", "writable"):
        assert word in done.stdout


def test_the_proxy_is_named_for_a_scale_that_it_was_tested_at(
    cluster: Cluster, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    """In a job list, which means what it says."""
    path = tmp_path / "jobs.txt"
    path.write_text("pretrain_llama3.1_405b:\n('fp8', [64], 1)\n")
    done = llmb_here("submit-all", path, "--install", cluster(), "-d")
    assert done.returncode == 2
    assert "-s 405b-proxy" in done.stderr
    wording("submit-all", done.stderr)


def test_gpus_per_node_that_do_not_divide_name_those_that_do(
    cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    install = cluster(slurm={"gres": 8})
    done = llmb_here(
        "single", "-w", "nemotron4", "--scale", 16, "--gpus-per-node", 3, "--install", install, "-d"
    )
    assert done.returncode == 2
    wording("single", done.stderr)


def test_repeats_are_one_row_for_people_and_all_are_in_csv(
    cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    """A profiled run is none of the repeats."""
    joblist = tmp_path / "jobs.yaml"
    joblist.write_text(
        "pretrain_nemotron4_15b: {dtypes: bf16, scales: [16, 64], repeats: 3, add_profile: true}"
    )
    words = ("submit", joblist, "--dry-run", "--install", cluster("slurm", "h100"))
    lines = [line.split() for line in llmb_here(*words).stdout.splitlines()]
    place = lines[0].index("Repeat")
    rows = [line for line in lines if line[0] == "pretrain_nemotron4"]
    scales_and_repeats = [tuple(row[place - 1 : place + 1]) for row in rows]
    assert scales_and_repeats == [("16", "1-3"), ("16", "1"), ("64", "1-3"), ("64", "1")]
    done = llmb_here(*words, "--format", "csv")
    repeats = [row["repeat"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert repeats == ["1", "2", "3", "1"] * 2


def test_repeats_in_json_differ_in_their_number_alone(
    cluster: Cluster, dry: Dry, tmp_path: Path
) -> None:
    """Whatever their order: the second task has the same experiment with another variable."""
    install, joblist = cluster("slurm", "h100"), tmp_path / "jobs.yaml"
    task = "{dtypes: bf16, scales: [16, 64], repeats: REPEATS, overrides: {env: {A: LETTER}}}"
    tasks = [f"  - {task.replace('LETTER', letter)}" for letter in "xyx"]

    def planned(repeats: int) -> list[dict[str, Any]]:
        joblist.write_text(
            "pretrain_nemotron4_15b:\n  tasks:\n"
            + "\n".join(tasks).replace("REPEATS", str(repeats))
        )
        return dry("submit", joblist, "--install", install)

    expected = [{**job, "repeat": repeat} for job in planned(1) for repeat in (1, 2, 3)]
    assert planned(3) == expected
    assert [job["env"]["A"] for job in expected[::3]] == [*"xxyyxx"]


def test_what_several_workloads_lack_is_one_note(cluster: Cluster, llmb_here: Command) -> None:
    install = cluster("slurm", "h100", slurm={"container": "pyxis"})
    done = llmb_here(
        *("submit", "-w", "nemotron4_15b,llama3.1_8b", "--scale", "16", "-d"),
        *("--install", install),
    )
    notes = [line for line in done.stderr.splitlines() if "a submission would fail" in line]
    (note,) = (note for note in notes if ".sqsh" in note)
    command = note.partition("(llmb-install add ")[2]
    assert {*command.split()[:2]} == {"pretrain_nemotron4", "pretrain_llama3.1"}


@pytest.mark.parametrize(
    ("workloads", "selects"), [("nemotron4,nemotronh", True), ("nemotronh_56b", False)]
)
def test_options_that_select_jobs_are_named_where_several_are_selected(
    workloads: str, selects: bool, cluster: Cluster, llmb_here: Command
) -> None:
    words = ("submit", "-w", workloads, "--scale", "256", "--set", "gbs=7", "-d")
    done = llmb_here(*words, "--install", cluster())
    assert done.returncode != 0
    assert ("--workloads and --dtype select jobs" in done.stderr) == selects
