# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands for a plugin's benchmark that trains no model: list, dry runs, refusals, a
run, jobs list.
"""

import csv
import importlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb.plugins.loaded import Plugins
from llmb_testing.plugin_writer import write_benchmark

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Wording = Callable[..., None]

JOBS = """\
netbench_all_reduce:
  scales: [8, 16]
  defaults: {params: {message_size: [1M, 256M], max_steps: 5}}
netbench_send_receive:
  scales: [16]
  overrides: {params: {algorithm: ring}}
"""


@pytest.fixture(autouse=True)
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plugin, installed for this test; its module is forgotten afterwards."""
    write_benchmark(tmp_path / "plugins", "netbench")
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    importlib.invalidate_caches()
    yield
    sys.modules.pop("netbench", None)


@pytest.fixture
def install(cluster: Cluster) -> Path:
    return cluster(
        slurm={"account": "a", "container": "none"}, workloads={"installed": ["netbench"]}
    )


@pytest.fixture
def joblist(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    return path


def test_the_list_shows_metrics_and_parameters(install: Path, llmb_here: Command) -> None:
    done = llmb_here("list", "--install", install, "--format", "json")
    rows = {row["size"]: row for row in json.loads(done.stdout) if row["workload"] == "netbench"}
    latency = rows["send_receive"]["metrics"][0]
    assert {key: latency[key] for key in ("name", "unit", "better")} == {
        "name": "latency",
        "unit": "us",
        "better": "lower",
    }
    assert [one["name"] for one in rows["all_reduce"]["metrics"]] == ["busbw", "algbw", "latency"]
    assert rows["all_reduce"]["parameters"] == {
        "message_size": {"default": "16M", "choices": ["1M", "16M", "256M"]},
        "algorithm": {"default": "auto", "choices": []},
    }
    from_csv = csv.DictReader(
        io.StringIO(llmb_here("list", "--install", install, "--format", "csv").stdout)
    )
    (own,) = (
        row for row in from_csv if (row["workload"], row["size"]) == ("netbench", "all_reduce")
    )
    assert (own["metrics"], own["parameters"]) == (
        "busbw, algbw, latency",
        "message_size=16M, algorithm=auto",
    )


def test_the_rows_of_one_workload(install: Path, llmb_here: Command, wording: Wording) -> None:
    done = llmb_here("list", "-w", "net-bench", "--install", install)
    assert done.returncode == 0
    wording("list", done.stdout + done.stderr)
    row, _ = json.loads(
        llmb_here("list", "-w", "netbench", "--install", install, "--format", "json").stdout
    )
    assert (row["scales"], row["memory_gb"]) == ([1, 2, 4, 8, 16, 32, 64], None)
    assert {
        row[name] for name in ("layers", "tp", "mbs", "gbs", "dp", "ga", "scaling", "releases")
    } == {None}


def test_a_dry_run_as_a_table(
    install: Path, joblist: Path, llmb_here: Command, wording: Wording
) -> None:
    done = llmb_here("submit-all", joblist, "--install", install, "-d")
    assert done.returncode == 0
    wording("submit-all", done.stdout + done.stderr)
    assert not {"TP", "GBS", "GA"} & set(done.stdout.split())


def test_a_dry_run_as_data(install: Path, joblist: Path, llmb_here: Command) -> None:
    done = llmb_here("submit-all", joblist, "--install", install, "-d", "--format", "json")
    jobs = json.loads(done.stdout)["jobs"]
    assert [
        (job["scale"], job["nodes"], job["max_steps"], *job["parameters"].values()) for job in jobs
    ] == [
        (8, 1, 5, "1M", "auto"),
        (8, 1, 5, "256M", "auto"),
        (16, 2, 5, "1M", "auto"),
        (16, 2, 5, "256M", "auto"),
        (16, 2, 20, "16M", "ring"),
    ]
    training = ("tp", "pp", "cp", "vp", "ep", "dp", "mbs", "gbs", "ga", "seq_length", "num_layers")
    assert {job[name] for job in jobs for name in training} == {None}
    assert jobs[4]["time_limit"] == "00:05:00"
    assert "--case=send_receive --steps=20 --message_size=16M --algorithm=ring" in jobs[4]["script"]
    done = llmb_here("submit-all", joblist, "--install", install, "-d", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [json.loads(row["parameters"])["message_size"] for row in rows] == [
        "1M",
        "256M",
        "1M",
        "256M",
        "16M",
    ]
    assert (rows[0]["gbs"], rows[0]["tp"]) == ("", "")
    done = llmb_here("submit-all", joblist, "--install", install, "-d", "--format", "md")
    head, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()
    )
    assert [line[head.index("message_size")] for line in lines] == [
        "1M",
        "256M",
        "1M",
        "256M",
        "16M",
    ]


def test_set_chooses_a_value(install: Path, llmb_here: Command, wording: Wording) -> None:
    words = (
        "single",
        "-w",
        "netbench",
        "--scale",
        8,
        "--install",
        install,
        "-d",
        "--set",
        "message_size=256M",
    )
    done = llmb_here(*words, "--format", "json")
    (job,) = json.loads(done.stdout)["jobs"]
    assert job["parameters"] == {"message_size": "256M", "algorithm": "auto"}
    assert job["experiment_name"] == "netbench_all_reduce_bf16_gpus8_message_size256M_algorithmauto"
    wording("single", (done := llmb_here(*words)).stdout + done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "message_size=255M"),
        ("--set", "mesage_size=1M"),
        ("--set", "tp=2", "--gbs", 4, "--set", "fp8=current", "-p"),
        ("--strong-scaling", "--save-checkpoint"),
        ("-w", "nemotron4_15b", "--set", "message_size=1M"),
    ],
)
def test_refusals(
    arguments: tuple[object, ...], install: Path, llmb_here: Command, wording: Wording
) -> None:
    done = llmb_here(
        "single", "-w", "netbench", "--scale", 16, "--install", install, "-d", *arguments
    )
    assert (done.returncode, done.stdout) == (2, "")
    wording("single", done.stderr)


def test_a_variable_of_training_is_named(
    install: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("GBS", "4")
    done = llmb_here("single", "-w", "netbench", "--scale", 16, "--install", install, "-d")
    assert done.returncode == 2
    wording("single", done.stderr)


def test_a_list_has_all_its_faults_with_their_lines(
    install: Path, tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    text = JOBS.replace("1M, 256M", "1M, 255M").replace("algorithm: ring", "algoritm: ring, tp: 2")
    (tmp_path / "bad.yaml").write_text(text + "  save_checkpoint: true\n  add_profile: true\n")
    done = llmb_here("submit-all", tmp_path / "bad.yaml", "--install", install)
    assert (done.returncode, done.stdout) == (2, "")
    wording("submit-all", done.stderr)


def test_discovery_finds_its_sizes(install: Path, llmb_here: Command, wording: Wording) -> None:
    done = llmb_here(
        "submit-all", "--max-scale", 16, "--install", install, "-d", "--format", "json"
    )
    found = {
        (job["model_size"], job["dtype"], job["scale"]) for job in json.loads(done.stdout)["jobs"]
    }
    of_all = {
        ("all_reduce", dtype, scale) for dtype in ("bf16", "fp32") for scale in (1, 2, 4, 8, 16)
    }
    assert found == of_all | {("send_receive", "bf16", 16)}
    for flag in ("--strong-scaling", "--profile"):  # nothing else is installed
        done = llmb_here("submit-all", "--max-scale", 16, flag, "--install", install, "-d")
        assert done.returncode == 2
        wording("submit-all", done.stderr)


def test_plugins_check_finds_no_fault_unless_nothing_launches_it(
    tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    done = llmb_here("plugins", "check")
    assert (done.returncode, done.stderr.count("error: ")) == (0, 0)
    module = tmp_path / "plugins" / "netbench" / "__init__.py"
    module.write_text(module.read_text().partition("@hookimpl\ndef llmb_launch")[0])
    sys.modules.pop("netbench", None)
    done = llmb_here("plugins", "check")
    assert done.returncode == 1
    wording("plugins-check", done.stderr)


def test_memory_of_a_row_is_checked(cluster: Cluster, tmp_path: Path, llmb_here: Command) -> None:
    table = tmp_path / "plugins" / "netbench" / "workload.yaml"
    table.write_text(table.read_text().replace("memory_gb: 10", "memory_gb: 300"))
    install = cluster(slurm={"container": "none"}, workloads={"installed": ["netbench"]})
    words = ("single", "-w", "netbench_send_receive", "--scale", 16, "--install", install)
    assert (
        "netbench_send_receive_bf16_gpus16_message_size16M_algorithmauto needs GPUs with 300 GB of"
        " memory" in (llmb_here(*words).stderr)
    )


def test_runs_differ_in_the_jobs_list(cluster: Cluster, llmb_here: Command) -> None:
    here = cluster("local", workloads={"installed": ["netbench"]})
    words = ("single", "-w", "netbench", "--scale", 1, "--install", here, "--no-preflight")
    for size in ("1M", "16M"):
        done = llmb_here(*words, "--set", f"message_size={size}", "--wait")
        assert done.returncode == 0, done.stderr
    both = ("jobs", "list", "--session", "all", "--install", here)
    done = llmb_here(*both)
    assert [word for word in done.stdout.split() if word.startswith("message_size=")] == [
        "message_size=1M",
        "message_size=16M",
    ]
    rows = json.loads(llmb_here(*both, "--format", "json").stdout)
    shown = llmb_here("jobs", "show", rows[0]["id"], "--install", here, "--format", "json")
    assert json.loads(shown.stdout)["job"]["parameters"] == {
        "message_size": "1M",
        "algorithm": "auto",
    }
    assert [row["parameters"]["message_size"] for row in rows] == ["1M", "16M"]
    log = next(here.rglob("log-*message_size1M*.out"))
    assert log.read_text().splitlines()[-1] == "llmb step 19/19 busbw=481 algbw=270.5 latency=35.5"


def test_a_run_that_nothing_has_read_outlives_its_plugin(
    cluster: Cluster, tmp_path: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "plugins" / "netbench" / "__init__.py"
    hook = (
        "ParseSpec(needle='llmb step', iteration=r'step (?P<i>\\d+)/(?P<last>\\d+)', keys={'busbw':"
        " 'algbw'})"
    )
    hook = (
        f"@hookimpl\ndef llmb_parse():\n    from llmb.api import ParseSpec\n\n    return {hook}\n"
    )
    module.write_text(f"{module.read_text()}\n\n{hook}")
    here = cluster("local", workloads={"installed": ["netbench"]})
    done = llmb_here("single", "-w", "netbench", "--scale", 1, "--install", here, "--no-preflight")
    assert done.returncode == 0, done.stderr
    assert llmb_here("jobs", "wait", "--install", here).returncode == 0
    assert not list(here.rglob("summary.json"))
    monkeypatch.setattr(Plugins, "workloads", lambda _: {})
    (row,) = json.loads(llmb_here("results", "--install", here, "--format", "json").stdout)[
        "results"
    ]
    assert (row["status"], row["headline"]) == ("Success", "busbw")
    busbw = row["metrics"]["busbw"]
    assert {key: busbw[key] for key in ("mean", "std", "n", "unit", "better")} == {
        "mean": 270.5,
        "std": 0.0,
        "n": 15,
        "unit": "GB/s",
        "better": "higher",
    }
