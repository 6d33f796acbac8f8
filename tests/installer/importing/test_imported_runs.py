# SPDX-License-Identifier: Apache-2.0
"""Imported runs in llmb-run: GPU type, framework, window of their release, verdict, profile, and no
second attempt.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.core import shell
from llmb.plugins.loader import load_plugins
from llmb_installer.importing.carry import ImportPlan, plan_import
from llmb_testing import exemplar_folder as exemplar

DoImport = Callable[..., ImportPlan]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def results(source: Path, do_import: DoImport, llmb_here: Command) -> dict[str, dict[str, Any]]:
    """The results of the imported runs, by Slurm's id of the job."""
    plan = do_import(source)
    ids = {run.record.id: str(run.record.scheduler_id) for run in plan.runs}
    done = llmb_here("results", "--format", "json", "--install", plan.target)
    assert done.returncode == 3, "a run is cancelled, another invalid"
    return {ids[one["run"]]: one for one in json.loads(done.stdout)["results"]}


def test_results_of_every_release(results: dict[str, dict[str, Any]]) -> None:
    """1.98 s is the published time of release 25.04; the windows are those of the releases that ran
    the jobs.
    """
    assert sorted(results) == ["101", "102", "103", "104", "105"]
    first, late, profiled, cancelled, bridge = (results[job] for job in sorted(results))
    assert (first["status"], first["window"], first["verdict"]) == ("Success", [11, 44], "PASS")
    assert first["ratio"] == pytest.approx(1.0)
    assert first["configuration"]["gpu_type"] == "h100"
    assert first["configuration"]["image"] == "nvcr.io/nvidia/nemo:25.04.01"
    # its other steps took 9 s
    assert (late["window"], late["time_mean_seconds"]) == ([35, 44], 2.0)
    assert (profiled["verdict"], profiled["configuration"]["profile"]) == ("INVALID", True)
    assert (cancelled["status"], cancelled["state"], cancelled["max_iteration"]) == (
        "Cancelled",
        "CANCELLED",
        19,
    )
    own = bridge["configuration"]
    assert (own["framework"], own["release"], own["dtype"], own["gpu_type"]) == (
        "bridge",
        "26.02.01",
        "fp8_cs",
        "gb300",
    )
    assert (bridge["window"], bridge["verdict"], bridge["same_window"]) == ([35, 44], "PASS", True)
    assert bridge["tokens_per_second_per_gpu"] == pytest.approx(5243, rel=1e-3)


def test_a_run_of_cloudai_below_the_folder_is_taken_too(
    source: Path, do_import: DoImport, llmb_here: Command
) -> None:
    """Its folders are the name of its run in CloudAI, which names one folder of llmb."""
    (original,) = (source / "workloads").rglob("log-*_101_*.out")
    experiments = source / "workloads" / exemplar.KEYS[1] / "experiments"
    folder = experiments / "nightly" / original.parent.name / "0"
    folder.mkdir(parents=True)
    (folder / "stdout.txt").write_bytes(original.read_bytes())
    (folder / "test-run.toml").touch()
    plan = do_import(source)
    (run,) = (run for run in plan.runs if run.log.name == "stdout.txt")
    assert run.record.directory.parent.name == f"nightly_{original.parent.name}_0"
    done = llmb_here("results", run.record.id, "--format", "json", "--install", plan.target)
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "Success"
    assert result["time_mean_seconds"] == pytest.approx(1.98)


def test_many_runs_beside_a_plugins_framework(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The functions of a plugin cannot be sent to the processes that read thousands of logs."""
    monkeypatch.setattr(shell, "WORTH_PROCESSES", 2)
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "titan.py").write_text(
        "from llmb.api import Framework, hookimpl\n"
        "@hookimpl\n"
        "def llmb_frameworks():\n"
        "    nothing = lambda *arguments: None\n"
        "    return [Framework(name='titan', title='Titan', needs=nothing, launch=nothing)]\n"
    )
    monkeypatch.setenv("LLMB_PLUGINS", str(folder))
    plugins = load_plugins(builtin_plugins())
    assert len(plan_import(source, None, plugins, {}).runs) == 5


def test_parse_reads_the_file_beside_a_log(source: Path, llmb_here: Command) -> None:
    """Without an import: the file names the GPU type, and its release the window; options override
    it.
    """
    folder = source / "workloads" / exemplar.KEYS[1]
    logs = json.loads(llmb_here("parse", folder, "--format", "json").stdout)["results"]
    windows = {
        one["configuration"]["gpu_type"]: one["window"] for one in logs if "_102_" in one["path"]
    }
    assert windows == {"h100": [35, 44]}
    assert [one["verdict"] for one in logs if "_101_" in one["path"]] == ["PASS"]
    done = llmb_here("parse", folder, "--gpu-type", "b200", "--format", "json")
    assert {one["configuration"]["gpu_type"] for one in json.loads(done.stdout)["results"]} == {
        "b200"
    }


def test_other_commands_know_them(
    source: Path, do_import: DoImport, llmb_here: Command, tmp_path: Path
) -> None:
    plan = do_import(source)
    at = ("--install", plan.target)
    rows = json.loads(llmb_here("compare", *at, "--format", "json").stdout)["comparisons"]
    assert sorted(row["verdict"] or row["status"] for row in rows) == [
        "Cancelled",
        "INVALID",
        "PASS",
        "PASS",
        "PASS",
    ]
    page = tmp_path / "report.html"
    assert llmb_here("report", *at, "-o", page).returncode == 3
    assert all(run.record.id in page.read_text() for run in plan.runs)
    assert llmb_here("explain", "105", *at).returncode == 0
    shown = json.loads(llmb_here("jobs", "show", "105", *at, "--format", "json").stdout)
    assert (shown["origin"]["release"], shown["script"]) == ("26.02.01", None)
    assert llmb_here("jobs", "show", "105", *at).returncode == 0
    assert llmb_here("jobs", "show", "105", "--script", *at).returncode == 1
    listed = json.loads(llmb_here("jobs", "list", *at, "--format", "json").stdout)
    assert {job["state"] for job in listed} == {"COMPLETED", "CANCELLED"}


def test_no_second_attempt(
    source: Path, do_import: DoImport, llmb_here: Command, wording: Callable[..., None]
) -> None:
    plan = do_import(source)
    (failed,) = (run.record for run in plan.runs if run.state.state == "CANCELLED")
    done = llmb_here("jobs", "retry", failed.id, "--install", plan.target)
    assert done.returncode == 2
    wording("jobs-retry", done.stderr, {failed.id: "<id>"})
    done = llmb_here("jobs", "retry", "--failed", "--install", plan.target)
    assert (done.returncode, failed.directory.joinpath("attempt-2").exists()) == (0, False)


def test_a_run_that_may_still_run_comes_with_a_later_import(
    tmp_path: Path, do_import: DoImport
) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "25.08")
    log = exemplar.write_run(
        folder, exemplar.KEYS[1], exemplar.NEMO, 7, exemplar.nemo_log(2.0, upto=30)
    )
    (item,) = (item for item in do_import(folder).items if item.kind == "run")
    assert (item.action, item.code) == ("leave", "run-not-ended")
    log.write_text(exemplar.nemo_log(2.0))
    (run,) = do_import(folder).runs
    assert (run.state.state, run.record.origin is not None) == ("COMPLETED", True)
    # from the cluster's configuration: release 25.05 writes no file beside it
    assert run.record.job.gpu_type == "h100"


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("CANCELLED AT 2025-11-22T09:41:00 DUE TO TIME LIMIT", "TIMEOUT"),
        ("CANCELLED AT 2025-11-22T09:41:00 DUE TO PREEMPTION", "PREEMPTED"),
        ("CANCELLED AT 2025-11-22T09:41:00", "CANCELLED"),
    ],
)
def test_a_log_in_which_slurm_ended_the_job_has_ended(
    end: str, state: str, tmp_path: Path, do_import: DoImport
) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "25.08")
    log = exemplar.nemo_log(2.0, upto=30) + f"slurmstepd: error: *** JOB 7 ON node001 {end} ***\n"
    exemplar.write_run(folder, exemplar.KEYS[1], exemplar.NEMO, 7, log)
    (run,) = do_import(folder).runs
    assert run.state.state == state


def test_an_old_unfinished_log_has_failed(
    tmp_path: Path, do_import: DoImport, llmb_here: Command
) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "25.08")
    text = (
        exemplar.nemo_log(2.0, upto=30)
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    log = exemplar.write_run(folder, exemplar.KEYS[1], exemplar.NEMO, 7, text)
    os.utime(log, (time.time() - 86400,) * 2)
    plan = do_import(folder)
    (one,) = json.loads(llmb_here("results", "--format", "json", "--install", plan.target).stdout)[
        "results"
    ]
    assert (one["status"], one["cause"]["kind"]) == ("Failed", "GPU out of memory")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("pretrain_grok1_314b_fp8_gpus64_tp1_pp1_cp1_mbs1_gbs64", "workload-not-offered"),
        ("pretrain_nemotron4_15b_fp8_gpus64_tp3_pp1_cp1_mbs2_gbs256", "settings-conflict"),
        ("pretrain_nemotron4_15b_fp8_gpus24", "settings-unknown"),
    ],
)
def test_runs_that_are_not_taken(name: str, code: str, tmp_path: Path, do_import: DoImport) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "25.07")
    exemplar.write_run(folder, exemplar.KEYS[1], name, 7, exemplar.nemo_log(2.0))
    (item,) = (item for item in do_import(folder).items if item.kind == "run")
    assert (item.action, item.code) == ("leave", code)


def test_results_outlive_the_original_log(
    source: Path, do_import: DoImport, llmb_here: Command
) -> None:
    plan = do_import(source)
    (run,) = (run for run in plan.runs if run.record.scheduler_id == "101")
    at = ("results", "101", "--format", "json", "--install", plan.target)
    (before,) = json.loads(llmb_here(*at).stdout)["results"]
    run.log.unlink()
    (after,) = json.loads(llmb_here(*at).stdout)["results"]
    assert (
        (after["status"], after["ratio"])
        == (before["status"], before["ratio"])
        == ("Success", pytest.approx(1.0))
    )


def test_a_gradient_that_is_not_a_number(
    tmp_path: Path, do_import: DoImport, llmb_here: Command
) -> None:
    """Such a run is invalid for exemplar-performance since 26.05 too."""
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "26.06")
    name = "pretrain_llama3_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_ep1_mbs2_gbs256"
    config = exemplar.run_config(9, "26.06.01", "llama3.1", "70b", "fp8", 64, gpu="gb300")
    text = exemplar.bridge_log(6.25, 256, gradient="nan")
    exemplar.write_run(folder, exemplar.KEYS[0], name, 9, text, config=config)
    plan = do_import(folder)
    (one,) = json.loads(llmb_here("results", "--format", "json", "--install", plan.target).stdout)[
        "results"
    ]
    assert one["verdict"] == "INVALID"


def test_names_of_release_25_05(tmp_path: Path, do_import: DoImport) -> None:
    """They end with the scale; parallelism is the table's. Of a job that Slurm requeued, the last
    attempt counts.
    """
    folder, name = tmp_path / "theirs", "pretrain_nemotron4_15b_fp8_64"
    exemplar.write_config(folder, "25.05")
    log = exemplar.write_run(
        folder, exemplar.KEYS[1], name, 389757, exemplar.nemo_log(2.0, upto=20)
    )
    log.with_name(log.name.replace("_0.out", "_1.out")).write_text(exemplar.nemo_log(2.0))
    (run,) = do_import(folder).runs
    job, training = run.record.job, run.record.job.trained
    assert (job.experiment_name, job.scale, training.gbs, training.mbs) == (name, 64, 256, 2)
    assert (run.log.name[-6:], run.state.state, run.record.scheduler_id) == (
        "_1.out",
        "COMPLETED",
        "389757",
    )


@pytest.mark.parametrize(
    ("release", "key"), [("25.05", "pretraining_nemotron"), ("25.05.04", "pretrain_nemotron")]
)
def test_nemotron4_by_its_first_name(
    release: str, key: str, tmp_path: Path, do_import: DoImport
) -> None:
    """Until release 25.07 its workload is called nemotron; the first releases write no file beside
    a run.
    """
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, release)
    config = (
        exemplar.run_config(8, release, "nemotron", "15b", "fp8", 64) if release > "25.05" else None
    )
    exemplar.write_run(folder, key, exemplar.NEMO, 8, exemplar.nemo_log(2.0), config=config)
    (run,) = do_import(folder).runs
    assert (run.record.job.workload, run.record.job.model_size) == ("pretrain_nemotron4", "15b")
    assert run.record.origin is not None
    assert run.record.origin.release == (release if config else None)


NEW_RUNS = [
    ("deepseek-v3", "671b", "fp8", "deepseek_v3_fp8_mx_gpus256_tp1_pp2_cp1_vp8_ep32_mbs1_gbs4096"),
    ("kimi-k2", "1t", "fp8", "kimi_k2_fp8_mx_gpus256_tp1_pp4_cp1_vp4_ep64_mbs2_gbs4096"),
    (
        "nemotron_3",
        "120b",
        "bf16",
        "nemotron_3_super_bf16_gpus64_tp1_pp1_cp1_vpNone_ep64_mbs1_gbs512",
    ),
    ("qwen3", "235b", "fp8", "qwen3_235b_a22b_fp8_mx_gpus256_tp1_pp4_cp1_vp12_ep32_mbs2_gbs8192"),
]


@pytest.mark.parametrize(("workload", "size", "dtype", "name"), NEW_RUNS)
def test_names_of_the_models_with_experts(
    workload: str, size: str, dtype: str, name: str, tmp_path: Path, do_import: DoImport
) -> None:
    """Its recipe and its log have other names than llmb's workload and size."""
    folder, key = tmp_path / "theirs", f"pretrain_{workload}"
    exemplar.write_config(folder, "26.08", workloads={"installed": [key], "config": {}})
    gpus, batch = (int(re.findall(rf"{word}(\d+)", name)[0]) for word in ("gpus", "gbs"))
    config = exemplar.run_config(9, "26.08.00", workload, size, dtype, gpus, gpu="gb300")
    log = exemplar.bridge_log(6.25, batch)
    exemplar.write_run(folder, key, f"pretrain_{name}", 9, log, config=config)
    plan = do_import(folder)
    (run,) = plan.runs
    job = run.record.job
    assert f"{job.workload}_{job.model_size}".startswith(
        {"671b": "pretrain_deepseek_v3", "1t": "pretrain_kimi_k2"}.get(size, "pretrain_")
    )
    assert job.dtype == ("fp8_mx" if dtype == "fp8" else dtype)
    assert plan.workloads == (job.workload,)
    # a name without the scaling, as in the file beside the run
    trained = load_plugins(builtin_plugins()).workloads()[job.workload]
    bridge = trained.frameworks["bridge"]
    words = (trained, job.model_size, job.gpu_type, job.scale)
    assert bridge.spelled("fp8", bridge.dtypes, *words) == "fp8_mx"


def test_arguments_of_megatron_bridge_are_settings_of_the_run(
    tmp_path: Path, do_import: DoImport
) -> None:
    """Release 26.08 passes --mbridge-arg through, and writes them beside the run."""
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "26.08")
    own = [
        "--micro_batch_size=2",
        "model.hidden_size=4096",
        "--record_memory",
        "token=" + exemplar.TOKEN,
    ]
    config = exemplar.run_config(
        9, "26.08.00", "llama3.1", "70b", "fp8", 64, gpu="gb300", mbridge_args=own
    )
    name = "pretrain_llama3_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_ep1_mbs2_gbs256"
    exemplar.write_run(
        folder, exemplar.KEYS[0], name, 9, exemplar.bridge_log(3, 256), config=config
    )
    (run,) = do_import(folder).runs
    wanted = {"micro_batch_size": "2", "model.hidden_size": "4096", "record_memory": "true"}
    assert dict(run.record.job.dotted) == wanted


@pytest.mark.parametrize("job_id", ["../../../../../../outside", "/outside", "12\0"])
def test_a_foreign_job_id_names_no_path(job_id: str, tmp_path: Path, do_import: DoImport) -> None:
    """The id is in the folder's name of a run whose log and folder name no job and no time."""
    folder = tmp_path / "a/b/theirs"
    exemplar.write_config(folder, "25.08")
    place = folder / "workloads" / exemplar.KEYS[1] / "experiments" / "copied"
    place.mkdir(parents=True)
    (place / f"log-{exemplar.NEMO}.out").write_text(exemplar.nemo_log(2.0))
    config = exemplar.run_config(7, "25.08", "nemotron4", "15b", "fp8", 64)
    config["job_info"]["job_id"] = job_id
    (place / "llmb-config_7.yaml").write_text(yaml.safe_dump(config))
    (run,) = do_import(folder).runs
    assert run.record.scheduler_id is None
    experiments = folder.with_name("theirs-llmb") / "workloads/pretrain_nemotron4/experiments"
    assert run.record.directory.parent.parent == experiments
    written = [path for path in tmp_path.rglob("*") if path.name == "llmb-run.json"]
    assert written == [run.record.directory / "llmb-run.json"]


@pytest.mark.parametrize("name", ["..", ".", "", "n" * 246])
def test_a_log_whose_name_cannot_name_a_folder(
    name: str, tmp_path: Path, do_import: DoImport
) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "25.08")
    place = folder / "workloads" / exemplar.KEYS[1] / "experiments" / "copied"
    place.mkdir(parents=True)
    (place / f"log-{name}.out").write_text(exemplar.nemo_log(2.0))
    config = exemplar.run_config(7, "25.08", "nemotron4", "15b", "fp8", 64)
    config["job_config"]["model_overrides"] = {}
    (place / "llmb-config_7.yaml").write_text(yaml.safe_dump(config))
    (item,) = (item for item in do_import(folder).items if item.kind == "run")
    assert (item.action, item.code) == ("leave", "name-unusable")


@pytest.mark.parametrize("host", ["nv\0cr", "../../../outside", "h" * 250])
def test_a_foreign_reference_names_no_path(host: str, tmp_path: Path, do_import: DoImport) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "25.08")
    exemplar.write_image(folder / "images/nvidia+nemo+25.07.01.sqsh")
    config = exemplar.run_config(7, "25.08", "nemotron4", "15b", "fp8", 64)
    config["container_info"]["images"] = [f"{host}/nvidia/nemo:25.07.01"]
    exemplar.write_run(
        folder, exemplar.KEYS[1], exemplar.NEMO, 7, exemplar.nemo_log(2.0), config=config
    )
    (image,) = do_import(folder).images
    assert image.link == "nvidia+nemo+25.07.01.sqsh"
