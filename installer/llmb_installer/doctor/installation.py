# SPDX-License-Identifier: Apache-2.0
"""What the doctor is to look at: the installation that is named or around, its configuration, the user's own layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb.config import CONFIG_FILE, ClusterConfig, find_install, load_config
from llmb.errors import LlmbError, UsageError
from llmb_installer import record
from llmb_installer.detect.look import Detected
from llmb_installer.doctor.finding import ALL, Finding, wrong
from llmb_installer.record import unfinished_hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An installation as the doctor sees it; ``findings`` say what of it cannot be used.

    ``path`` None where none is there; ``folder``: it, or the folder that one would be made in. ``cluster_type`` is
    known where the configuration is lost too, as long as the installer has noted what it wrote.
    """

    folder: Path
    path: Path | None = None
    config: ClusterConfig | None = None
    cluster_type: str | None = None
    findings: tuple[Finding, ...] = ()


def look_at(detected: Detected, environ: Mapping[str, str], install: Path | None) -> Installation:
    """The installation that was ``detected``; ``install`` is the folder that was named, be it there or not."""
    if detected.installed is not None:
        return _sound(detected.installed.path, detected.installed.config, environ)
    if detected.damaged is not None:
        path = detected.damaged.path
        return _damaged(path, wrong(CONFIG_FILE, detected.damaged.error, ALL))
    named = install or detected.named
    folder = detected.cwd / named if named is not None else detected.cwd
    is_there = record.answers_path(folder).is_file() or record.record_path(folder).is_file()
    if is_there and not (folder / CONFIG_FILE).is_file():
        said = f"{folder / CONFIG_FILE} is not there: the installation is not finished, or the file was removed"
        lost = Finding(check=CONFIG_FILE, state="missing", found=said, needed_by=ALL, fix=unfinished_hint(folder))
        return _damaged(folder, lost)
    return Installation(folder=folder, findings=_refused(detected, environ))


def _sound(path: Path, config: ClusterConfig, environ: Mapping[str, str]) -> Installation:
    """With the layers above the file, as far as they can be read."""
    kind, faults = config.cluster_type, []
    try:
        config, _ = load_config(path, environ)
    except LlmbError as error:
        faults.append(wrong("your own configuration", error, ALL))
    try:
        record.load(path)
    except LlmbError as error:
        faults.append(wrong("record of the installation", error, ALL))
    return Installation(folder=path, path=path, config=config, cluster_type=kind, findings=tuple(faults))


def _damaged(path: Path, fault: Finding) -> Installation:
    try:
        kind = record.load(path).config.get("cluster_type")
    except LlmbError:  # verify tells of it
        kind = None
    known = kind if kind in ALL else None
    return Installation(folder=path, path=path, cluster_type=known, findings=(fault,))


def _refused(detected: Detected, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """STAGE_PATH keeps every other command from looking for an installation."""
    if "STAGE_PATH" not in environ:
        return ()
    try:
        find_install(None, environ, detected.cwd)
    except UsageError as error:
        return (wrong("STAGE_PATH", error, ALL),)
    return ()
