# SPDX-License-Identifier: Apache-2.0
"""Reads ``llmb-config_<JOB>.yaml``, which NVIDIA's launcher writes beside a submitted run."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmb import api
from llmb_exemplar.names import image_file, name_in_llmb, window_of

_CONFIG = re.compile(r"llmb-config_(.+)\.ya?ml")
_JOB = re.compile(r"_(\d{3,})(?:_\d{1,2})?$")
_FRAMEWORKS = {"nemo2": "nemo", "megatron_bridge": "bridge"}


def settings_of(log: Path) -> api.LogSettings | None:
    """Return the settings of the run of ``log``, by the file in its folder or the one above."""
    job = _job_in(log.name)
    for folder in (log.parent, log.parent.parent):
        configs, logs = _listing_of(folder)
        only = next(iter(configs.values())) if len(configs) == 1 and logs <= 1 else None
        name = configs.get(job, only)
        if name is not None:
            return read(folder / name)
    return None


def _job_in(name: str) -> str:
    """Return the job's id in a log's name, empty if it has none."""
    match = _JOB.search(re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name))
    return match[1] if match else ""


def _listing_of(folder: Path) -> tuple[Mapping[str, str], int]:
    """Return the launcher's files of a folder by job, and the number of logs there."""
    try:
        return _listing(folder, folder.stat().st_mtime_ns)
    except OSError:
        return {}, 0


@lru_cache(maxsize=64)  # a folder may have thousands of logs
def _listing(folder: Path, _changed: int) -> tuple[Mapping[str, str], int]:
    names = sorted(path.name for path in folder.iterdir())
    logs = [name for name in names if name.startswith("log-")]
    return {match[1]: name for name in names if (match := _CONFIG.fullmatch(name))}, len(logs)


def read(path: Path) -> api.LogSettings | None:
    """Return the settings in the file, None if it is no YAML mapping."""
    try:
        data = api.read_yaml(path)
    except api.UsageError:
        return None
    if not isinstance(data, dict):
        return None
    names = ("workload", "model", "cluster", "container")
    work, model, cluster, container = (section_of(data, f"{name}_info") for name in names)
    job, settings = section_of(data, "job_info"), section_of(data, "job_config")
    images = container.get("images")
    image = _text(images[0]) if isinstance(images, list) and images else None
    kind, name = _text(work.get("workload_type")), _text(model.get("model_name"))
    release = _text(work.get("gsw_version"))
    framework = _FRAMEWORKS.get(_text(work.get("framework")) or "")
    variables = section_of(settings, "env_overrides")
    return api.LogSettings(
        workload=name_in_llmb(f"{kind}_{name}" if kind else name) if name else None,
        size=_text(model.get("model_size")),
        proxy=settings.get("proxy") is True,
        dtype=_text(model.get("dtype")),
        gpu_type=(_text(model.get("gpu_type")) or "").lower() or None,
        gpus=_count(model.get("scale")),
        framework=framework,
        release=_text(work.get("fw_version")) if framework == "bridge" else None,
        dotted=_arguments(settings.get("mbridge_args")),
        env={key: str(value) for key, value in variables.items() if value is not None},
        window=window_of(release),
        profiled=_profiled(path.name, data, settings),
        launcher_release=release,
        job=_job_id(job.get("job_id")),
        submitted=_moment(job.get("launch_time")),
        gpus_per_node=_count(cluster.get("gpus_per_node")),
        image=image and image.replace("#", "/"),
        image_file=image and image_file(image),
    )


def _profiled(name: str, *sections: Mapping[str, Any]) -> str:
    """Return how the file ``name`` says that the run was profiled, else an empty text."""
    words = [str(section.get("profile_enabled")).lower() for section in sections]
    is_enabled = not {"true", "yes", "on", "1"}.isdisjoint(words)
    return f"{name} has profile_enabled: true" if is_enabled else ""


def _arguments(value: object) -> dict[str, str]:
    """Return the arguments for Megatron-Bridge (release 26.08): ``model.x=1`` and ``--x=1``."""
    pairs = (
        str(argument).partition("=") for argument in (value if isinstance(value, list) else ())
    )
    return {
        name.lstrip("-+"): text if equals else "true"
        for name, equals, text in pairs
        if name.lstrip("-+")
    }


def section_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the mapping ``name`` in ``data`` with its keys as text, empty without one."""
    section = data.get(name)
    return {str(key): value for key, value in section.items()} if isinstance(section, dict) else {}


def _text(value: object) -> str | None:
    """Return ``value`` as text, None for the words that mean unknown in a release."""
    text = str(value).strip() if type(value) in (str, int, float) else ""
    return text if text not in ("", "unknown") else None


def _job_id(value: object) -> str | None:
    """Return Slurm's id of a job. It becomes part of paths, so nothing else is taken for one."""
    text = _text(value)
    return text if text is not None and re.fullmatch(r"[0-9]{1,20}", text) else None


def _count(value: object) -> int | None:
    text = _text(value)
    return int(text) if text is not None and re.fullmatch(r"[1-9]\d{0,6}", text) else None


def _moment(value: object) -> float | None:
    """Return a local time, as the launcher writes it, in seconds since 1970."""
    with suppress(ValueError, OverflowError):
        # without quotes, YAML reads a time
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return seconds if (seconds := moment.timestamp()) > 0 else None
    return None
