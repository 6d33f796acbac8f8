# SPDX-License-Identifier: Apache-2.0
"""Read ``llmb-config_<JOB>.yaml``, which exemplar-performance writes beside a submitted run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb.core.names import find_size, find_workload
from llmb.core.secret_texts import holds_secret
from llmb.errors import LlmbError, UsageError
from llmb.measure.find_logs import job_of, listing_of
from llmb.plan.bridge_rows import BRIDGE, NEMO
from llmb.plan.exemplar import name_in_llmb

_MOST = 1 << 20  # bytes


_LATE_WINDOW = (35, 44)  # of 50 steps, since release 25.08


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherConfig:
    """The file of a release beside a run. A field is None or empty if the file omits it."""

    job: str | None = None
    release: str | None = None  #: of exemplar-performance
    launched: float | None = None  #: seconds since 1970
    framework: str | None = None  #: ``nemo2`` or ``megatron_bridge``
    framework_release: str | None = None
    workload: str | None = None
    size: str | None = None
    dtype: str | None = None
    scale: int | None = None  #: GPUs
    gpu_type: str | None = None
    gpus_per_node: int | None = None
    image: str | None = None  #: the reference of the first image, in llmb's spelling
    profile: bool = False
    proxy: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    #: Of Megatron-Bridge, by dotted path or by the name of its option (``micro_batch_size``).
    settings: Mapping[str, str] = field(default_factory=dict)


def config_near(log: Path) -> LauncherConfig | None:
    """Return the launcher's file of the run of ``log``, in its folder or the one above, or None."""
    job = job_of(log.name)
    for folder in (log.parent, log.parent.parent):
        listing = listing_of(folder)
        paths = {id_: folder / name for name, id_ in listing.configs.items()}
        alone = len(paths) == 1 and listing.logs <= 1
        path = paths.get(job) or (next(iter(paths.values())) if alone else None)
        if path is not None:
            return read_launcher_config(path)
    return None


def read_launcher_config(path: Path) -> LauncherConfig | None:
    """Return the file's data, or None if it is no YAML mapping."""
    try:
        data = yamlfile.load(path, strict=False, most=_MOST).data
    except UsageError:
        return None
    if not isinstance(data, dict):
        return None
    names = (
        "job_info",
        "workload_info",
        "model_info",
        "cluster_info",
        "container_info",
        "job_config",
    )
    job, work, model, cluster, container, settings = (_section(data, name) for name in names)
    images = container.get("images")
    image = _text(images[0]) if isinstance(images, list) and images else None
    kind, name = _text(work.get("workload_type")), _text(model.get("model_name"))
    return LauncherConfig(
        job=_job_id(job.get("job_id")),
        release=_text(work.get("gsw_version")),
        launched=_moment(job.get("launch_time")),
        framework=_text(work.get("framework")),
        framework_release=_text(work.get("fw_version")),
        workload=name_in_llmb(f"{kind}_{name}" if kind else name) if name else None,
        size=_text(model.get("model_size")),
        dtype=_text(model.get("dtype")),
        scale=_count(model.get("scale")),
        gpu_type=(_text(model.get("gpu_type")) or "").lower() or None,
        gpus_per_node=_count(cluster.get("gpus_per_node")),
        image=image.replace("#", "/") if image is not None else None,
        profile=settings.get("profile_enabled") is True,
        proxy=settings.get("proxy") is True,
        env={
            key: str(value)
            for key, value in _section(settings, "env_overrides").items()
            if value is not None
        },
        settings=_arguments(settings.get("mbridge_args")),
    )


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


def _section(data: Mapping[str, Any], name: str) -> dict[str, Any]:
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
    try:  # without quotes, YAML reads a time
        seconds = (
            value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        ).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def described_by(config: LauncherConfig | None, workloads: Mapping[str, Workload]) -> Settings:
    """Return the settings in the file.

    It omits how Megatron-Bridge scales fp8, and profiles have other witnesses too.
    """
    if config is None:
        return NOTHING
    key = size = None
    if config.workload is not None:
        try:
            key = find_workload(config.workload, workloads)
            sizes = workloads[key].sizes
            size = find_size(config.size or "", sizes)
            size = (sizes[size].proxy or size) if config.proxy and size is not None else size
        except LlmbError:  # no plugin offers it
            key = None
    bridge = config.framework == "megatron_bridge"
    return Settings(
        workload=key or "",
        model_size=size or "",
        dtype="" if bridge else config.dtype or "",
        gpu_type=config.gpu_type,
        scale=config.scale or 0,
        framework=BRIDGE if bridge else NEMO if config.framework == "nemo2" else "",
        release=config.framework_release if bridge else None,
        dotted=without_secrets(config.settings),
        env=without_secrets(config.env),
    )


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return ``settings`` without those that hold a secret by their name or their value."""
    return {name: value for name, value in settings.items() if not holds_secret(name, value)}


def window_of(release: str | None, steps: int) -> tuple[int, int] | None:
    """Return the iterations that a release measures: 35 to 44 since 25.08, None for llmb's default.

    The default is 11 to 44 of 50.
    """
    match = re.match(r"(\d\d)\.(\d\d)", release or "")
    late = match is not None and (int(match[1]), int(match[2])) >= (25, 8)
    return _LATE_WINDOW if late and steps > _LATE_WINDOW[1] else None
