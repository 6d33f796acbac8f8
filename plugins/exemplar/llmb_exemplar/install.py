# SPDX-License-Identifier: Apache-2.0
"""Reads a folder of exemplar-performance by its cluster_config.yaml, or an older STAGE_PATH.

Releases 25.05 to 25.12 write ``launcher:``, ``slurm.gpu_partition`` and ``slurm.gpu_gres``, since
25.08.01 also ``install:``. Releases of 2026 write ``schema_version: 2``, ``llmb_repo`` and
``slurm.gpu``. Releases before 25.05 have no configuration.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmb import api
from llmb_exemplar.history import read_states
from llmb_exemplar.names import name_in_llmb, reference_of, window_of
from llmb_exemplar.run_config import section_of

_PROGRAM, _VENDOR = "exemplar-performance", "NVIDIA"
_CONFIG_FILE = "cluster_config.yaml"
_BEFORE_26 = re.compile(rb"^launcher[ \t]*:", re.MULTILINE)  # its keys of releases 25.05 to 25.12
_SINCE_26 = re.compile(rb"^llmb_repo[ \t]*:", re.MULTILINE)
_MOST = 1 << 20  # bytes that are read of a file
_UNSET = ("/path/to", "hf_token")  # the values of the example files
_KNOWN = {
    "": {
        "schema_version",
        "launcher",
        "llmb_repo",
        "llmb_install",
        "gpu_type",
        "cluster_name",
        "node_architecture",
    }
    | {"install", "environment", "slurm", "workloads"},
    "launcher": {"llmb_repo", "llmb_install", "gpu_type", "cluster_name", "node_architecture"},
    "install": {"venv_type", "method", "node_architecture", "image_folder"},
    "slurm": {"account", "gpu", "cpu"}
    | {
        f"{kind}_{name}"
        for kind in ("gpu", "cpu")
        for name in ("partition", "gres", "partition_gres")
    },
    "workloads": {"installed", "config"},
}


def find_install(folder: Path) -> api.ForeignInstall | None:
    """Return the settings, images and runs in ``folder`` if it is exemplar-performance's.

    Raises UsageError for a configuration that cannot be read.
    """
    path = folder / _CONFIG_FILE
    if path.is_file():
        return _read(folder, api.read_yaml(path)) if _is_theirs(path) else None
    images = _images([folder / "images", folder])
    old_runs = [path for name in ("results", "experiments") if (path := folder / name).is_dir()]
    if not old_runs and not any(folder.glob("*.sqsh")):
        return None
    return api.ForeignInstall(
        program=_PROGRAM,
        vendor=_VENDOR,
        folder=folder,
        is_configured=False,
        images=images,
        runs=(*_runs(folder), *old_runs),
        states=read_states(folder),
    )


def _is_theirs(path: Path) -> bool:
    """Return True if the installer of exemplar-performance wrote the configuration."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST)
    except OSError:  # reading it properly names the reason
        return False
    return bool(_BEFORE_26.search(text) or _SINCE_26.search(text))


def _read(folder: Path, data: Any) -> api.ForeignInstall:
    whole = section_of({"": data}, "")
    launcher, slurm, install = (
        section_of(whole, name) for name in ("launcher", "slurm", "install")
    )
    top = {**whole, **launcher}
    workloads = section_of(whole, "workloads")
    entries = {
        str(key): section_of({"": entry_data}, "")
        for key, entry_data in section_of(workloads, "config").items()
    }
    installed = workloads.get("installed")
    image_folder = _text(install.get("image_folder"))
    repo = _text(top.get("llmb_repo"))
    release = _release_in(Path(repo)) if repo is not None else None
    return api.ForeignInstall(
        program=_PROGRAM,
        vendor=_VENDOR,
        folder=folder,
        release=release,
        gpu_type=(_text(top.get("gpu_type")) or "").lower() or None,
        cluster_name=_text(top.get("cluster_name")),
        account=_text(slurm.get("account")),
        gpu=_options(slurm, "gpu"),
        cpu=_options(slurm, "cpu"),
        node_architecture=_text(
            install.get("node_architecture") or launcher.get("node_architecture")
        ),
        method=_text(install.get("method")),
        venv_type=_text(install.get("venv_type")),
        environment=_variables(whole),
        environments={
            name_in_llmb(key): variables
            for key, entry in entries.items()
            if (variables := _variables(entry))
        },
        workloads=tuple(name_in_llmb(str(name)) for name in installed)
        if isinstance(installed, list)
        else (),
        venvs={
            key: path for key, entry in entries.items() if (path := _text(entry.get("venv_path")))
        },
        unknown_keys=tuple(_find_unknown_keys(whole)),
        images=_images(
            [folder / "images", *([] if image_folder is None else [Path(image_folder)])]
        ),
        runs=tuple(_runs(folder)),
        states=read_states(folder),
        window=window_of(release),
    )


def _images(folders: Iterable[Path]) -> dict[Path, str]:
    """Return the image files in ``folders``. Of one name, that of the last folder."""
    by_name = {path.name: path for folder in folders for path in sorted(folder.glob("*.sqsh"))}
    return {path: reference_of(name) for name, path in sorted(by_name.items())}


def _runs(folder: Path) -> Iterator[Path]:
    """Yield the folders with logs of runs, without checkouts and environments beside them."""
    yield from sorted(path for path in folder.glob("workloads/*/experiments") if path.is_dir())


def _text(value: object) -> str | None:
    return str(value).strip() or None if type(value) in (str, int) else None


def _variables(data: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the variables of a section, None for null, without the secrets of example files.

    A boolean as the launch scripts compare it, ``true``.
    """
    values = {
        key: str(value).lower() if isinstance(value, bool) else _or_none(value)
        for key, value in section_of(data, "environment").items()
    }
    return {
        name: value
        for name, value in values.items()
        if not (api.is_secret_name(name) and value in _UNSET)
    }


def _or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _options(slurm: Mapping[str, Any], kind: str) -> dict[str, str | int | None]:
    """Partition and gres of one kind of jobs, in the keys of either version.

    Of CPU jobs a null gres is kept. Releases of 2026 lose the gres when they update an older
    configuration, so null may mean that there is one: without the key, llmb asks Slurm.
    """
    nested = section_of(slurm, kind)
    gres_keys = (f"{kind}_gres", f"{kind}_partition_gres")
    gres = next((slurm[key] for key in gres_keys if key in slurm), nested.get("gres"))
    partition = _text(slurm.get(f"{kind}_partition", nested.get("partition")))
    options: dict[str, str | int | None] = {} if partition is None else {"partition": partition}
    if type(gres) not in (int, str) or gres == "":
        return {**options, "gres": None} if options and kind == "cpu" else options
    return {**options, "gres": gres}


def _find_unknown_keys(data: Mapping[str, Any]) -> Iterator[str]:
    for section, keys in _KNOWN.items():
        for key in data if not section else section_of(data, section):
            if key not in keys:
                yield f"{section}.{key}".lstrip(".")


def _release_in(repo: Path) -> str | None:
    """Return the release of the checkout that it was installed from, if that still exists."""
    try:
        data = api.read_yaml(repo / "release.yaml")
    except api.UsageError:
        return None
    return _text(data.get("llmb_version")) if isinstance(data, dict) else None
