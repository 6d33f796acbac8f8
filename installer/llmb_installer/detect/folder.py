# SPDX-License-Identifier: Apache-2.0
"""What a folder is good for: free space, whether other machines see it, whether it can be written."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHARED = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "daos",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "quobyte",
        "smb3",
        "virtiofs",
        "wekafs",
    }
)
OWN = frozenset({"btrfs", "ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs", "zfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFound:
    """A folder, there or to be made: ``nearest`` is it or its nearest parent that is there.

    ``free`` in bytes; ``shared`` None where its ``file_system`` does not tell whether other machines see it.
    """

    path: Path
    nearest: Path
    free: int
    file_system: str
    shared: bool | None
    writable: bool


def find_folder(path: Path) -> FolderFound:
    """Look at ``path``, which need not be there."""
    path = path.expanduser().absolute()
    nearest = next(folder for folder in (path, *path.parents) if folder.is_dir())
    kind = file_system_of(nearest.resolve(), _mounts())
    return FolderFound(
        path=path,
        nearest=nearest,
        free=shutil.disk_usage(nearest).free,
        file_system=kind,
        shared=is_shared(kind),
        writable=not path.is_file() and os.access(nearest, os.W_OK | os.X_OK),
    )


def is_shared(file_system: str) -> bool | None:
    """Whether other machines may see a file system of this type; None where nothing is known of it."""
    return True if file_system in SHARED else False if file_system in OWN else None


def file_system_of(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """The type of the file system that ``path`` is on; ``mounts`` are mount points and types."""
    found, depth = "unknown", -1
    for point, kind in mounts:
        mount = Path(point)
        if (path == mount or mount in path.parents) and len(mount.parts) >= depth:
            found, depth = kind, len(mount.parts)
    return found


def _mounts() -> list[tuple[str, str]]:
    import psutil

    return [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
