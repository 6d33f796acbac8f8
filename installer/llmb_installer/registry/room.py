# SPDX-License-Identifier: Apache-2.0
"""Whether the disks have room for what is to be fetched and built."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from llmb.errors import Fault


def no_room(needed: Mapping[Path, int]) -> list[Fault]:
    """A fault for each disk that has less free than the ``needed`` bytes of all its folders together.

    A folder that is not there yet counts where the nearest one above it is.
    """
    folders: dict[int, list[Path]] = {}
    for folder in needed:
        folders.setdefault(_there(folder).stat().st_dev, []).append(folder)
    faults = []
    for group in folders.values():
        total, free = sum(needed[folder] for folder in group), shutil.disk_usage(_there(group[0])).free
        if total > free:
            names = ", ".join(map(str, group))
            message = f"{names}: {size(total)} are needed, {size(free)} are free"
            faults.append(Fault(place="disk", message=message, hint="free space there, or choose a folder elsewhere"))
    return faults


def size(number: int) -> str:
    """Bytes for people: 1.6 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} bytes"


def _there(folder: Path) -> Path:
    absolute = folder.expanduser().absolute()
    return next(path for path in (absolute, *absolute.parents) if path.exists())
