# SPDX-License-Identifier: Apache-2.0
"""Installations that were interrupted: where they are, what is done, and what remains.

A file in the folder marks it from the first step to the last. Another file, of this user on this machine, names the
folder, so that it is found from anywhere after a lost connection.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb.clusters.local.queue import state_folder
from llmb.config import CONFIG_FILE
from llmb.errors import LlmbError
from llmb.system import files
from llmb_installer import record
from llmb_installer.steps import Step

_MARK, _POINTER = "unfinished", "unfinished-install"


def mark(install: Path, environ: Mapping[str, str]) -> None:
    """Mark ``install``, whose folder exists, as unfinished. The mark stays after a kill or a power cut."""
    files.write_text(_mark(install), "llmb-install has not finished here: 'llmb-install' in this folder continues.\n")
    with contextlib.suppress(LlmbError, OSError):  # a convenience: the mark alone is enough in the folder
        files.write_text(_pointer(environ), f"{install}\n")


def unmark(install: Path, environ: Mapping[str, str]) -> None:
    """Remove the mark of an installation that came to its end."""
    with contextlib.suppress(OSError):
        _mark(install).unlink(missing_ok=True)
        if _pointed(environ) == install:
            _pointer(environ).unlink(missing_ok=True)


def is_unfinished(install: Path) -> bool:
    """Whether an installation began in ``install`` and did not come to its end; its answers are recorded."""
    if not record.answers_path(install).is_file():
        return False
    return _mark(install).exists() or not (install / CONFIG_FILE).exists()


def pointed(environ: Mapping[str, str]) -> Path | None:
    """The unfinished installation that this user began last on this machine; None without one."""
    install = _pointed(environ)
    return install if install is not None and is_unfinished(install) else None


def _pointed(environ: Mapping[str, str]) -> Path | None:
    try:
        install = Path(_pointer(environ).read_text("utf-8").rstrip("\n"))
    except (OSError, ValueError):
        return None
    return install if install.is_absolute() else None


def counted(done: Sequence[Step], todo: Sequence[Step]) -> str:
    """``2 of 5 steps are done``."""
    return f"{len(done)} of {len(done) + len(todo)} steps {'is' if len(done) == 1 else 'are'} done"


def _mark(install: Path) -> Path:
    return install / record.FOLDER / _MARK


def _pointer(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / _POINTER
