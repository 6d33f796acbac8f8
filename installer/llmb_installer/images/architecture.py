# SPDX-License-Identifier: Apache-2.0
"""For which machines an image is, by the programs in it: a registry may say one thing and hold another."""

import shutil
import tempfile
from pathlib import Path

from llmb.system import shell

_MACHINES = {62: "amd64", 183: "arm64", 21: "ppc64le", 243: "riscv64"}  # e_machine of the ELF header
_PROGRAMS = ("usr/bin/bash", "bin/bash", "usr/bin/dash", "bin/dash", "usr/bin/env", "bin/busybox", "usr/bin/python3")


def architecture_of(image: Path) -> str | None:
    """The architecture of the programs in a squashfs image, as registries call it; None when it cannot be told.

    It cannot where unsquashfs is missing or the image has none of the usual programs.
    """
    program = shutil.which("unsquashfs")
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="llmb-") as folder:
        into = Path(folder) / "image"
        shell.run([program, "-no-progress", "-no-xattrs", "-d", str(into), str(image), *_PROGRAMS])
        found = (machine_of(into / name) for name in _PROGRAMS)
        return next((name for name in found if name is not None), None)


def machine_of(program: Path) -> str | None:
    """The architecture of a program, None when it is none."""
    if not program.is_file() or program.is_symlink():
        return None
    with program.open("rb") as file:
        head = file.read(20)
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return _MACHINES.get(number, f"machine {number}")
