# SPDX-License-Identifier: Apache-2.0
"""Tests of `llmb-run submit`: lists, targets and discovery in one command, as NVIDIA's llmb-run has
it.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Dry = Callable[..., "subprocess.CompletedProcess[str]"]
Names = list[tuple[str, str, int]]


@pytest.fixture
def dry(llmb_here: Command, cluster: Cluster) -> Dry:
    """A dry run with H100s of a command line without options of the install directory."""
    install = cluster(slurm={"gres": 8})

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return llmb_here(*arguments, "--install", install, "-d", "--format", "json")

    return run


def jobs_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["jobs"]
    return found


def names_of(done: subprocess.CompletedProcess[str]) -> Names:
    return [(job["model_size"], job["dtype"], job["scale"]) for job in jobs_of(done)]


PRODUCT = [("15b", "fp8", 16), ("15b", "fp8", 32), ("15b", "bf16", 16), ("15b", "bf16", 32)]


@pytest.mark.parametrize("command", ["single", "submit"])
def test_scales_and_dtypes_of_one_workload_multiply(command: str, dry: Dry) -> None:
    words = ("-w", "nemotron4", "-s", "15b", "--dtype", "fp8,bf16", "--scale", "16,32")
    assert names_of(dry(command, *words)) == PRODUCT
    assert len(jobs_of(dry(command, *words, "--repeats", 2))) == 8


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-w llama3.1 -s 8b --dtype fp8 --scale 8", [("8b", "fp8", 8)]),
        ("-w llama3.1 -s 8b --scale 8", [("8b", "fp8", 8)]),  # as `single`: the workload's dtype
        (
            "-w llama3.1_70b,nemotron-h --dtype fp8 --scale 128",
            [("70b", "fp8", 128), ("56b", "fp8", 128)],
        ),
        ("-w llama3.1_70b --scale 64", [("70b", "bf16", 64), ("70b", "fp8", 64)]),
        ("-w nemotron4 --dtype fp8 --min-scale", [("340b", "fp8", 128), ("15b", "fp8", 16)]),
        ("-w nemotron4_15b,nemotron-h --dtype fp8 --max-scale 32 --scale 32", None),
        ("-w nemotron4_15b --dtype fp8 --max-scale 32", [("15b", "fp8", 32), ("15b", "fp8", 16)]),
        # 340b has no such scale: skipped, with a note
        ("-w nemotron4 --dtype fp8 --scale 32", [("15b", "fp8", 32)]),
        ("-w nemotron4_340b --dtype fp8 --scale 32", None),  # named, so an error
    ],
)
def test_targets(words: str, expected: Names | None, dry: Dry) -> None:
    done = dry("submit", *words.split())
    if expected is None:
        assert (done.returncode, done.stdout) == (2, "")
        return
    assert sorted(names_of(done)) == sorted(expected)


def test_exact_scales_adds_none_above_the_tested(dry: Dry) -> None:
    words = ("--dtype", "fp8", "--max-scale", 512)
    beyond = [scale for _, _, scale in names_of(dry("submit", "-w", "llama3.1_8b", *words))]
    assert beyond == [512, 256, 128, 64, 32, 16, 8]
    exact = [
        scale
        for _, _, scale in names_of(dry("submit", "-w", "llama3.1_8b", *words, "--exact-scales"))
    ]
    assert exact == [128, 64, 32, 16, 8]  # seed 002
    for command in ("submit-all", "submit"):
        scales = {
            scale
            for size, _, scale in names_of(dry(command, *words, "--exact-scales"))
            if size == "8b"
        }
        assert scales == {8, 16, 32, 64, 128}


@pytest.fixture
def joblist(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text("pretrain_nemotron4_15b:\n(['fp8', 'bf16'], [16, 32], 1)\n")
    return path


def test_a_list_is_an_argument_or_an_option(joblist: Path, dry: Dry) -> None:
    assert names_of(dry("submit", joblist)) == names_of(dry("submit", "-f", joblist)) == PRODUCT
    assert names_of(dry("submit", joblist, "--dtype", "bf16", "--scale", 16)) == [
        ("15b", "bf16", 16)
    ]
    assert names_of(dry("submit", "-f", joblist, "-w", "nemotron4_15b", "--min-scale")) == [
        PRODUCT[0],
        PRODUCT[2],
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("jobs.txt --exact-scales", "option-without-effect"),
        ("jobs.txt -s 15b", "option-without-effect"),
        ("-s 15b --scale 16", "size-without-workload"),
        ("-w nemotron4,llama3.1 -s 15b --scale 16", "size-without-workload"),
        ("-w nemotron4 -s 15b --max-scale 16", "scale-conflict"),
        ("-w nemotron4 -s 15b", "scale-missing"),
        ("-w nemotron5 -s 15b", "workload-unknown"),
        ("-w nemotron4", "nothing-selected"),
        ("", "nothing-selected"),
        ("-w nemotron4 -s 15b -d fp8 --scale 16", None),  # NVIDIA's -d is --dtype
        ("-d fp8 --scale 16", "file-missing"),
        ("nemotron4_15b --scale 16", "file-missing"),
        ("-w nemotron4 -s 15b --scale 16 --qos a --slurm-arg qos=b", "option-conflict"),
        ("-w nemotron4 -s 15b --scale 16 --nodelist=", "value-not-allowed"),
        ("-w nemotron4 -s 15b --scale 16 --nodelist n[1-", "value-not-allowed"),
        ("-w nemotron4 -s 15b --scale 16 --slurm-arg exclude=n1]", "value-not-allowed"),
    ],
)
def test_what_contradicts_is_refused(
    words: str,
    code: str | None,
    dry: Dry,
    joblist: Path,
    codes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    monkeypatch.chdir(joblist.parent)
    done = dry("submit", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert code is None or codes == [code]
    wording("submit", done.stderr)


def test_one_target_by_the_variables_of_the_scripts(
    dry: Dry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOB_TOTAL_GPUS", "256")
    monkeypatch.setenv("MODEL_SIZE", "340b")
    monkeypatch.setenv("DTYPE", "bf16")
    assert names_of(dry("submit", "-w", "pretrain_nemotron4")) == [("340b", "bf16", 256)]
    assert names_of(dry("submit", "-w", "nemotron4", "--dtype", "fp8", "--min-scale"))[-1] == (
        "15b",
        "fp8",
        16,
    )


@pytest.mark.parametrize(
    "words",
    [
        "single -w llama3.1 -s 405b --dtype fp8 --scale 32,64,128",
        "submit -w llama3.1 -s 405b --dtype fp8 --scale 32,64,128",
        "submit -w llama3.1_405b --dtype fp8 --scale 32,64,128",
    ],
)
def test_405b_at_few_gpus_is_its_proxy(words: str, dry: Dry) -> None:
    """Seed 002: 405b-Proxy has 8, 30 and 62 layers at 32, 64 and 128 GPUs."""
    done = dry(*words.split())
    assert {(job["model_size"], job["scale"], job["num_layers"]) for job in jobs_of(done)} == {
        ("405b-proxy", 32, 8),
        ("405b-proxy", 64, 30),
        ("405b-proxy", 128, 62),
    }
    assert "note: pretrain_llama3.1 at " in done.stderr
    reason = "is 405b-proxy, with fewer layers, as in NVIDIA's release 25.04; --force trains"
    assert reason in done.stderr


def test_only_what_the_proxy_alone_was_tested_at_is_the_proxy(dry: Dry) -> None:
    words = ("single", "-w", "llama3.1", "-s", "405b", "--dtype", "fp8")
    assert names_of(dry(*words, "--scale", "64,512")) == [
        ("405b-proxy", "fp8", 64),
        ("405b", "fp8", 512),
    ]
    assert names_of(dry(*words, "--scale", 64, "--proxy")) == [("405b-proxy", "fp8", 64)]
    whole = dry(*words, "--scale", 128, "--force")
    assert names_of(whole) == [("405b", "fp8", 128)]
    assert dry(*words, "--scale", 256).returncode == 2
    assert dry("single", "-w", "llama3.1", "-s", "70b", "--scale", 64, "--proxy").returncode == 2


def test_405b_on_blackwell_at_128_is_itself(llmb_here: Command, cluster: Cluster) -> None:
    install = cluster("slurm", "gb200")
    words = ("--dtype", "fp8", "--scale", 128, "-d", "--format", "json", "--install", install)
    assert names_of(llmb_here("single", "-w", "llama3.1", "-s", "405b", *words)) == [
        ("405b", "fp8", 128)
    ]


def test_proxies_alone(dry: Dry, tmp_path: Path) -> None:
    found = names_of(dry("submit", "--max-scale", 2048, "--dtype", "fp8", "--proxy"))
    assert found == [("405b-proxy", "fp8", scale) for scale in (128, 64, 32)]
    assert names_of(
        dry("submit", "-w", "llama3.1_405b", "--min-scale", "--dtype", "fp8", "--proxy")
    ) == [found[-1]]
    path = tmp_path / "jobs.txt"
    path.write_text("pretrain_llama3.1_405b:\n('fp8', [64], 1)\n")
    assert names_of(dry("submit", path, "--proxy")) == [("405b-proxy", "fp8", 64)]
    assert dry("submit", path).returncode == 2  # a list means what it says


SLURM = {
    "partition": "batch",
    "account": "bench",
    "qos": "high",
    "reservation": "night",
    "nodelist": "n[1-4]",
    "exclude": "n5,n6",
    "nice": "100",
    "segment": "2",
}


@pytest.mark.parametrize("command", ["single", "submit", "submit-all"])
def test_options_of_slurm_are_in_the_script(command: str, dry: Dry, joblist: Path) -> None:
    target = (
        (joblist, "--scale", 16)
        if command == "submit-all"
        else ("-w", "nemotron4", "-s", "15b", "--scale", 16)
    )
    flags = [word for name, value in SLURM.items() for word in (f"--{name}", value)]
    script = jobs_of(dry(command, *target, *flags))[0]["script"]
    found = (
        line[10:].partition("=") for line in script.splitlines() if line.startswith("#SBATCH --")
    )
    directives = {name: value for name, _, value in found}
    assert {name: directives[name] for name in SLURM} == SLURM


def test_keys_of_a_list_and_what_overrides_them(dry: Dry, tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "nemotron4_15b:\n  scales: [16]\n  qos: low\n  tasks: [{nodelist: 'n[1-2]'}, {reservation:"
        " r}]\n"
    )
    first, second = (job["script"] for job in jobs_of(dry("submit", path, "--qos", "high")))
    assert "--qos=high\n" in first
    assert "--nodelist=n[1-2]\n" in first
    assert "--qos=high\n" in second
    assert "--reservation=r\n" in second
    assert "--nodelist" not in second


def test_a_table_shows_them(llmb_here: Command, cluster: Cluster) -> None:
    words = (
        "submit",
        "-w",
        "nemotron4",
        "-s",
        "15b",
        "--install",
        cluster(),
        "-d",
        "--qos",
        "high",
    )
    assert "--qos high" in llmb_here(*words, "--scale", 16).stdout
    assert "changed in every job: --qos high" in llmb_here(*words, "--scale", "16,32").stderr


@pytest.mark.parametrize("kind", ["local", "runai"])
@pytest.mark.parametrize("name", SLURM)
def test_other_clusters_have_none_of_them(
    kind: str, name: str, llmb_here: Command, cluster: Cluster, wording: Callable[..., None]
) -> None:
    runai = {
        "base_url": "https://x/api/v1",
        "project": "p",
        "pvc": {"name": "w", "path": "/w", "claim": "c"},
    }
    install = cluster(kind, **({"runai": runai} if kind == "runai" else {}))
    words = ("submit", "-w", "nemotron4", "-s", "15b", "--scale", 16, "--install", install, "-d")
    done = llmb_here(*words, f"--{name}", SLURM[name])
    assert (done.returncode, done.stdout) == (2, "")
    wording("submit", done.stderr)


def test_nodes_of_a_list_with_an_open_bracket_are_refused_in_a_dry_run(
    llmb_here: Command, cluster: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("nemotron4_15b:\n  scales: [16]\n  tasks: [{nodelist: 'n[1-'}]\n")
    done = llmb_here("submit", path, "--install", cluster("slurm", "h100"), "-d")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {path}:")
    assert "'n[1-' is not a list of nodes" in done.stderr


def test_keys_of_a_list_on_another_cluster_are_faults_at_their_lines(
    llmb_here: Command, cluster: Cluster, tmp_path: Path, wording: Callable[..., None]
) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "nemotron4_tiny:\n  scales: [1]\n  dtypes: bf16\n  qos: low\n  tasks:\n    - {nodelist:"
        " n1}\n"
    )
    done = llmb_here("submit", path, "--install", cluster("local", "cpu"), "-d")
    assert done.returncode == 2
    assert [
        line.partition(": ")[2].partition(": ")[0]
        for line in done.stderr.splitlines()
        if "error" in line
    ] == [
        f"{path}:4",
        f"{path}:6",
    ]
    wording("submit", done.stderr)


def test_verbose_prints_the_scripts(llmb_here: Command, cluster: Cluster) -> None:
    words = (
        "submit",
        "-w",
        "nemotron4",
        "-s",
        "15b",
        "--scale",
        "16,32",
        "--install",
        cluster(),
        "-d",
    )
    for argv in ((*words, "-v"), ("-v", *words)):  # NVIDIA's comes first
        done = llmb_here(*argv)
        assert done.stderr.count("#!/bin/bash") == 2
    assert "#!/bin/bash" not in llmb_here(*words).stderr
