# SPDX-License-Identifier: Apache-2.0
"""Permissions of what llmb creates: those of the install directory, else by the umask."""

import contextlib
import os
import stat
from functools import lru_cache
from pathlib import Path

_INSTALLS = ("cluster_config.yaml", ".llmb")  # an install directory has one of these


@lru_cache(maxsize=1024)
def mode_of_install(folder: Path) -> int | None:
    """Return the permission bits of the install directory around ``folder``, None without one."""
    try:
        if any((folder / name).exists() for name in _INSTALLS):
            return folder.stat().st_mode & 0o777
    except OSError:
        return None
    # The answer for the folder above is kept too: thousands of runs have few folders above them.
    return mode_of_install(folder.parent) if folder != folder.parent else None


def umask_in(folder: Path, default: int) -> int:
    """Return the umask for programs in ``folder``, ``default`` outside of an install directory."""
    shared = mode_of_install(folder)
    return default if shared is None else 0o077 & ~shared


def own_umask() -> int:
    try:
        descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        return int(status.partition(b"\nUmask:")[2].split()[0], 8)
    except (OSError, ValueError, IndexError):
        umask = os.umask(0o077)  # the only other way to read it
        os.umask(umask)
        return umask


def share_folder(folder: Path) -> None:
    """Give a new folder the mode of the install directory that contains it, if any."""
    if (shared := mode_of_install(folder.parent)) is not None:
        with contextlib.suppress(OSError):
            now = stat.S_IMODE(folder.stat().st_mode)
            mode = now & 0o7000 | 0o700 | shared & 0o077
            if mode != now:
                folder.chmod(mode)


def share_tree(folder: Path) -> None:
    """Give ``folder`` and all that other programs wrote into it the mode of its install directory.

    Group and others get what the owner has, as far as the install directory's own mode allows it.
    """
    shared = mode_of_install(folder.parent)
    if shared is None:
        return
    for place, folders, names in os.walk(folder):
        # os.path is faster than pathlib, and an environment has many files.
        entries = (os.path.join(place, name) for name in (*folders, *names))  # noqa: PTH118
        for path in (place, *entries):
            with contextlib.suppress(OSError):
                now = os.lstat(path).st_mode
                owner = now >> 6 & 0o7
                mode = now & 0o7700 | (owner << 3 | owner) & shared
                if not stat.S_ISLNK(now) and mode != now & 0o7777:
                    os.chmod(path, mode)  # noqa: PTH101
