# SPDX-License-Identifier: Apache-2.0
"""Tests of the switches as options and as a list's keys, and of what a dry run and a submission say
of them.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]

LLAMA = ("single", "-w", "llama3.1", "-s", "405b", "--dtype", "bf16", "--scale", 1024)


@pytest.fixture
def jobs(llmb_here: Command) -> Callable[..., list[dict[str, Any]]]:
    """The jobs of a dry run that succeeds."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        done = llmb_here(*arguments, "-d", "--format", "json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["jobs"]
        return found

    return run


Jobs = Callable[..., list[dict[str, Any]]]


def test_all_of_them_at_once(jobs: Jobs, cluster: Cluster) -> None:
    (job,) = jobs(
        *LLAMA,
        "--install",
        cluster(),
        "--max-steps",
        30,
        "--gbs",
        1024,
        "--time-limit",
        "02:00:00",
        "-p",
        "--profile-start",
        20,
        "--profile-stop",
        30,
        "--profile-ranks",
        "0,8",
        "--gpu-metrics",
        "--save-checkpoint",
        "--image",
        "nvcr.io/nvidia/nemo:25.09",
        "--mount",
        "/a:/b",
        "--mount",
        "/c",
        "--set",
        "tokenizer=hub",
    )
    name = "pretrain_llama3.1_405b_bf16_gpus1024_tp8_pp8_cp2_vp8_mbs1_gbs1024_steps30_hub_nsys"
    assert (job["experiment_name"], job["max_steps"], job["gbs"], job["time_limit"]) == (
        name,
        30,
        1024,
        "02:00:00",
    )
    assert job["image"] == "nvcr.io/nvidia/nemo:25.09"
    assert list(job)[-4:] == ["script", "estimate", "switches", "framework"]
    assert job["switches"] == {
        "tokenizer": "hub",
        "profile_start": 20,
        "profile_stop": 30,
        "profile_ranks": "0,8",
        "gpu_metrics": True,
        "save_checkpoint": True,
        "mounts": ["/a:/b", "/c:/c"],
    }
    assert ",/a:/b,/c:/c'" in job["script"]
    assert "images/nvidia+nemo+25.09.sqsh" in job["script"]
    assert "--no-container-mount-home --container-writable" in job["script"]


def test_an_older_image_is_not_written_to(jobs: Jobs, cluster: Cluster) -> None:
    (job,) = jobs(*LLAMA, "--install", cluster())
    assert "--container-writable" not in job["script"]
    assert "switches" not in job


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "tokenizer=own"),
        ("--set", "fp8=mx"),
        ("--set", "tokeniser=hub"),
        ("--set", "fp8=current"),
        ("--time-limit", "90"),
        ("--mount", "data"),
        ("-p", "--profile-ranks", "x"),
        ("--profile-stop", 10),
        ("--gpu-metrics",),
        ("--gbs", 512, "--set", "gbs=1024"),
        ("-p", "--nccl-trace"),
        ("--scale", 512, "--load-checkpoint", "/c"),
        ("--strong-scaling",),
        ("-p", "--stragglers"),
    ],
)
def test_an_invalid_switch_ends_2(
    arguments: tuple[object, ...],
    llmb_here: Command,
    cluster: Cluster,
    wording: Callable[..., None],
) -> None:
    done = llmb_here(*LLAMA, "--install", cluster(), "-d", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    wording("single", done.stderr)


def test_a_dry_run_says_what_a_submission_would_miss(
    llmb_here: Command,
    cluster: Cluster,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    words = (
        *LLAMA,
        "--install",
        cluster(),
        "-d",
        "--set",
        "tokenizer=hub",
        "--load-checkpoint",
        tmp_path / "saved",
    )
    done = llmb_here(*words)
    assert done.returncode == 0
    wording("single", done.stderr)
    (tmp_path / "saved" / "weights").mkdir(parents=True)
    (tmp_path / "saved" / "weights" / "__0_0.distcp").touch()
    assert "distcp" not in llmb_here(*words).stderr


def test_a_token_in_the_secrets_file_is_enough(
    llmb_here: Command, cluster: Cluster, home: Path
) -> None:
    (home / ".config/llmb").mkdir(parents=True)
    (home / ".config/llmb/secrets").write_text("HF_TOKEN=hf_kept\n")
    (home / ".config/llmb/secrets").chmod(0o600)
    done = llmb_here(
        *LLAMA, "--install", cluster(), "-d", "--set", "tokenizer=hub", "--format", "json"
    )
    assert "HF_TOKEN" not in done.stderr
    assert "hf_kept" not in done.stdout
    assert ",HF_TOKEN " in json.loads(done.stdout)["jobs"][0]["script"]


def test_checkpoints_count_in_the_totals(
    llmb_here: Command,
    cluster: Cluster,
    wording: Callable[..., None],
) -> None:
    install = cluster()
    wording("single", llmb_here(*LLAMA, "--install", install, "-d", "--save-checkpoint").stderr)
    small = ("single", "-w", "nemotron4", "--scale", 64, "--repeats", 2, "--save-checkpoint")
    wording("single", llmb_here(*small, "--install", install, "-d").stderr)


def test_a_table_says_what_was_changed(
    llmb_here: Command,
    cluster: Cluster,
    wording: Callable[..., None],
) -> None:
    install = cluster()
    plain = llmb_here(*LLAMA, "--install", install, "-d", "-p").stdout.splitlines()
    assert plain[0].split()[-2:] == ["Limit", "Profile"]
    changed = llmb_here(
        *LLAMA, "--install", install, "-d", "--save-checkpoint", "--max-steps", 20
    ).stdout.splitlines()
    assert changed[0].split()[-2:] == ["Limit", "Changed"]
    assert changed[2].split()[-1] == "steps20"
    done = llmb_here(*LLAMA, "--install", install, "-d", "--max-steps", 20, "--repeats", 2)
    assert "Changed" not in done.stdout
    assert done.stdout.count("steps20") == 0
    wording("single", done.stderr)


LIST = """
pretrain_llama3.1_405b:
  scales: [1024]
  dtypes: bf16
  max_steps: 20
  time_limit: 1:00:00
  defaults: {image: "common:1", tokenizer: hub}
  overrides: {mounts: [/a]}
  tasks:
    - {}
    - {nccl_trace: true, tokenizer: "null"}
    - {profile: true, profile_ranks: all, overrides: {profile_stop: 10, image: "own:2", max_steps: 10}}
    - {load_checkpoint: /c, overrides: {params: {max_steps: 1}}}
    - {save_checkpoint: true, gbs: 1024, overrides: {params: {gbs: [512, 2048]}}}
"""


def test_keys_of_section_task_and_overrides(jobs: Jobs, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(LIST)
    found = jobs("submit-all", tmp_path / "jobs.yaml", "--install", cluster())
    common = {"tokenizer": "hub", "mounts": ["/a:/a"]}
    assert [(job["max_steps"], job["gbs"], job["image"], job["switches"]) for job in found] == [
        (20, 512, "common:1", common),
        (20, 512, "common:1", {**common, "tokenizer": "null", "nccl_trace": True}),
        (
            10,
            512,
            "own:2",
            {**common, "profile_start": 5, "profile_stop": 10, "profile_ranks": "all"},
        ),
        (1, 512, "common:1", {**common, "load_checkpoint": "/c"}),
        (20, 512, "common:1", {**common, "save_checkpoint": True}),
        (20, 2048, "common:1", {**common, "save_checkpoint": True}),
    ]
    assert {job["time_limit"] for job in found} == {"01:00:00"}


@pytest.mark.parametrize(
    ("kind", "gpu", "words", "profiler"),
    [
        (
            "slurm",
            "h100",
            ("--scale", 16),
            "by Nsight Systems: steps 46-50, ranks 0-7, into <name>/nsys_profile/",
        ),
        (
            "runai",
            "h100",
            ("--scale", 16),
            "by Nsight Systems: steps 46-50, ranks 0-7, into <name>/nsys_profile/",
        ),
        (
            "local",
            "h100",
            ("--scale", 8),
            "by Nsight Systems: steps 46-50, ranks 0-7, into <name>/nsys_profile/",
        ),
        (
            "local",
            "cpu",
            ("-s", "tiny", "--scale", 2),
            "by torch: steps 45-50, every rank, into <name>/torch_profile/",
        ),
    ],
)
def test_a_dry_run_says_what_profiles(
    kind: str,
    gpu: str,
    words: tuple[str | int, ...],
    profiler: str,
    llmb_here: Command,
    cluster: Cluster,
) -> None:
    runai = {
        "base_url": "https://host/api/v1",
        "project": "p",
        "pvc": {"name": "w", "path": "/w", "claim": "c"},
    }
    place = cluster(kind, gpu, **({"runai": runai} if kind == "runai" else {}))
    single = ("single", "-w", "nemotronh", "--install", place, "-d")
    assert f"\nprofiled {profiler}\n" in llmb_here(*single, *words, "-p", "--force").stderr
    assert "profiled by" not in llmb_here(*single, *words, "--force").stderr


def test_a_section_says_how_to_profile_and_profiles_some_tasks(
    jobs: Jobs, cluster: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "nemotron4_15b: {scales: [16], profile_stop: 20, tasks: [{}, {profile: true}]}\n"
    )
    found = jobs("submit-all", path, "--install", cluster())
    assert [(job["profile"], job["max_steps"]) for job in found] == [(False, 50), (True, 20)]
    path.write_text("nemotron4_15b: {scales: [16], profile_stop: 20}\n")
    assert [
        job["max_steps"] for job in jobs("bulk", path, "-p", "--install", cluster(name="other"))
    ] == [20]


def test_options_override_a_list(jobs: Jobs, cluster: Cluster, tmp_path: Path) -> None:
    text = "nemotron4_15b: {scales: [16], image: 'a:1', time_limit: '00:10:00', gbs: 128}\n"
    (tmp_path / "jobs.yaml").write_text(text)
    words = ("--image", "b:1", "--time-limit", "00:20:00", "--gbs", 256)
    (job,) = jobs("submit-all", tmp_path / "jobs.yaml", "--install", cluster(), *words)
    assert (job["image"], job["time_limit"], job["gbs"]) == ("b:1", "00:20:00", 256)


@pytest.mark.parametrize("command", ["submit-all", "bulk"])
def test_a_whole_list_is_profiled(
    command: str, jobs: Jobs, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "jobs.txt").write_text("nemotron4_15b:\n('fp8', [16, 32], 1)\n")
    found = jobs(command, tmp_path / "jobs.txt", "--install", cluster(), "-p", "--profile-stop", 20)
    assert [(job["profile"], job["max_steps"]) for job in found] == [(True, 20), (True, 20)]


def test_discovery_with_strong_scaling_takes_what_has_it(
    jobs: Jobs,
    cluster: Cluster,
    llmb_here: Command,
    wording: Callable[..., None],
) -> None:
    found = jobs(
        "submit-all",
        "--scale",
        "128,256",
        "--strong-scaling",
        "--install",
        cluster("slurm", "gb200"),
    )
    assert {(job["model_size"], job["gbs"]) for job in found} == {("340b", 512)}
    assert len(found) == 4
    done = llmb_here(
        "submit-all", "--max-scale", 512, "--strong-scaling", "--install", cluster(name="h"), "-d"
    )
    assert done.returncode == 2
    wording("submit-all", done.stderr)


@pytest.mark.parametrize(
    "text",
    [
        "time_limit: 30",
        "time_limit: 0:00:00",
        "tokenizer: own",
        "tokenizer: null",
        "fp8: mx",
        "profile_ranks: 7-0",
        "profile_start: -1",
        "mounts: [a]",
        "load_checkpoint: saved",
        "image: ''",
        "nccl_trace: 1",
        "gbs: 0",
        "overrides: {params: {tokenizer: [hub]}}",
        "gpu_metrics: true",
    ],
)
def test_a_wrong_key_is_a_fault_of_its_line(
    text: str, llmb_here: Command, cluster: Cluster, tmp_path: Path, wording: Callable[..., None]
) -> None:
    scales = "" if text == "tokenizer: null" else "  scales: [16]\n"
    (tmp_path / "jobs.yaml").write_text(f"nemotron4_15b:\n{scales}  {text}\n")
    done = llmb_here("submit-all", tmp_path / "jobs.yaml", "--install", cluster(), "-d")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {tmp_path}/jobs.yaml:" in done.stderr
    wording("submit-all", done.stderr)


def test_what_a_submission_misses_is_reported_with_its_fix(
    llmb_here: Command,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """On a node of 8 B200s whose reported memory is less; nothing is submitted."""
    from llmb.builtin.local import local_cluster

    monkeypatch.setattr(local_cluster, "count_gpus", lambda: 8)
    install = cluster("local", "h100", gpu_types={"h100": {"memory_gb": 40}})
    done = llmb_here(
        "single",
        "-w",
        "llama3.1",
        "-s",
        "8b",
        "--scale",
        8,
        "--set",
        "tokenizer=hub",
        "--install",
        install,
    )
    assert done.returncode == 1
    wording("single", done.stderr)
    assert not (install / "workloads").exists()


def test_a_relative_image_file_is_that_of_this_folder_and_refused_in_a_list(
    llmb_here: Command,
    cluster: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """The job starts in its run's folder, and pyxis takes a bare name for a registry's."""
    monkeypatch.chdir(tmp_path)
    install = cluster(slurm={"gres": 8})
    words = ("--install", install, "-d", "--format", "json")
    done = llmb_here("single", "-w", "nemotron4_15b", "--scale", 16, "--image", "own.sqsh", *words)
    (job,) = json.loads(done.stdout)["jobs"]
    assert f"--container-image={tmp_path}/own.sqsh" in job["script"]
    (tmp_path / "jobs.yaml").write_text(
        "nemotron4_15b: {dtypes: [fp8], scales: [16], image: ./own.sqsh}\n"
    )
    done = llmb_here("submit-all", "jobs.yaml", *words)
    assert done.returncode == 2
    wording("submit-all", done.stderr)
