# SPDX-License-Identifier: Apache-2.0
"""Reads what exemplar-performance keeps of a run: its ``llmb-config_<JOB>.yaml``, and its history of jobs."""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from llmb.errors import UsageError
from llmb.results.find import is_log, job_of
from llmb.text import yamlfile

_NAME = re.compile(r"llmb-config_(.+)\.ya?ml")
_MOST = 1 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What a release wrote beside a run when it submitted it; None or empty where it does not say.

    ``release``: of exemplar-performance; ``framework``: in its words, ``nemo2`` or ``megatron_bridge``; ``launched``:
    seconds since the epoch; ``scale`` in GPUs; ``image``: the reference of the first image, in llmb's spelling.
    """

    job: str | None = None
    release: str | None = None
    launched: float | None = None
    framework: str | None = None
    framework_release: str | None = None
    workload: str | None = None
    size: str | None = None
    dtype: str | None = None
    scale: int | None = None
    gpu_type: str | None = None
    gpus_per_node: int | None = None
    image: str | None = None
    profile: bool = False
    proxy: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def config_near(log: Path) -> RunConfig | None:
    """What is kept of the run of ``log``, in its folder or that above it; None without a file that is its own."""
    job = job_of(log.name)
    for folder in (log.parent, log.parent.parent):
        paths = {
            found[1]: path for path in sorted(folder.glob("llmb-config_*")) if (found := _NAME.fullmatch(path.name))
        }
        alone = len(paths) == 1 and sum(is_log(path.name) for path in folder.glob("log-*")) <= 1
        path = paths.get(job) or (next(iter(paths.values())) if alone else None)
        if path is not None and path.stat().st_size <= _MOST:
            return read_run_config(path)
    return None


def read_run_config(path: Path) -> RunConfig | None:
    """The file's data; None where it is no YAML mapping."""
    try:
        data = yamlfile.load(path, strict=False).data
    except UsageError:
        return None
    if not isinstance(data, dict):
        return None
    names = ("job_info", "workload_info", "model_info", "cluster_info", "container_info", "job_config")
    job, work, model, cluster, container, settings = (_section(data, name) for name in names)
    images = container.get("images")
    image = _text(images[0]) if isinstance(images, list) and images else None
    kind, name = _text(work.get("workload_type")), _text(model.get("model_name"))
    return RunConfig(
        job=_text(job.get("job_id")),
        release=_text(work.get("gsw_version")),
        launched=_moment(job.get("launch_time")),
        framework=_text(work.get("framework")),
        framework_release=_text(work.get("fw_version")),
        workload=f"{kind}_{name}" if kind and name else name,
        size=_text(model.get("model_size")),
        dtype=_text(model.get("dtype")),
        scale=_count(model.get("scale")),
        gpu_type=(_text(model.get("gpu_type")) or "").lower() or None,
        gpus_per_node=_count(cluster.get("gpus_per_node")),
        image=image.replace("#", "/") if image is not None else None,
        profile=settings.get("profile_enabled") is True,
        proxy=settings.get("proxy") is True,
        env={key: str(value) for key, value in _section(settings, "env_overrides").items() if value is not None},
    )


def _section(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    """``value`` as text; none for the words by which a release says that it does not know."""
    text = str(value).strip() if type(value) in (str, int, float) else ""
    return text if text not in ("", "unknown") else None


def _count(value: object) -> int | None:
    text = _text(value)
    return int(text) if text is not None and re.fullmatch(r"[1-9]\d{0,6}", text) else None


def _moment(value: object) -> float | None:
    """A local time, as the launcher writes it, in seconds since the epoch."""
    if isinstance(value, datetime):  # unquoted in YAML
        return value.timestamp()
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def states_in(folder: Path) -> dict[str, str]:
    """Slurm's last known state of each job by its id, from the history that releases since 26.05 keep.

    The database is opened read-only, and without the files that SQLite makes beside one.
    """
    path = folder / ".llmb" / "jobs.sqlite3"
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as history:
            rows = history.execute("SELECT job_id, slurm_state FROM jobs WHERE slurm_state IS NOT NULL").fetchall()
    except sqlite3.Error:  # damaged, or of a later version: the logs are enough
        return {}
    return {str(job): str(state).split()[0].upper() for job, state in rows if str(state).strip()}
