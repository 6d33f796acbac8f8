# SPDX-License-Identifier: Apache-2.0
"""Tests of the direct method: `llmb-run single` configured by the variables of the older launch
scripts.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Direct = Callable[..., "subprocess.CompletedProcess[str]"]
SINGLE = ("single", "-d", "--format", "json")


@pytest.fixture
def direct(llmb_here: Command, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Direct:
    """``llmb-run single -d`` on an H100 cluster, of ``workload`` and with further arguments;
    keywords are variables.
    """
    install = cluster(slurm={"gres": 8})

    def run(
        workload: str, *arguments: object, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return llmb_here(*SINGLE, "-w", workload, "--install", install, *arguments)

    return run


def job_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    found: dict[str, Any] = job
    return found


def test_as_the_pages_have_it(direct: Direct, wording: Callable[..., None]) -> None:
    done = direct(
        "pretrain_nemotron4", JOB_TOTAL_GPUS="256", GPU_TYPE="h100", DTYPE="bf16", MODEL_SIZE="340b"
    )
    job = job_of(done)
    assert (
        job["experiment_name"] == "pretrain_nemotron4_340b_bf16_gpus256_tp8_pp8_cp1_vp12_mbs1_gbs64"
    )
    wording("single", done.stderr)


def test_one_workload_needs_no_more_than_the_gpu_count(direct: Direct) -> None:
    job = job_of(direct("nemotronh", JOB_TOTAL_GPUS="256"))
    assert (job["model_size"], job["dtype"], job["gpu_type"], job["scale"]) == (
        "56b",
        "fp8",
        "h100",
        256,
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MAX_STEPS": "10"}, {"max_steps": 10}),
        ({"TIME_LIMIT": "01:00:00"}, {"time_limit": "01:00:00"}),
        ({"GBS": "512"}, {"gbs": 512, "ga": 8}),
        ({"GPUS_PER_NODE": "4"}, {"nodes": 16, "gpus_per_node": 4}),
        ({"DTYPE": "BF16", "GPU_TYPE": "H100"}, {"dtype": "bf16", "gpu_type": "h100"}),
        ({"ENABLE_PROFILE": "true"}, {"profile": True, "max_steps": 50}),
        (
            {
                "ENABLE_PROFILE": "1",
                "PROFILE_START_STEP": "46",
                "PROFILE_STOP_STEP": "60",
                "ENABLE_GPU_METRICS": "true",
            },
            {
                "max_steps": 60,
                "switches": {
                    "profile_start": 46,
                    "profile_stop": 60,
                    "profile_ranks": "0-7",
                    "gpu_metrics": True,
                },
            },
        ),
        (
            {"ENABLE_NCCLTRACE": "true"},
            {"max_steps": 5, "time_limit": "00:15:00", "switches": {"nccl_trace": True}},
        ),
        ({"ENABLE_CHECKPOINT": "true"}, {"switches": {"save_checkpoint": True}}),
        ({"LOAD_CHECKPOINT_PATH": "/c"}, {"max_steps": 1, "switches": {"load_checkpoint": "/c"}}),
        ({"ENABLE_VBOOST": "false"}, {"switches": {"vboost": False}}),
        ({"ENABLE_VBOOST": "1"}, {"switches": {"vboost": True}}),
        ({"RUN_CONF_IMAGE": "/images/own.sqsh"}, {"image": "/images/own.sqsh"}),
        ({"RUN_CONF_MOUNTS": "/a:/b,/c"}, {"switches": {"mounts": ["/a:/b", "/c:/c"]}}),
        (
            {
                "STRONG_SCALING": "false",
                "ENABLE_PROFILE": "false",
                "ENABLE_CHECKPOINT": "",
                "GBS": " ",
            },
            {"gbs": 256, "profile": False},
        ),
        ({"CLUSTER_TYPE": "slurm"}, {"scale": 64}),
        ({"TP": "4", "MBS": "1"}, {"tp": 4, "mbs": 1, "dp": 16}),
        ({"PP": "2", "VP": "8", "CP": "2"}, {"pp": 2, "vp": 8, "cp": 2}),
        ({"NUM_LAYERS": "16"}, {"num_layers": 16}),
        ({"RUN_CONF_MAX_STEPS": "9"}, {"max_steps": 9}),
    ],
)
def test_each_variable(variables: dict[str, str], expected: dict[str, Any], direct: Direct) -> None:
    job = job_of(direct("nemotron4", JOB_TOTAL_GPUS="64", **variables))
    assert {name: job[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("workload", "gpus", "expected"),
    [
        # release 25.04: its results have a folder each
        ("llama3.1", "16", [(False, 50), (True, 25)]),
        ("nemotron4", "16", [(True, 50)]),  # 25.07
        ("nemotronh", "32", [(True, 50)]),  # 25.05
    ],
)
def test_enable_profile_is_as_many_jobs_as_in_its_release(
    workload: str, gpus: str, expected: list[tuple[bool, int]], direct: Direct
) -> None:
    done = direct(workload, JOB_TOTAL_GPUS=gpus, ENABLE_PROFILE="true")
    assert done.returncode == 0, done.stderr
    jobs = json.loads(done.stdout)["jobs"]
    assert [(job["profile"], job["max_steps"]) for job in jobs] == expected
    assert [job["experiment_name"].endswith("_nsys") for job in jobs] == [
        profile for profile, _ in expected
    ]
    notes = [line for line in done.stderr.splitlines() if "ENABLE_PROFILE gives" in line]
    assert len(notes) == len(expected) - 1


def test_the_option_profiles_one_job(direct: Direct) -> None:
    assert (
        job_of(direct("llama3.1", "-p", JOB_TOTAL_GPUS="16", ENABLE_PROFILE="true"))["profile"]
        is True
    )


def test_the_nodes_of_release_24_11_are_a_scale(
    direct: Direct, wording: Callable[..., None]
) -> None:
    """Its page: DTYPE=... MODEL_SIZE=340b sbatch -N ${NUM_NODES}, of 8 GPUs each; the batch is
    twice the nodes.
    """
    done = direct("nemotron4", NUM_NODES="16", MODEL_SIZE="340b", DTYPE="bf16")
    job = job_of(done)
    assert (job["scale"], job["nodes"], job["gpus_per_node"], job["gbs"]) == (128, 16, 8, 32)
    wording("single", done.stderr)
    job = job_of(direct("nemotron4", NUM_NODES="16", GPUS_PER_NODE="4", DTYPE="bf16"))
    assert (job["scale"], job["nodes"]) == (64, 16)
    assert job_of(direct("nemotron4", NUM_NODES="16", JOB_TOTAL_GPUS="128"))["scale"] == 128
    done = direct("nemotron4", "--scale", 32, NUM_NODES="16")
    assert job_of(done)["scale"] == 32
    wording("single", done.stderr)


def test_nodes_and_gpus_that_do_not_agree(direct: Direct, wording: Callable[..., None]) -> None:
    done = direct("nemotron4", NUM_NODES="16", JOB_TOTAL_GPUS="64")
    assert (done.returncode, done.stdout) == (2, "")
    wording("single", done.stderr)


def test_the_option_of_sbatch_for_nodes_names_what_to_write(
    llmb_here: Command, cluster: Cluster, wording: Callable[..., None]
) -> None:
    words = (
        "single",
        "-w",
        "nemotron4",
        "-s",
        "340b",
        "--scale",
        128,
        "-d",
        "--install",
        cluster(),
    )
    done = llmb_here(*words, "--slurm-arg", "nodes=16")
    assert done.returncode == 2
    wording("single", done.stderr)


# Variables of the launch scripts that no option replaces, or that are replaced in another way.
UNREAD = (
    "CHECKPOINT_INTERVAL",
    "HIDDEN_SIZE",
    "FSDP",
    "CPU_PER_TASK_PINNING",
    "CONFIG_VARIANT",
    "OPTIMIZATION_NAME",
)


@pytest.mark.parametrize("name", UNREAD)
def test_a_variable_without_effect_is_named(
    name: str, direct: Direct, wording: Callable[..., None]
) -> None:
    done = direct("nemotron4", JOB_TOTAL_GPUS="64", **{name: "3"})
    assert (
        job_of(done)["experiment_name"]
        == "pretrain_nemotron4_15b_fp8_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"
    )
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("note: not used: "))
    assert f"{name} (" in line
    wording("single", line)


@pytest.mark.parametrize("command", ["single", "submit", "submit-all"])
def test_additional_slurm_params(
    command: str,
    llmb_here: Command,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """Its pages: ADDITIONAL_SLURM_PARAMS="nodelist=node001;..." before any command; here options
    override it.
    """
    monkeypatch.setenv(
        "ADDITIONAL_SLURM_PARAMS", "nodelist=node001,node002; --exclude=bad ;contiguous;"
    )
    words = (
        ("-w", "nemotron4", "-s", "15b")
        if command == "single"
        else ("--workloads", "nemotron4_15b")
    )
    given = (*words, "--scale", 64, "--dtype", "fp8", "--exclude", "n9", "-d", "--format", "json")
    done = llmb_here(command, *given, "--install", cluster())
    script = job_of(done)["script"]
    assert [
        line for line in script.splitlines() if re.search("nodelist|exclude|contiguous", line)
    ] == [
        "#SBATCH --nodelist=node001,node002",
        "#SBATCH --exclude=n9",
        "#SBATCH --contiguous",
    ]
    notes = [line for line in done.stderr.splitlines() if "ADDITIONAL" in line]
    assert len(notes) == 2
    wording("single", "\n".join(notes))


@pytest.mark.parametrize(
    ("text", "cluster_type"), [("array=1-4", "slurm"), ("nodelist=n1", "local")]
)
def test_slurm_params_that_cannot_be(
    text: str, cluster_type: str, direct: Direct, cluster: Cluster, wording: Callable[..., None]
) -> None:
    install = cluster(cluster_type, name=cluster_type)
    done = direct(
        "nemotron4", "--install", install, JOB_TOTAL_GPUS="64", ADDITIONAL_SLURM_PARAMS=text
    )
    assert (done.returncode, done.stdout) == (2, "")
    wording("single", done.stderr)


@pytest.mark.parametrize(
    ("variables", "dtype"),
    [
        ({"FP8_RECIPE": "mx"}, "fp8_mx"),
        ({"FP8_RECIPE": "CS"}, "fp8_cs"),
        ({"FP8_RECIPE": "mx", "DTYPE": "fp8"}, "fp8_mx"),
        ({"FP8_RECIPE": "mx", "DTYPE": "bf16"}, "bf16"),
        ({"FP8_RECIPE": "mx", "DTYPE": "nvfp4"}, "nvfp4"),
    ],
)
def test_the_recipe_of_fp8(
    variables: dict[str, str], dtype: str, direct: Direct, cluster: Cluster
) -> None:
    """As its launch.sh joins DTYPE and FP8_RECIPE, which matters for fp8 alone."""
    install = cluster(gpu_type="gb300", name="gb300")
    job = job_of(
        direct("llama3.1", "-s", "70b", "--install", install, JOB_TOTAL_GPUS="64", **variables)
    )
    assert job["dtype"] == dtype


def test_the_recipe_of_fp8_with_nemo(direct: Direct, wording: Callable[..., None]) -> None:
    job = job_of(direct("llama3.1", "-s", "70b", JOB_TOTAL_GPUS="64", FP8_RECIPE="ds"))
    assert (job["dtype"], job["switches"]["fp8"]) == ("fp8", "delayed")
    for recipe in ("cs", "ss"):  # what NeMo's rows do not have, and what nothing here has
        done = direct("llama3.1", "-s", "70b", JOB_TOTAL_GPUS="64", FP8_RECIPE=recipe)
        assert (done.returncode, done.stdout) == (2, "")
        wording("single", done.stderr)


@pytest.mark.parametrize("recipe", ["ds", "cs"])
def test_a_scaling_of_fp8_on_the_command_line_overrides_the_recipe(
    recipe: str, direct: Direct
) -> None:
    done = direct(
        "llama3.1", "-s", "70b", "--set", "fp8=current", JOB_TOTAL_GPUS="64", FP8_RECIPE=recipe
    )
    job = job_of(done)
    assert (job["dtype"], job["switches"]["fp8"]) == ("fp8", "current")
    assert "FP8_RECIPE (--set fp8 is given)" in done.stderr


def test_the_ranks_of_a_profile(direct: Direct, wording: Callable[..., None]) -> None:
    job = job_of(direct("nemotron4", JOB_TOTAL_GPUS="64", ENABLE_PROFILE="1", PROFILE_RANKS="0-8"))
    assert job["switches"]["profile_ranks"] == "0-8"
    done = direct("nemotron4", JOB_TOTAL_GPUS="64", PROFILE_RANKS="0-8")
    wording("single", done.stderr)


@pytest.mark.parametrize("name", ["SBATCH_RESERVATION", "SBATCH_QOS"])
def test_options_of_slurm_in_the_shell_are_used(name: str, direct: Direct) -> None:
    job = job_of(direct("nemotron4", JOB_TOTAL_GPUS="64", **{name: "own"}))
    assert f"#SBATCH --{name.removeprefix('SBATCH_').lower()}=own\n" in job["script"]


def test_a_variable_of_the_scripts_in_the_configuration_is_named(
    llmb_here: Command, cluster: Cluster, wording: Callable[..., None]
) -> None:
    """NVIDIA's cluster_config.yaml sets them there, for its launch scripts."""
    own = {
        "config": {
            "pretrain_nemotron4": {
                "environment": {"ADDITIONAL_SLURM_PARAMS": "nodelist=n1,n2;exclusive"}
            }
        }
    }
    install = cluster(environment={"RUN_CONF_MOUNTS": "/a:/b", "NCCL_DEBUG": "WARN"}, workloads=own)
    done = llmb_here(*SINGLE, "-w", "nemotron4", "--scale", 16, "--install", install)
    job_of(done)
    assert [
        line.split()[1] for line in done.stderr.splitlines() if line.startswith("warning: ")
    ] == [
        "environment",
        "workloads.config.pretrain_nemotron4.environment",
    ]
    wording("single", done.stderr)


def test_a_lists_environment_steers_a_job_as_nvidias_scripts_do(
    llmb_here: Command, cluster: Cluster, tmp_path: Path, wording: Callable[..., None]
) -> None:
    env = (
        "MAX_STEPS: 100, GBS: 128, ENABLE_CHECKPOINT: 'true', RUN_CONF_IMAGE: a/b:1, TIME_LIMIT:"
        " '01:00:00', TP: 4"
    )
    path = tmp_path / "jobs.yaml"
    path.write_text(
        f"nemotron4_15b:\n  dtypes: fp8\n  scales: [16]\n  overrides: {{env: {{{env}, NOTE: x}}}}\n"
    )
    done = llmb_here("submit-all", path, "--install", cluster(), "-d", "--format", "json")
    job = job_of(done)
    assert (job["max_steps"], job["gbs"], job["tp"]) == (100, 128, 4)
    assert (job["time_limit"], job["image"], job["env"]["NOTE"]) == ("01:00:00", "a/b:1", "x")
    assert job["switches"]["save_checkpoint"] is True
    assert not {"MAX_STEPS", "GBS", "TP", "RUN_CONF_IMAGE"} & job["env"].keys()
    wording("submit-all", done.stderr)
    path.write_text(
        "nemotron4_15b:\n  scales: [16]\n  overrides: {env: {HIDDEN_SIZE: 1, JOB_TOTAL_GPUS: 32}}\n"
    )
    done = llmb_here("submit-all", path, "--install", cluster(name="other"), "-d")
    assert done.returncode == 2
    wording("submit-all", done.stderr)


def test_an_option_overrides_a_variable_and_that_is_printed(
    direct: Direct, wording: Callable[..., None]
) -> None:
    done = direct(
        "nemotron4",
        "--scale",
        64,
        "--set",
        "gbs=512",
        "--dtype",
        "fp8",
        JOB_TOTAL_GPUS="128",
        GBS="1024",
        DTYPE="bf16",
        MAX_STEPS="7",
    )
    job = job_of(done)
    assert (job["scale"], job["gbs"], job["dtype"], job["max_steps"]) == (64, 512, "fp8", 7)
    wording("single", done.stderr)


def test_switches_of_a_profile_without_one(direct: Direct, wording: Callable[..., None]) -> None:
    done = direct(
        "nemotron4", JOB_TOTAL_GPUS="64", PROFILE_STOP_STEP="20", ENABLE_GPU_METRICS="false"
    )
    assert job_of(done)["max_steps"] == 50
    wording("single", done.stderr)


@pytest.mark.parametrize(
    "variables",
    [
        {"JOB_TOTAL_GPUS": "many"},
        {"JOB_TOTAL_GPUS": "0"},
        {"JOB_TOTAL_GPUS": "100"},
        {"GPU_TYPE": "gb200"},
        {"DTYPE": "fp9"},
        {"MODEL_SIZE": "16b"},
        {"CLUSTER_TYPE": "runai"},
        {"GPUS_PER_NODE": "7"},
        {"MAX_STEPS": "-1"},
        {"TIME_LIMIT": "30"},
        {"GBS": "7"},
        {"STRONG_SCALING": "true"},
        {"STRONG_SCALING": "perhaps"},
        {"ENABLE_PROFILE": "2"},
        {"ENABLE_PROFILE": "true", "PROFILE_START_STEP": "50"},
        {"ENABLE_PROFILE": "true", "ENABLE_NCCLTRACE": "true"},
        {"PROFILE_STOP_STEP": "x"},
        {"LOAD_CHECKPOINT_PATH": "/c", "JOB_TOTAL_GPUS": "16"},
        {"RUN_CONF_MOUNTS": "a:b"},
    ],
)
def test_a_wrong_value_names_its_variable(
    variables: dict[str, str], direct: Direct, wording: Callable[..., None]
) -> None:
    done = direct("nemotron4", **{"JOB_TOTAL_GPUS": "64", **variables})
    assert (done.returncode, done.stdout) == (2, "")
    *_, name = variables
    assert name in done.stderr
    wording("single", done.stderr)
    assert "hint: " in done.stderr


def test_all_wrong_values_at_once(direct: Direct) -> None:
    done = direct("nemotron4", JOB_TOTAL_GPUS="x", GBS="y", ENABLE_PROFILE="z")
    assert done.stderr.count("error: ") == 3


def test_no_gpu_count_at_all(direct: Direct, wording: Callable[..., None]) -> None:
    done = direct("nemotron4")
    assert done.returncode == 2
    wording("single", done.stderr)


def test_the_variables_are_for_single_alone(
    cluster: Cluster,
    llmb_here: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    (tmp_path / "jobs.txt").write_text("nemotron4_15b:\n('fp8', [16], 1)\n")
    for name, value in (
        ("MAX_STEPS", "7"),
        ("ENABLE_PROFILE", "true"),
        ("DTYPE", "bf16"),
        ("GBS", "x"),
    ):
        monkeypatch.setenv(name, value)
    done = llmb_here(
        "submit-all", tmp_path / "jobs.txt", "--install", cluster(), "-d", "--format", "json"
    )
    job = job_of(done)
    assert (job["max_steps"], job["profile"], job["dtype"]) == (50, False, "fp8")
    wording("submit-all", done.stderr)


def test_a_workload_of_one_of_the_clusters_gpu_types_needs_none(
    cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    install = cluster("slurm", "a100", gpu_types={"h100": {"partition": "hopper"}})
    done = llmb_here(*SINGLE, "-w", "nemotronh", "--scale", 64, "--install", install)
    assert job_of(done)["gpu_type"] == "h100"
    wording("single", done.stderr)


@pytest.mark.parametrize(
    "command", [("config",), ("jobs", "list"), ("single", "-w", "nemotron4", "--scale", 16, "-d")]
)
def test_stage_path_beside_llmb_install_is_an_error(
    command: tuple[object, ...],
    cluster: Cluster,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    monkeypatch.setenv("STAGE_PATH", "/old")
    done = llmb_here(*command, "--install", cluster())
    assert (done.returncode, done.stdout) == (2, "")
    wording("config", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (("--set", "tp=3"), {}),
        (("--set", "gbs=33"), {}),
        (("--set", "num_layers=97"), {}),
        (("-w", "llama3.1", "-s", "405b", "--scale", "512", "--set", "num_layers=120"), {}),
        ((), {"ENABLE_PROFILE": "TRUE", "PROFILE_START_STEP": "50", "PROFILE_STOP_STEP": "45"}),
        ((), {"GPUS_PER_NODE": "16"}),
        ((), {"RUN_CONF_IMAGE": "3"}),
    ],
)
def test_a_fault_is_at_what_caused_it(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    direct: Direct,
    wording: Callable[..., None],
) -> None:
    done = direct(
        "nemotron4", "-s", "340b", *arguments, JOB_TOTAL_GPUS="128", DTYPE="bf16", **variables
    )
    assert done.returncode == 2
    wording("single", done.stderr)


def test_independent_faults_are_reported_at_once(direct: Direct) -> None:
    wrong = {"GPU_TYPE": "h1000", "DTYPE": "bf17", "ENABLE_PROFILE": "1", "ENABLE_NCCLTRACE": "1"}
    done = direct("nemotron4", JOB_TOTAL_GPUS="64", **wrong)
    assert (done.returncode, done.stdout) == (2, "")
    errors = [
        line.removeprefix("error: ")
        for line in done.stderr.splitlines()
        if line.startswith("error: ")
    ]
    assert [line.partition(": ")[0] for line in errors] == [
        "GPU_TYPE=h1000",
        "DTYPE=bf17",
        "ENABLE_PROFILE=1 ENABLE_NCCLTRACE=1",
    ]
    done = direct(
        "nemotron4",
        "--env",
        "RANK=1",
        "--set",
        "tp=0",
        "--set",
        "x=1",
        "--image",
        "3",
        JOB_TOTAL_GPUS="x",
    )
    assert done.stderr.count("error: ") == 5
