# SPDX-License-Identifier: Apache-2.0
"""The install directory: its place, its record of finished steps, marks and leftovers."""

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Self

from llmb.builtin.local.queue import state_folder
from llmb.contract.schema import ClusterConfig
from llmb.core import console, files, locks, process, typed, yamlfile
from llmb.core.values import dataclass
from llmb.errors import InputFaults, LlmbError, UsageError, as_fault
from llmb.plan.config_layers import load_config
from llmb.plan.locate import CONFIG_FILE, UNFINISHED
from llmb.plan.read_config import NEWER, read_config
from llmb.plugins.foreign import CODE as FOREIGN, find_own_install, refuse_foreign
from llmb_installer.cluster_types import all_plugins, all_types

FOLDER = ".llmb"
LOCK = "install"  # in FOLDER: held by the process that changes the installation
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStep:
    """A finished step: the digest of its content, the facts of its kind, and its workloads.

    ``damaged`` is set while a repair has begun and not succeeded.
    """

    digest: str
    facts: dict[str, Any]
    workloads: tuple[str, ...] = ()
    damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRecord:
    """Finished steps by key, and the ``config`` that the installer last wrote."""

    steps: dict[str, FinishedStep] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def finished(self, key: str, step: FinishedStep) -> Self:
        """The record with one more step."""
        return replace(self, steps={**self.steps, key: step})

    def marked(self, key: str) -> Self:
        return self.finished(key, replace(self.steps[key], damaged=True))

    def without(self, key: str) -> Self:
        return replace(self, steps={name: step for name, step in self.steps.items() if name != key})


def record_path(install: Path) -> Path:
    return install / FOLDER / "install.json"


def answers_path(install: Path) -> Path:
    """The file of the answers of the latest installation."""
    return install / FOLDER / "answers.yaml"


def load(install: Path) -> InstallRecord:
    """The record of ``install``, empty if nothing is installed.

    Raises LlmbError when it is damaged.
    """
    path = record_path(install)
    data = files.read_json(path)
    if data is None:
        return InstallRecord()
    if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
        raise LlmbError(
            f"{path} was written by another version of llmb",
            hint="use that version of llmb-install",
            code="record-version",
        )
    return typed.read_own(InstallRecord, path, data)


def save(install: Path, record: InstallRecord) -> None:
    """Write the record. What a newer release added to it is kept."""
    path = record_path(install)
    files.write_json(
        path, {"schema_version": SCHEMA_VERSION, **typed.keeping(record, files.read_json(path))}
    )


def save_answers(install: Path, text: str) -> None:
    """Write the answers unless the file has them already."""
    path = answers_path(install)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def find_folder(option: Path | None) -> Path:
    """Return ``find_install``'s directory, or one with only the installer's own files left.

    Raises UsageError.
    """
    environ = os.environ
    try:
        return find_own_install(all_plugins, option, environ)
    except UsageError as error:
        if "STAGE_PATH" in environ or error.code in (FOREIGN, "folder-unusable"):  # always refused
            raise
        named = option or (
            files.expand(environ["LLMB_INSTALL"]) if environ.get("LLMB_INSTALL") else None
        )
        start = (named or console.current_folder()).absolute()
        for folder in (start, *(start.parents if named is None else ())):
            if record_path(folder).is_file() or answers_path(folder).is_file():
                return folder.resolve()
        raise


def load_layered_config(folder: Path) -> ClusterConfig:
    """The configuration of ``folder`` with every layer.

    Raises InputFaults with the command that repairs it.
    """
    if not (folder / CONFIG_FILE).is_file():
        message = (
            f"{folder} has no {CONFIG_FILE}: the installation is not finished, or the file was"
            " removed"
        )
        raise UsageError(message, hint=unfinished_hint(folder))
    read_own_config(folder)
    return load_config(folder, os.environ, cluster_types=all_types)[0]


def read_own_config(folder: Path) -> ClusterConfig:
    """cluster_config.yaml without the layers above it.

    Raises UsageError with the command that fixes it.
    """
    refuse_foreign(folder, all_plugins)
    try:
        return read_config(yamlfile.load(folder / CONFIG_FILE), cluster_types=all_types)
    except InputFaults as error:
        raise InputFaults(
            error.faults, hint=error.hint or f"correct it, or run: {repair_hint(folder)}"
        ) from error
    except UsageError as error:
        if error.code == NEWER:  # a repair would replace it by an older one
            raise
        fix = f"correct it, or run: {repair_hint(folder)}"
        if isinstance(error.__cause__, PermissionError):
            error.hint, fix = None, readable_hint(folder)
        raise InputFaults([as_fault(error)], hint=fix) from error


def format_option(folder: Path | None) -> str:
    """The option of follow-up commands: `` --install DIR``, or nothing if none was given."""
    return f" --install {shlex.quote(str(folder))}" if folder is not None else ""


def repair_hint(folder: Path) -> str:
    """The command that replaces a missing or invalid configuration."""
    return f"llmb-install verify --repair{format_option(folder)} --yes{by_owner(folder)}"


def by_owner(folder: Path) -> str:
    """Who runs a command that changes ``folder``, empty if this user may."""
    return "" if os.access(folder, os.W_OK) else " (as its owner: you may not write there)"


def replace_hint(folder: Path) -> str:
    """The fix of recorded answers that cannot be read."""
    return f"to replace it, run: llmb-install --config answers.yaml{format_option(folder)}"


def readable_hint(folder: Path) -> str:
    """The fix of files that only their owner may read."""
    return f"ask its owner to run: chmod -R go+rX {shlex.quote(str(folder))}"


def unfinished_hint(folder: Path) -> str:
    """The fix of a missing configuration: wait for the running installer, continue or repair."""
    wait = running_installer(folder)
    if wait is not None:
        return f"{wait}: wait until it has finished"
    if (folder / UNFINISHED).exists() and answers_path(folder).is_file():
        return f"to continue, run: llmb-install{format_option(folder)} --yes"
    return f"run: {repair_hint(folder)}"


def running_installer(folder: Path) -> str | None:
    """Describe the llmb-install that is changing ``folder`` now. None without one."""
    owner = locks.holder(folder / FOLDER, LOCK)
    if owner is None:
        return None
    return "llmb-install is running there" + (
        f", process {owner.pid} on {owner.host}" if owner.pid else ""
    )


_POINTER = "unfinished-install"


def mark_unfinished(install: Path, environ: Mapping[str, str]) -> None:
    """Mark ``install``, whose folder exists, until its last step is done, also after a kill.

    A file of this user on this machine names the folder, so that it is found from anywhere after a
    lost connection.
    """
    text = "llmb-install has not finished here: 'llmb-install' in this folder continues.\n"
    files.write_text(install / UNFINISHED, text)
    # a convenience: the mark alone is enough in the folder
    with contextlib.suppress(LlmbError, OSError):
        files.write_text(state_folder(environ) / _POINTER, f"{install}\n")


def mark_finished(install: Path, environ: Mapping[str, str]) -> None:
    """Remove the mark of an installation that came to its end."""
    with contextlib.suppress(OSError):
        (install / UNFINISHED).unlink(missing_ok=True)
        if _pointed(environ) == install:
            (state_folder(environ) / _POINTER).unlink(missing_ok=True)


def is_unfinished(install: Path) -> bool:
    """Return True if an installation began in ``install`` and did not come to its end.

    Its answers are recorded.
    """
    if not answers_path(install).is_file():
        return False
    return (install / UNFINISHED).exists() or not (install / CONFIG_FILE).exists()


def is_interrupted(install: Path) -> bool:
    """Return True if the installation in ``install`` ended before a workload was installed."""
    if (install / CONFIG_FILE).exists() or load(install).config:
        return False
    return running_installer(install) is None


def last_unfinished(environ: Mapping[str, str]) -> Path | None:
    """The unfinished installation that this user began last on this machine. None without one."""
    install = _pointed(environ)
    return install if install is not None and is_unfinished(install) else None


def _pointed(environ: Mapping[str, str]) -> Path | None:
    try:
        install = Path((state_folder(environ) / _POINTER).read_text("utf-8").rstrip("\n"))
    except (OSError, ValueError):
        return None
    return install if install.is_absolute() else None


_MARK = "LLMB_INSTALLING_INTO"
_OTHERS = 60.0  # seconds after which a file that another program may be writing is a leftover


def mark(install: Path) -> dict[str, str]:
    """Return the variable that marks programs of an installation, to find them without a parent."""
    return {_MARK: str(install.resolve())}


def end_leftover_programs(install: Path) -> None:
    """End programs of a killed installer, such as pip, which would write into the next build."""
    for name, value in mark(install).items():
        process.kill_marked(name, value)


def remove_leftovers(install: Path) -> None:
    """Remove half-written files.

    A file that llmb-run may be writing is removed only when it is old.
    """
    folder = install / ".llmb"
    leftovers = [*install.glob(".cluster_config.yaml*.part"), *folder.glob(".install.json.*.part")]
    leftovers += [
        *folder.glob(".answers.yaml.*.part"),
        *folder.glob("locks/.*.part"),
        *folder.glob("logs/.*.part"),
    ]
    _remove(leftovers)
    shared = [*folder.glob(".install.lock.*.part"), *folder.glob("programs/.*.part")]
    _remove(path for path in shared if _age(path) > _OTHERS)


def remove_unwanted_parts(install: Path) -> None:
    """Remove partial downloads of steps that are not needed any more."""
    _remove([*install.glob("repos/.*.part"), *install.glob("datasets/hub/*/.*.part")])


def remove_all_parts(install: Path) -> None:
    """Remove what steps left that did not finish, once no finished step is recorded."""
    remove_leftovers(install)
    remove_unwanted_parts(install)
    _remove([*install.glob("venvs/.*.????????"), *install.glob("venvs/.*.????????.link")])
    _remove(path for path in install.glob("images/.*.part") if _age(path) > _OTHERS)


def _age(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
