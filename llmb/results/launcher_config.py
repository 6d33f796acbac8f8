# SPDX-License-Identifier: Apache-2.0
"""Reads the ``llmb-config_<JOB>.yaml`` that exemplar-performance writes beside a run when it submits it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from llmb.config.exemplar import name_in_llmb
from llmb.errors import LlmbError, UsageError
from llmb.results.description import NOTHING, Description
from llmb.results.find import is_log, job_of
from llmb.text import yamlfile
from llmb.text.names import find_size, find_workload
from llmb.workload.bridge import BRIDGE, NEMO
from llmb.workload.spec import Workload

_NAME = re.compile(r"llmb-config_(.+)\.ya?ml")
_MOST = 1 << 20  # bytes


_LATE_WINDOW = (35, 44)  # of 50 steps, since release 25.08


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherConfig:
    """What a release wrote beside a run when it submitted it; None or empty where it does not say.

    ``release``: of exemplar-performance; ``framework``: in its words, ``nemo2`` or ``megatron_bridge``; ``launched``:
    seconds since the epoch; ``scale`` in GPUs; ``image``: the reference of the first image, in llmb's spelling;
    ``settings``: of Megatron-Bridge, by dotted path or by the name of its option (``micro_batch_size``).
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
    settings: Mapping[str, str] = field(default_factory=dict)


def config_near(log: Path) -> LauncherConfig | None:
    """What is kept of the run of ``log``, in its folder or that above it; None without a file that is its own."""
    job = job_of(log.name)
    for folder in (log.parent, log.parent.parent):
        paths = {
            found[1]: path for path in sorted(folder.glob("llmb-config_*")) if (found := _NAME.fullmatch(path.name))
        }
        alone = len(paths) == 1 and sum(is_log(path.name) for path in folder.glob("log-*")) <= 1
        path = paths.get(job) or (next(iter(paths.values())) if alone else None)
        if path is not None:
            return read_launcher_config(path)
    return None


def read_launcher_config(path: Path) -> LauncherConfig | None:
    """The file's data; None where it is no YAML mapping."""
    try:
        data = yamlfile.load(path, strict=False).data if path.stat().st_size <= _MOST else None
    except (UsageError, OSError):
        return None
    if not isinstance(data, dict):
        return None
    names = ("job_info", "workload_info", "model_info", "cluster_info", "container_info", "job_config")
    job, work, model, cluster, container, settings = (_section(data, name) for name in names)
    images = container.get("images")
    image = _text(images[0]) if isinstance(images, list) and images else None
    kind, name = _text(work.get("workload_type")), _text(model.get("model_name"))
    return LauncherConfig(
        job=_text(job.get("job_id")),
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
        env={key: str(value) for key, value in _section(settings, "env_overrides").items() if value is not None},
        settings=_arguments(settings.get("mbridge_args")),
    )


def _arguments(value: object) -> dict[str, str]:
    """The arguments that a run passed to Megatron-Bridge (release 26.08): ``model.x=1`` and ``--x=1``."""
    pairs = (str(one).partition("=") for one in (value if isinstance(value, list) else ()))
    return {name.lstrip("-+"): text if equals else "true" for name, equals, text in pairs if name.lstrip("-+")}


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
    try:  # without quotes, YAML reads a time
        found = (value if isinstance(value, datetime) else datetime.fromisoformat(str(value))).timestamp()
    except (ValueError, OverflowError):
        return None
    return found if found > 0 else None


def described_by(config: LauncherConfig | None, workloads: Mapping[str, Workload]) -> Description:
    """What the file says of its run. It omits how Megatron-Bridge scales fp8, and profiles have other witnesses too."""
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
    return Description(
        workload=key,
        size=size,
        dtype=None if bridge else config.dtype,
        gpu_type=config.gpu_type,
        gpus=config.scale,
        framework=BRIDGE if bridge else NEMO if config.framework == "nemo2" else None,
        release=config.framework_release if bridge else None,
    )


def window_of(release: str | None, steps: int) -> tuple[int, int] | None:
    """The iterations that a release measures: 35 to 44 since 25.08; None for llmb's default, 11 to 44 of 50."""
    found = re.match(r"(\d\d)\.(\d\d)", release or "")
    late = found is not None and (int(found[1]), int(found[2])) >= (25, 8)
    return _LATE_WINDOW if late and steps > _LATE_WINDOW[1] else None
