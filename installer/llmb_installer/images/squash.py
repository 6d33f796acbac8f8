# SPDX-License-Identifier: Apache-2.0
"""Drives mksquashfs: whether the one here can do it, and a tar stream into it."""

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import shell
from llmb_installer.images.settings import ELSEWHERE, BuildSettings
from llmb_installer.images.tarheader import BLOCK, Attributes

Write = Callable[[bytes | memoryview], None]
NEEDED = (4, 5)  # the first version that reads tar from its standard input
_EMPTY_TAR = bytes(2 * BLOCK)
_GET = "install squashfs-tools 4.5 or newer (your cluster may have it as a module), or choose the builder 'enroot'"
_TAIL = 8  # lines of its output that an error shows
_MEMORY = 1024, 32  # MiB for mksquashfs: in all cases, and for each processor


def squash_fault(settings: BuildSettings) -> LlmbError | None:
    """Why mksquashfs here cannot build with these settings; None when it can, which is tried on an empty image."""
    program = shutil.which("mksquashfs")
    if program is None:
        return LlmbError("there is no mksquashfs here", hint=_GET)
    told = shell.run([program, "-version"]).out
    found = re.search(r"version (\d+)\.(\d+)", told)
    if found is None or (int(found[1]), int(found[2])) < NEEDED:
        version = f"{found[1]}.{found[2]}" if found else "of an unknown version"
        return LlmbError(f"{program} is {version}, which reads no tar stream", hint=_GET)
    with tempfile.TemporaryDirectory(prefix="llmb-") as folder:
        log = Path(folder) / "log"
        try:
            squash(Path(folder) / "empty", settings, Attributes(), log, lambda write: write(_EMPTY_TAR))
        except LlmbError as error:
            told = f"{program} cannot build with {' '.join(settings.options)}:\n{error.message}"
            level = "set another level, or none; or " if settings.level is not None else ""
            return LlmbError(told, hint=f"{level}set another compression: gzip is everywhere; or {_GET}")
    return None


def squash(
    target: Path, settings: BuildSettings, root: Attributes, log: Path, write_tar: Callable[[Write], None]
) -> None:
    """Write the image ``target``, which must not exist, from the tar that ``write_tar`` writes.

    ``root`` is what the image's root folder is like; the output goes to ``log``. Raises LlmbError; what ``write_tar``
    raises ends mksquashfs and is raised here.
    """
    process = None
    with tempfile.TemporaryDirectory(prefix="llmb-") as folder:
        own = Path(folder) / "log"  # not yet to `log`: on a full disk, why it failed would be lost
        try:
            with shell.feed(_argv(target, settings, root), own) as (process, write):
                write_tar(write)
        except BrokenPipeError:
            pass  # it has ended early: its exit code and output say why
        output = own.read_text("utf-8", "replace")
    _append(log, output)
    assert process is not None
    if process.returncode != 0:
        raise _failed(process.returncode, output, target, log)


def _append(log: Path, output: str) -> None:
    with contextlib.suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(output)


def _argv(target: Path, settings: BuildSettings, root: Attributes) -> list[str]:
    processors = settings.processors or len(os.sched_getaffinity(0))
    argv = ["mksquashfs", "-", str(target), "-tar", *settings.options, "-noappend", "-exit-on-error"]
    argv += ["-no-progress", "-quiet", "-processors", str(processors)]
    argv += ["-mem", f"{_MEMORY[0] + _MEMORY[1] * processors}M"]
    # Of the root's own options, mksquashfs 4.5 heeds the mode alone when it reads tar.
    argv += ["-root-mode", f"{root.mode:o}", "-root-uid", str(root.uid), "-root-gid", str(root.gid)]
    return [*argv, "-root-time", str(root.mtime)]


def _failed(code: int, output: str, target: Path, log: Path) -> LlmbError:
    told = "\n".join(f"  {line}" for line in output.splitlines()[-_TAIL:] if line.strip())
    if code == -signal.SIGXFSZ:
        what, fix = "mksquashfs was ended by the limit for the size of a file", "raise it: ulimit -f unlimited"
    elif "No space left" in output or "quota" in output.lower():
        what, fix = f"{target.parent} is full", f"free space there, or choose {ELSEWHERE}"
    elif code < 0:
        what, fix = f"mksquashfs was ended by {signal.Signals(-code).name}", "give the same command again"
    else:
        what, fix = f"mksquashfs failed with exit code {code}", f"all of its output: {log}"
    return LlmbError(f"{what}:\n{told}" if told else what, hint=fix)
