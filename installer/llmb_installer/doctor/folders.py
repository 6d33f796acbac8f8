# SPDX-License-Identifier: Apache-2.0
"""What the folders are good for: the install directory, temporary files, the secrets."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import secrets
from llmb_installer.detect.folder import FolderFound, find_folder
from llmb_installer.doctor.finding import ALL, RUNAI, SLURM, Finding, State, finding, wrong
from llmb_installer.registry import size

ROOM = 20e9  # bytes that an environment of NeMo, or an image and its layers, take at most
TEMPORARY = 5e9  # bytes that pip unpacks and builds in


def findings(
    install: Path, environ: Mapping[str, str], *, is_installed: bool, runs: Path | None = None, alone: bool = False
) -> Iterator[Finding]:
    """Look at the folder to install into, or that is installed, and at those of the user.

    ``runs``: where runs go, None where that is in the install folder; ``alone``: this machine alone uses it.
    """
    found = find_folder(install)
    yield _writable(found, is_installed=is_installed, runs=runs)
    yield _seen(found, alone=alone)
    room = f"{size(found.free)} free"
    short = None if found.free >= ROOM else f"{room}; an image or an environment takes up to {size(round(ROOM))}"
    yield finding("disk", short, room, (), "free some, or install elsewhere: --install DIR")
    tmp = find_folder(Path(environ.get("TMPDIR") or "/tmp"))
    said = f"{tmp.path}: {size(tmp.free)} free"
    fault = f"{tmp.path} cannot be written" if not tmp.writable else said if tmp.free < TEMPORARY else None
    yield finding("temporary files", fault, said, ALL if not tmp.writable else (), "TMPDIR names a roomier folder")
    yield _secrets()


def _writable(found: FolderFound, *, is_installed: bool, runs: Path | None) -> Finding:
    """Whether the folder can be written; a shared installation need not be, where runs go elsewhere."""
    check = "install folder"
    if found.writable:
        return Finding(check=check, state="ok", found=f"{found.path} can be written")
    if not is_installed:
        fix = "choose a folder that you may write: --install DIR"
        said = f"{found.nearest} cannot be written"
        return Finding(check=check, state="missing", found=said, needed_by=ALL, fix=fix)
    said = f"{found.path} is read-only for you"
    if runs is not None and find_folder(runs).writable:
        return Finding(check=check, state="ok", found=f"{said}; your runs go to {runs}")
    fix = "write 'experiments_root: DIR', a folder of yours, into ~/.config/llmb/config.yaml"
    return Finding(check=check, state="wrong", found=f"{said}, and runs go there", needed_by=ALL, fix=fix)


def _seen(found: FolderFound, *, alone: bool) -> Finding:
    """Whether compute nodes see the folder; no matter where this machine is the only one."""
    told = {True: "other machines see it", False: "this machine's own", None: "shared or not: not known"}[found.shared]
    fix = "compute nodes have to see the install folder: choose one on NFS, Lustre or the like"
    state: State = "warning" if found.shared is False and not alone else "ok"
    return Finding(
        check="shared folder",
        state=state,
        found=f"{found.file_system}: {told}",
        needed_by=(SLURM, RUNAI),
        fix=fix if state == "warning" else None,
    )


def _secrets() -> Finding:
    path = Path(secrets.SECRETS_FILE).expanduser()
    if not path.exists():
        return Finding(check="secrets", state="ok", found=f"no {secrets.SECRETS_FILE}; the environment is asked too")
    try:
        names = sorted(secrets.names())
    except LlmbError as error:
        return wrong("secrets", error, ALL)
    mode = path.stat().st_mode & 0o777
    return Finding(check="secrets", state="ok", found=f"{path}, mode {mode:o}: {', '.join(names) or 'empty'}")
