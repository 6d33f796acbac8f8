# SPDX-License-Identifier: Apache-2.0
"""Finds the install directory, and reads the parts of its configuration that need no checks."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from llmb.core import console, files
from llmb.errors import UsageError

CONFIG_FILE = "cluster_config.yaml"
#: In an install directory whose installation runs, or was interrupted.
UNFINISHED = Path(".llmb") / "unfinished"
_HOW = (
    "give --install DIR, set LLMB_INSTALL, or go into an install directory; llmb-install makes one"
)


# the end of an archive's name: some commands read one in the place of an install directory
ARCHIVE = ".tar.zst"


def is_archive(text: str) -> bool:
    """Return True if a word of the command line, or a path, names an archive."""
    return text.endswith(ARCHIVE)


def find_install(option: Path | None, environ: Mapping[str, str], cwd: Path | None = None) -> Path:
    """Return the install directory: ``option``, LLMB_INSTALL, or the nearest above ``cwd``.

    The path is absolute. ``cwd`` is the current folder by default, which may be gone if it is not
    needed.

    Raises UsageError if there is none or it has no configuration, and always if the older
    STAGE_PATH is set, so that the directory in use is never a guess.
    """
    if "STAGE_PATH" in environ:
        hint = (
            "set LLMB_INSTALL to the install directory (or give --install DIR), and: unset"
            " STAGE_PATH"
        )
        raise UsageError("STAGE_PATH is no longer read", hint=hint, code="stage-path")
    if option is not None:
        return _checked(_absolute(option, cwd), "--install")
    if value := environ.get("LLMB_INSTALL"):
        return _checked(_absolute(files.expand(value), cwd), "LLMB_INSTALL")
    cwd = cwd or console.current_folder()
    for folder in (cwd, *cwd.parents):
        if (folder / CONFIG_FILE).is_file():
            return folder
        if (folder / UNFINISHED).exists():
            raise _unfinished(folder, "current folder")
    raise UsageError(
        f"no {CONFIG_FILE} in this folder or above it", hint=_HOW, code="install-missing"
    )


def _absolute(path: Path, cwd: Path | None) -> Path:
    return path if path.is_absolute() else (cwd or console.current_folder()) / path


def _unfinished(folder: Path, source: str) -> UsageError:
    """The error for a folder that has no configuration yet."""
    option = f"--install {shlex.quote(str(folder))}"
    return UsageError(
        f"{source}: the installation in {folder} has not finished",
        hint=(
            f"llmb-install status {option} says whether it is running; to continue it, run:"
            f" llmb-install {option} --yes"
        ),
        code="install-unfinished",
        key=source,
        value=str(folder),
    )


def _checked(folder: Path, source: str) -> Path:
    if is_archive(str(folder)):
        message = f"{source}: {folder} is an archive, which this command does not take"
        hint = (
            "name an install directory; results, compare, report, explain, jobs and config read"
            " archives"
        )
        raise UsageError(
            message, hint=hint, code="archive-read-only", key=source, value=str(folder)
        )
    if not (folder / CONFIG_FILE).is_file():
        if (folder / UNFINISHED).exists():
            raise _unfinished(folder, source)
        is_other = "is not a folder" if folder.exists() else "does not exist"
        state = f"has no {CONFIG_FILE}" if folder.is_dir() else is_other
        raise UsageError(
            f"{source}: {folder} {state}",
            hint=(
                "check the path; to install there, run: llmb-install --install"
                f" {shlex.quote(str(folder))}"
            ),
            code="install-missing",
            key=source,
            value=str(folder),
        )
    return folder.resolve()


def installed_in(install: Path) -> tuple[str, ...]:
    """Return the installed workloads of a configuration. Raises UsageError for invalid YAML."""
    from llmb.core import yamlfile  # PyYAML, which --help does not need

    data = yamlfile.load(install / CONFIG_FILE).data
    workloads = data.get("workloads") if isinstance(data, dict) else None
    names = workloads.get("installed") if isinstance(workloads, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def line_in_config(install: Path, *keys: str) -> str:
    """Return ``file:line`` of a key in the configuration of ``install``, empty without it."""
    try:
        from llmb.core import yamlfile

        document = yamlfile.load(install / CONFIG_FILE)
    except UsageError:
        return ""
    return document.place(keys) if keys in document.lines else ""
