# SPDX-License-Identifier: Apache-2.0
"""Merges the installer's part into cluster_config.yaml, and keeps what users changed."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from llmb.contract.launch import Site
from llmb.core import files, typed, yamlfile
from llmb.core.names import squash_workload
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.read_config import read_config as read_configuration
from llmb_installer.answers.schema import AUTO, Answers, collect_sections, drop_nulls
from llmb_installer.cluster_types import all_types
from llmb_installer.hub import AssetStep
from llmb_installer.record import read_own_config
from llmb_installer.step import InstallStep
from llmb_installer.steps.repo import RepoStep
from llmb_installer.venv.venv_step import VenvStep

HEADER = "# Written by llmb-install, which keeps what you change here; comments are not kept.\n"
# keys of a workload that the installer sets
_BUILT = ("venv_path", "venv_type", "venvs", "assets", "repos")
_NAMES = "workloads.installed"  # a list without order
_ABSENT: Any = object()
# keys that users set and the answers omit
_OPTIONAL = ("experiments_root", "pass_environment", "install.image_folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """The new data of cluster_config.yaml. ``changed`` is False when the file has it already.

    ``kept`` are messages about changes of users that differ from the answers.
    """

    data: dict[str, Any]
    changed: bool
    kept: tuple[str, ...]


def compose_own_part(
    answers: Answers, site: Site, workloads: Iterable[str], steps: Iterable[InstallStep]
) -> dict[str, Any]:
    """The installer's part of cluster_config.yaml, with ``workloads`` installed.

    It omits sections of other cluster types and unset options of sbatch. Keys that users often set
    are null or empty.
    """
    steps, installed = tuple(steps), list(workloads)
    gpu_types = {
        name: drop_nulls(typed.to_data(settings)) for name, settings in answers.gpu_types.items()
    }
    return {
        "schema_version": 2,
        "cluster_type": answers.cluster_type,
        "cluster_name": answers.cluster_name,
        "llmb_install": str(site.install),
        "experiments_root": typed.to_data(answers.experiments_root),
        "gpu_type": answers.gpu_type if answers.gpu_type != AUTO else site.gpu_type,
        **({"gpu_types": gpu_types} if gpu_types else {}),
        "environment": dict(answers.environment),
        "pass_environment": list(answers.pass_environment),
        **collect_sections(answers),
        "install": {
            "venv_type": answers.venv_type if answers.venv_type != AUTO else "venv",
            "method": "local" if answers.method == "here" else "slurm",
            "node_architecture": site.node_architecture,
            "image_folder": typed.to_data(answers.image_folder),
            **({} if answers.framework == AUTO else {"framework": answers.framework}),
            **(
                {} if answers.bridge_release is None else {"bridge_release": answers.bridge_release}
            ),
        },
        "workloads": {
            "installed": installed,
            "config": {
                key: _workload([step for step in steps if key in step.workloads], answers.venv_type)
                for key in installed
            },
        },
        **({"plugins": dict(answers.plugins)} if answers.plugins else {}),
    }


def _workload(steps: Iterable[InstallStep], venv_type: str) -> dict[str, Any]:
    """Return the entry of a workload: environments, folders of model files and of repositories."""
    entry: dict[str, Any] = {}
    venvs = [step for step in steps if isinstance(step, VenvStep)]
    if venvs:
        entry = {
            "venv_path": str(venvs[0].path),
            "venv_type": venv_type if venv_type != AUTO else "venv",
        }
    if len(venvs) > 1:
        entry["venvs"] = {step.name: str(step.path) for step in venvs}
    if assets := {
        step.need.repository: str(step.path) for step in steps if isinstance(step, AssetStep)
    }:
        entry["assets"] = assets
    if repos := {step.need.url: str(step.path) for step in steps if isinstance(step, RepoStep)}:
        entry["repos"] = repos
    return {**entry, "environment": {}}


def read_config(install: Path) -> dict[str, Any]:
    """The data of the configuration in ``install``, empty if it is missing. Raises InputFaults."""
    path = install / CONFIG_FILE
    if not path.exists():
        return {}
    read_own_config(install)
    data: dict[str, Any] = yamlfile.load(path).data
    return data


def add_entries(
    own_part: dict[str, Any], before: Mapping[str, Any], keys: Iterable[str]
) -> dict[str, Any]:
    """Add the entries of the workloads ``keys`` in the configuration ``before`` to ``own_part``."""
    keys = list(keys)
    workloads = {
        "installed": [*own_part["workloads"]["installed"], *keys],
        "config": {**own_part["workloads"]["config"], **_entries(before, keys)},
    }
    return {**own_part, "workloads": workloads} if keys else own_part


def _entries(data: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return the entries of the workloads ``keys`` in ``data``, by the names that it uses."""
    entries, forms = (
        (data.get("workloads") or {}).get("config") or {},
        {squash_workload(key) for key in keys},
    )
    return {name: entry for name, entry in entries.items() if squash_workload(str(name)) in forms}


def adopt(
    now: Mapping[str, Any], renewed: Iterable[str] = (), removed: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the part of ``now``, a file written by hand, that the installer may change.

    It has the folder's path, the environments of the workloads ``renewed``, and the entries of the
    workloads ``removed``.
    """
    entries = (now.get("workloads") or {}).get("config") or {}
    renewed_entries = {
        key: {name: value for name, value in (entries[key] or {}).items() if name in _BUILT}
        for key in renewed
        if key in entries
    }
    removed_keys = list(removed)
    renewed_entries |= _entries(now, removed_keys)
    folder = {"llmb_install": now["llmb_install"]} if "llmb_install" in now else {}
    workloads = {
        **({"installed": removed_keys} if removed_keys else {}),
        **({"config": renewed_entries} if renewed_entries else {}),
    }
    return {**folder, **({"workloads": workloads} if workloads else {})}


def plan_config(
    before: Mapping[str, Any], now: Mapping[str, Any], wanted_data: Mapping[str, Any]
) -> ConfigChange:
    """Merge ``wanted_data`` into the file's data ``now``, where ``before`` is what the installer
    wrote last.

    Raises UsageError when the file is for another cluster type, whose images and environments
    differ.
    """
    current_type, wanted_type = now.get("cluster_type"), wanted_data.get("cluster_type")
    if current_type is not None and current_type != wanted_type:
        message = (
            f"{CONFIG_FILE} is for cluster type {current_type}, and this installation is for"
            f" {wanted_type}"
        )
        hint = "install into another folder: --install DIR"
        raise UsageError(
            message, hint=hint, code="cluster-type-differs", key="cluster_type", value=current_type
        )
    kept_notes: list[str] = []
    data = _merge(before if now else {}, now, wanted_data, "", kept_notes)
    return ConfigChange(data=data, changed=data != now, kept=tuple(kept_notes))


def merge_value(
    key: str, before: Mapping[str, Any], now: Mapping[str, Any], wanted_data: Mapping[str, Any]
) -> Any:
    """The value of one key after the merge of ``plan_config``. None if it is gone."""
    merged = _merge(
        before.get(key, _ABSENT), now.get(key, _ABSENT), wanted_data.get(key, _ABSENT), key, []
    )
    return None if merged is _ABSENT else merged


def _merge(before: Any, now: Any, target: Any, name: str, notes: list[str]) -> Any:
    """Merge three ways. The side that changed a value wins, the user's if both did."""
    if isinstance(now, Mapping) and isinstance(target, Mapping):
        old = before if isinstance(before, Mapping) else {}
        merged = {
            key: _merge(
                old.get(key, _ABSENT),
                now.get(key, _ABSENT),
                target.get(key, _ABSENT),
                f"{name}.{key}".lstrip("."),
                notes,
            )
            for key in dict.fromkeys([*now, *target])
        }
        return {key: value for key, value in merged.items() if value is not _ABSENT}
    if now == before:
        return target
    if name == _NAMES and isinstance(now, list) and isinstance(target, list):
        return _merge_names(before if isinstance(before, list) else [], now, target, notes)
    is_unset = (
        target is _ABSENT if before is _ABSENT else name in _OPTIONAL and target in (None, [])
    )
    if now != target and not is_unset:
        notes.append(
            f"{CONFIG_FILE} keeps {_assignment(name, now)}; the answers have"
            f" {_assignment(name, target)}"
        )
    return now


def _merge_names(
    before: list[Any], now: list[Any], target: list[Any], notes: list[str]
) -> list[Any]:
    """Merge lists of workloads, which either side may add or remove, in any spelling."""
    old, new, current = (
        {squash_workload(str(name)) for name in names} for names in (before, target, now)
    )
    remaining = [name for name in now if squash_workload(str(name)) not in old - new]
    added = [name for name in target if squash_workload(str(name)) not in current]
    if removed := [name for name in added if squash_workload(str(name)) in old]:
        notes.append(
            f"{CONFIG_FILE} keeps {_NAMES} without {', '.join(map(str, removed))}; the answers ask"
            " for it"
        )
    return [*remaining, *(name for name in added if name not in removed)]


def _assignment(name: str, value: Any) -> str:
    return f"no {name}" if value is _ABSENT else f"{name} {value!r}"


def set_aside(install: Path) -> Path | None:
    """Rename the configuration to a free name. Its new path, None if there was none."""
    path = install / CONFIG_FILE
    if not path.exists():
        return None
    names = (path.with_name(f"{CONFIG_FILE}.broken{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    return aside


def write_config(install: Path, change: ConfigChange) -> str | None:
    """Write the file.

    A message when a copy keeps its comments. Raises InputFaults if it would be invalid.
    """
    path = install / CONFIG_FILE
    text = HEADER + str(yaml.safe_dump(change.data, sort_keys=False, allow_unicode=True))
    read_configuration(yamlfile.parse(text, name=str(path)), cluster_types=all_types)
    note = None
    old = path.read_text("utf-8") if path.exists() else ""
    if "#" in old.removeprefix(HEADER):
        backup = path.with_name(f"{CONFIG_FILE}.before")
        files.write_text(backup, old)
        note = f"{CONFIG_FILE} had comments, which are kept in {backup.name}"
    files.write_text(path, text)
    return note
