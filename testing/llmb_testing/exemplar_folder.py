# SPDX-License-Identifier: Apache-2.0
"""Writes folders as exemplar-performance leaves them: its configuration of each release, images,
runs and history.

The keys are those that its published installer and launcher write: ``create_cluster_config`` of
each tagged release from 25.05 to 26.08.00, ``create_llmb_config`` of 25.05.05 to 26.08.00, the
table of its job history.
"""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

TOKEN = "hf_" + "abcdefghijklmnopqrstuvwxyz"
KEYS = "pretrain_llama3.1", "pretrain_nemotron4", "pretrain_grok1"
# Before 25.07: other names, "pretraining" until 25.05.03, and an environment for each workload.
EARLY = "llama3.1", "nemotron", "grok1"
NEMO = "pretrain_nemotron4_15b_fp8_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256"


def write_config(folder: Path, release: str, **more: Any) -> Path:
    """Return the cluster_config.yaml of one release in ``folder``. ``more``: top-level keys that
    replace its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    of_repo = {
        "llmb_repo": str(folder.parent / "repo"),
        "llmb_install": str(folder),
        "gpu_type": "h100",
    }
    keys = list(KEYS)
    if release < "25.07":
        keys = [
            f"{'pretrain' if release >= '25.05.04' else 'pretraining'}_{name}" for name in EARLY
        ]
    venvs = {key: f"{key}_venv" if release < "25.05.04" else "venv_1" for key in keys}
    config = {
        key: {"venv_path": str(folder / "venvs" / name), "venv_type": "venv"}
        for key, name in venvs.items()
    }
    installed = {"installed": keys, "config": config}
    environment = {"HF_TOKEN": TOKEN, "NCCL_DEBUG": "WARN"}
    install = {"venv_type": "venv", "method": "slurm", "node_architecture": "x86_64"}
    old = {
        "account": "team",
        "gpu_partition": "batch",
        "gpu_gres": 8,
        "cpu_partition": "cpu",
        "cpu_gres": None,
    }
    if release < "25.08.01":
        name = {"cluster_name": "alpha"} if release >= "25.05.04" else {}
        data: dict[str, Any] = {
            "launcher": {**of_repo, **name},
            "environment": environment,
            "slurm": old,
        }
        data["workloads"] = installed
    elif release < "26.02":
        launcher = {**of_repo, "node_architecture": "x86_64", "cluster_name": "alpha"}
        data = {"launcher": launcher, "install": install, "environment": environment, "slurm": old}
        data["workloads"] = installed
    else:
        slurm = {
            "account": "team",
            "gpu": {"partition": "batch", "gres": 8},
            "cpu": {"partition": "cpu", "gres": None},
        }
        data = {"schema_version": 2, **of_repo, "cluster_name": "alpha", "install": install}
        data |= {"environment": environment, "slurm": slurm, "workloads": installed}
    path = folder / "cluster_config.yaml"
    path.write_text(yaml.safe_dump({**data, **more}, sort_keys=False), encoding="utf-8")
    return path


def write_image(path: Path, content: bytes = b"x" * 400, *, whole: bool = True) -> Path:
    """Return a file with the superblock of squashfs: ``whole``, or cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 96 + len(content)
    head = b"hsqs" + b"\0" * 36 + struct.pack("<Q", size if whole else 2 * size) + b"\0" * 48
    path.write_bytes(head + content)
    return path


def nemo_log(
    seconds: float = 3.0, steps: int = 50, *, late: float | None = None, upto: int | None = None
) -> str:
    """Lines of NeMo 2. Steps 35 to 44 take ``late`` where it is given. ``upto``: the number of
    lines.
    """
    lines = []
    for step in range(steps if upto is None else upto):
        time = late if late is not None and 35 <= step <= 44 else seconds
        lines.append(
            f"Training epoch 0, iteration {step}/{steps - 1} | lr: 7.496e-06 | global_batch_size:"
            f" 256 | global_step: {step} | reduced_train_loss: 11.96 | train_step_timing in s:"
            f" {time:.4g} | TFLOPS_per_GPU: 512 | consumed_samples: {256 * step}"
        )
    return "\n".join(lines) + "\n"


def bridge_log(seconds: float, batch: int, *, gradient: str = "0.123") -> str:
    """50 steps of Megatron-Bridge, numbered from 1. All but 35 to 44 take twice as long."""
    lines = []
    for number in range(1, 51):
        time = seconds * (1 if 35 <= number <= 44 else 2)
        lines += [
            f"Step Time : {time:.2f}s GPU utilization: 611.8MODEL_TFLOP/s/GPU",
            (
                f" [2026-06-01 09:41:{number:02d}] iteration {number:8d}/{50:8d} | consumed"
                f" samples: {batch * number:12d} | elapsed time per iteration (ms):"
                f" {1000 * time:.1f} | learning rate: 3.000000E-04 | global batch size: {batch:5d}"
                f" | lm loss: 1.187123E+01 | grad norm: {gradient} |"
            ),
        ]
    return "\n".join(lines) + "\n"


def write_run(
    install: Path,
    workload: str,
    name: str,
    job: int,
    text: str,
    *,
    timestamp: int = 1_750_000_000,
    account: str = "team-llm",
    config: dict[str, Any] | None = None,
) -> Path:
    """One run's folder. ``config``: sections of its llmb-config, None for a release that writes
    none. Its log.
    """
    folder = install / "workloads" / workload / "experiments" / name / f"{name}_{timestamp}" / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"log-{account}.{name}_{job}_0.out"
    log.write_text(text, encoding="utf-8")
    if config is not None:
        (folder / f"llmb-config_{job}.yaml").write_text(
            yaml.safe_dump(config, sort_keys=False), encoding="utf-8"
        )
    return log


def run_config(
    job: int,
    release: str,
    model: str,
    size: str,
    dtype: str,
    scale: int,
    gpu: str = "h100",
    **settings: Any,
) -> dict[str, Any]:
    """Return the file that the launcher of ``release`` writes beside a run.

    ``settings`` are of job_config.
    """
    bridge = release >= "25.12"
    tag = {"25.05": "25.04.01", "25.07": "25.04.01", "25.08": "25.07.01"}.get(release, release)
    return {
        "job_info": {"job_id": str(job), "launch_time": "2026-06-01T21:05:18.298517"},
        "workload_info": {
            "framework": "megatron_bridge" if bridge else "nemo2",
            "gsw_version": release,
            "fw_version": tag,
            "workload_type": "pretrain",
            "synthetic_dataset": True,
        },
        "model_info": {
            "model_name": model,
            "model_size": size,
            "dtype": dtype,
            "scale": scale,
            "gpu_type": gpu,
        },
        "cluster_info": {
            "cluster_name": "alpha",
            "gpus_per_node": 4 if gpu.startswith("gb") else 8,
        },
        "container_info": {"images": [f"nvcr.io#nvidia/nemo:{tag}"]},
        "job_config": {
            "profile_enabled": False,
            "env_overrides": {},
            "model_overrides": {},
            **settings,
        },
    }


def write_history(install: Path, states: dict[int, str]) -> Path:
    """Return the history of jobs that releases since 26.05 keep."""
    path = install / ".llmb" / "jobs.sqlite3"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as history, history:
        history.execute(
            "CREATE TABLE jobs (job_id INTEGER PRIMARY KEY, launcher_type TEXT NOT NULL,"
            " slurm_state TEXT)"
        )
        history.executemany("INSERT INTO jobs VALUES (?, 'nemo', ?)", states.items())
    return path
