# SPDX-License-Identifier: Apache-2.0
"""Merges the installer's part of cluster_config.yaml into the file, keeping what users changed in it."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from llmb.config import CONFIG_FILE
from llmb.config.reading import read_config as read_configuration
from llmb.errors import UsageError
from llmb.runs.launch import Site
from llmb.system import files
from llmb.text import typed, yamlfile
from llmb.text.names import squash_workload
from llmb_installer.answers.schema import AUTO, Answers, sections_of, without_nulls
from llmb_installer.cluster_types import all_types
from llmb_installer.record import own_config
from llmb_installer.steps import AssetStep, Step, VenvStep
from llmb_installer.steps.repo import RepoStep

HEADER = "# Written by llmb-install, which keeps what you change here; comments are not kept.\n"
_BUILT = ("venv_path", "venv_type", "venvs", "assets", "repos")  # keys of a workload that the installer sets
_NAMES = "workloads.installed"  # a list without order
_ABSENT: Any = object()
_OPTIONAL = ("experiments_root", "pass_environment", "install.image_folder")  # keys that users set and the answers omit


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """The new data of cluster_config.yaml; ``changed`` is False when the file has it already.

    ``kept`` are messages about changes of users that differ from the answers.
    """

    data: dict[str, Any]
    changed: bool
    kept: tuple[str, ...]


def own_part(answers: Answers, site: Site, workloads: Iterable[str], steps: Iterable[Step]) -> dict[str, Any]:
    """The installer's part of cluster_config.yaml, with ``workloads`` installed.

    It omits sections of other cluster types and unset options of sbatch; keys that users often set are null or empty.
    """
    steps, installed = tuple(steps), list(workloads)
    gpu_types = {name: without_nulls(typed.to_data(own)) for name, own in answers.gpu_types.items()}
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
        **sections_of(answers),
        "install": {
            "venv_type": answers.venv_type if answers.venv_type != AUTO else "venv",
            "method": "local" if answers.method == "here" else "slurm",
            "node_architecture": site.node_architecture,
            "image_folder": typed.to_data(answers.image_folder),
            **({} if answers.framework == AUTO else {"framework": answers.framework}),
            **({} if answers.bridge_release is None else {"bridge_release": answers.bridge_release}),
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


def _workload(steps: Iterable[Step], venv_type: str) -> dict[str, Any]:
    """The entry of one workload: its environment, several by name, folders of model files and of repositories."""
    found: dict[str, Any] = {}
    venvs = [step for step in steps if isinstance(step, VenvStep)]
    if venvs:
        found = {"venv_path": str(venvs[0].path), "venv_type": venv_type if venv_type != AUTO else "venv"}
    if len(venvs) > 1:
        found["venvs"] = {step.name: str(step.path) for step in venvs}
    if assets := {step.need.repository: str(step.path) for step in steps if isinstance(step, AssetStep)}:
        found["assets"] = assets
    if repos := {step.need.url: str(step.path) for step in steps if isinstance(step, RepoStep)}:
        found["repos"] = repos
    return {**found, "environment": {}}


def read_config(install: Path) -> dict[str, Any]:
    """The data of the configuration in ``install``, empty where it is missing. Raises InputFaults."""
    path = install / CONFIG_FILE
    if not path.exists():
        return {}
    own_config(install)
    data: dict[str, Any] = yamlfile.load(path).data
    return data


def with_entries(own: dict[str, Any], before: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """``own`` with the entries of the workloads ``keys`` from the configuration ``before``."""
    keys = list(keys)
    workloads = {
        "installed": [*own["workloads"]["installed"], *keys],
        "config": {**own["workloads"]["config"], **_entries(before, keys)},
    }
    return {**own, "workloads": workloads} if keys else own


def _entries(data: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The entries of the workloads ``keys`` in the configuration ``data``, by the names that it uses."""
    entries, forms = (data.get("workloads") or {}).get("config") or {}, {squash_workload(key) for key in keys}
    return {name: own for name, own in entries.items() if squash_workload(str(name)) in forms}


def adopted(now: Mapping[str, Any], renewed: Iterable[str] = (), removed: Iterable[str] = ()) -> dict[str, Any]:
    """The part of ``now``, a file written by hand, that the installer may change as its own.

    That is the folder's path, the environments of the workloads ``renewed``, and the entries of those ``removed``.
    """
    entries = (now.get("workloads") or {}).get("config") or {}
    own = {
        key: {name: value for name, value in (entries[key] or {}).items() if name in _BUILT}
        for key in renewed
        if key in entries
    }
    gone = list(removed)
    own |= _entries(now, gone)
    folder = {"llmb_install": now["llmb_install"]} if "llmb_install" in now else {}
    workloads = {**({"installed": gone} if gone else {}), **({"config": own} if own else {})}
    return {**folder, **({"workloads": workloads} if workloads else {})}


def plan_config(before: Mapping[str, Any], now: Mapping[str, Any], ours: Mapping[str, Any]) -> ConfigChange:
    """Merge ``ours`` into the file's data ``now``, where ``before`` is what the installer wrote last.

    Raises UsageError when the file is for another cluster type, whose images and environments differ.
    """
    present, wanted = now.get("cluster_type"), ours.get("cluster_type")
    if present is not None and present != wanted:
        message = f"{CONFIG_FILE} is for cluster type {present}, and this installation is for {wanted}"
        hint = "install into another folder: --install DIR"
        raise UsageError(message, hint=hint, code="cluster-type-differs", key="cluster_type", value=present)
    kept: list[str] = []
    data = _merge(before if now else {}, now, ours, "", kept)
    return ConfigChange(data=data, changed=data != now, kept=tuple(kept))


def merged_value(key: str, before: Mapping[str, Any], now: Mapping[str, Any], ours: Mapping[str, Any]) -> Any:
    """The value of one key after the merge of ``plan_config``; None where it is gone."""
    found = _merge(before.get(key, _ABSENT), now.get(key, _ABSENT), ours.get(key, _ABSENT), key, [])
    return None if found is _ABSENT else found


def _merge(before: Any, now: Any, ours: Any, name: str, kept: list[str]) -> Any:
    """A three-way merge: the side that changed a value wins, the user's where both did."""
    if isinstance(now, Mapping) and isinstance(ours, Mapping):
        old = before if isinstance(before, Mapping) else {}
        merged = {
            key: _merge(
                old.get(key, _ABSENT), now.get(key, _ABSENT), ours.get(key, _ABSENT), f"{name}.{key}".lstrip("."), kept
            )
            for key in dict.fromkeys([*now, *ours])
        }
        return {key: value for key, value in merged.items() if value is not _ABSENT}
    if now == before:
        return ours
    if name == _NAMES and isinstance(now, list) and isinstance(ours, list):
        return _merge_names(before if isinstance(before, list) else [], now, ours, kept)
    is_unset = ours is _ABSENT if before is _ABSENT else name in _OPTIONAL and ours in (None, [])
    if now != ours and not is_unset:
        kept.append(f"{CONFIG_FILE} keeps {_assignment(name, now)}; the answers have {_assignment(name, ours)}")
    return now


def _merge_names(before: list[Any], now: list[Any], ours: list[Any], kept: list[str]) -> list[Any]:
    """Merge lists of workloads, which either side may add or remove, in any spelling."""
    old, new, present = ({squash_workload(str(one)) for one in names} for names in (before, ours, now))
    remaining = [one for one in now if squash_workload(str(one)) not in old - new]
    added = [one for one in ours if squash_workload(str(one)) not in present]
    if removed := [one for one in added if squash_workload(str(one)) in old]:
        kept.append(f"{CONFIG_FILE} keeps {_NAMES} without {', '.join(map(str, removed))}; the answers ask for it")
    return [*remaining, *(one for one in added if one not in removed)]


def _assignment(name: str, value: Any) -> str:
    return f"no {name}" if value is _ABSENT else f"{name} {value!r}"


def set_aside(install: Path) -> Path | None:
    """Rename the configuration to a free name; its new path, None where there was none."""
    path = install / CONFIG_FILE
    if not path.exists():
        return None
    names = (path.with_name(f"{CONFIG_FILE}.broken{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    return aside


def write_config(install: Path, change: ConfigChange) -> str | None:
    """Write the file; a message when a copy keeps its comments. Raises InputFaults where it would be invalid."""
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
