# SPDX-License-Identifier: Apache-2.0
"""Where an environment lies: a link ``venvs/<name>`` to a folder of one build alone.

So a build that was killed is never taken for whole, a pip that outlives its installer writes where nobody looks, and
one that fails leaves the environment in use as it was.
"""

import os
import re
import shutil
import uuid
from pathlib import Path

from llmb.errors import LlmbError


def new_folder(link: Path) -> Path:
    """A folder for the next build of the environment at ``link``; not made yet."""
    return link.with_name(f".{link.name}.{uuid.uuid4().hex[:8]}")


def used(link: Path) -> str | None:
    """The name of the folder in use."""
    return link.readlink().name if link.is_symlink() else None


def require_ours(link: Path) -> None:
    """Raises LlmbError where ``link`` is a file, a folder, or a link to somewhere else: that is the user's."""
    if not os.path.lexists(link) or _is_ours(link):
        return
    what = "a link to another place" if link.is_symlink() else "a folder" if link.is_dir() else "a file"
    raise LlmbError(f"{link} is {what} that llmb-install has not made", hint="move it away")


def _is_ours(link: Path) -> bool:
    return (
        link.is_symlink()
        and re.fullmatch(rf"\.{re.escape(link.name)}\.[0-9a-f]{{8}}", str(link.readlink())) is not None
    )


def switch(link: Path, folder: Path) -> None:
    """Let ``link`` lead to ``folder``, in one step. Raises LlmbError, also for what is no link of ours."""
    require_ours(link)
    new = link.with_name(f"{folder.name}.link")
    try:
        new.symlink_to(folder.name)
        new.replace(link)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise LlmbError(f"{link} cannot be replaced: {error.strerror}", hint="move it away") from error


def sweep(venvs: Path, name: str) -> None:
    """Remove the builds of ``name`` that ``venvs/<name>`` does not lead to."""
    keep = used(venvs / name)
    for path in venvs.glob(f".{name}.*"):
        if path.name == keep or not re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}(\.link)?", path.name):
            continue
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def site_packages(folder: Path) -> list[Path]:
    """The folders that hold the packages of the environment ``folder``."""
    return sorted(path for path in folder.glob("lib/python3*/site-packages") if path.is_dir())
