# SPDX-License-Identifier: Apache-2.0
"""Reads a folder of exemplar-performance by its cluster_config.yaml, or an older STAGE_PATH.

Releases 25.05 to 25.12 write ``launcher:``, ``slurm.gpu_partition`` and ``slurm.gpu_gres``, since
25.08.01 also ``install:``. Releases of 2026 write ``schema_version: 2``, ``llmb_repo`` and
``slurm.gpu``. Releases before 25.05 have no configuration.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from llmb.core import yamlfile
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.exemplar import TOOL, is_exemplar
from llmb.plan.locate import CONFIG_FILE

Layout = Literal["stage", "launcher", "flat"]
_MOST = 1 << 20  # bytes of a file of settings
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarInstall:
    """The settings in a folder of exemplar-performance. None or empty if it does not say.

    ``layout`` names the keys of its configuration, ``stage`` is a STAGE_PATH without one. ``gpu``
    and ``cpu`` have partition and gres of GPU and CPU jobs, without a gres of GPU jobs that is
    null. ``environment`` is of all jobs. ``environments`` and ``venvs`` are by workload, in its
    words. ``unknown`` has the dotted keys that no release writes.
    """

    folder: Path
    layout: Layout = "stage"
    release: str | None = None
    gpu_type: str | None = None
    cluster_name: str | None = None
    account: str | None = None
    gpu: Mapping[str, str | int | None] = field(default_factory=dict)
    cpu: Mapping[str, str | int | None] = field(default_factory=dict)
    node_architecture: str | None = None
    method: str | None = None
    venv_type: str | None = None
    image_folder: Path | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    environments: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    venvs: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def read_source(folder: Path) -> ExemplarInstall:
    """Read ``folder``. Raises UsageError if it is none of exemplar-performance's."""
    path = folder / CONFIG_FILE
    if path.is_file():
        if not is_exemplar(path):
            message = f"{path} is llmb's own, not of {TOOL}"
            hint = "llmb uses it as it is: --install DIR"
            raise UsageError(message, hint=hint, code="import-own", key="DIR", value=str(folder))
        return _read(folder, yamlfile.load(path, strict=False, most=_MOST).data)
    if (
        any(folder.glob("*.sqsh"))
        or (folder / "results").is_dir()
        or (folder / "experiments").is_dir()
    ):
        return ExemplarInstall(folder=folder)
    state = (
        f"has neither {CONFIG_FILE} nor images or results" if folder.is_dir() else "is not a folder"
    )
    hint = "name the folder that LLMB_INSTALL (before release 25.05: STAGE_PATH) named"
    message = f"{folder} {state} of {TOOL}"
    raise UsageError(message, hint=hint, code="import-nothing", key="DIR", value=str(folder))


def _read(folder: Path, data: Any) -> ExemplarInstall:
    whole = _section({"": data}, "")
    launcher, slurm, install = (_section(whole, name) for name in ("launcher", "slurm", "install"))
    top = {**whole, **launcher}
    workloads = _section(whole, "workloads")
    entries = {
        str(key): _section({"": entry_data}, "")
        for key, entry_data in _section(workloads, "config").items()
    }
    installed = workloads.get("installed")
    images = _text(install.get("image_folder"))
    repo = _text(top.get("llmb_repo"))
    return ExemplarInstall(
        folder=folder,
        layout="launcher" if launcher else "flat",
        release=_release_in(Path(repo)) if repo is not None else None,
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
        image_folder=None if images is None else Path(images),
        environment=_texts(whole, "environment"),
        workloads=tuple(map(str, installed)) if isinstance(installed, list) else (),
        environments={
            key: entry_data
            for key, entry in entries.items()
            if (entry_data := _texts(entry, "environment"))
        },
        venvs={
            key: path for key, entry in entries.items() if (path := _text(entry.get("venv_path")))
        },
        unknown=tuple(_find_unknown_keys(whole)),
    )


def _section(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = data.get(name)
    return {str(key): value for key, value in section.items()} if isinstance(section, dict) else {}


def _text(value: object) -> str | None:
    return str(value).strip() or None if type(value) in (str, int) else None


def _texts(data: Mapping[str, Any], name: str) -> dict[str, str | None]:
    """The variables of a section, None for null.

    A boolean as the launch scripts compare it, ``true``.
    """
    return {key: _variable(value) for key, value in _section(data, name).items()}


def _variable(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(slurm: Mapping[str, Any], kind: str) -> dict[str, str | int | None]:
    """Partition and gres of one kind of jobs, in the keys of either version.

    Of CPU jobs a null gres is kept. Releases of 2026 lose the gres when they update an older
    configuration, so null may mean that there is one: without the key, llmb asks Slurm.
    """
    nested = _section(slurm, kind)
    gres_keys = (f"{kind}_gres", f"{kind}_partition_gres")
    gres = next((slurm[key] for key in gres_keys if key in slurm), nested.get("gres"))
    partition = _text(slurm.get(f"{kind}_partition", nested.get("partition")))
    options: dict[str, str | int | None] = {} if partition is None else {"partition": partition}
    if type(gres) not in (int, str) or gres == "":
        return {**options, "gres": None} if options and kind == "cpu" else options
    return {**options, "gres": gres}


def _find_unknown_keys(data: Mapping[str, Any]) -> Iterator[str]:
    for section, keys in _KNOWN.items():
        for key in data if not section else _section(data, section):
            if key not in keys:
                yield f"{section}.{key}".lstrip(".")


def _release_in(repo: Path) -> str | None:
    """Return the release of the checkout that it was installed from, if that still exists."""
    try:
        data = yamlfile.load(repo / "release.yaml", strict=False, most=_MOST).data
    except UsageError:
        return None
    return _text(data.get("llmb_version")) if isinstance(data, dict) else None


ItemKind = Literal["setting", "variable", "secret", "image", "environment", "workload", "run"]
ItemAction = Literal["take", "present", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One thing that an import found.

    ``detail`` says what becomes of it, or why it is left. ``code`` is the kind of reason, empty for
    what is taken.
    """

    kind: ItemKind
    name: str
    action: ItemAction = "take"
    detail: str = ""
    code: str = ""


def leave(kind: ItemKind, name: str, detail: str, code: str) -> ImportItem:
    return ImportItem(kind=kind, name=name, action="leave", detail=detail, code=code)
