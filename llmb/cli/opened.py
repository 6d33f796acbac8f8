# SPDX-License-Identifier: Apache-2.0
"""Opens an archive in the place of an install directory, for the commands that show results."""

import atexit
import shutil
import tempfile
from pathlib import Path

from llmb.archive.read import is_archive, unpack
from llmb.cli.context import Context


def opened(context: Context, names: tuple[str, ...]) -> tuple[Context, tuple[str, ...]]:
    """The context and the runs that ``names`` mean: those of an archive where the first name is one."""
    if not names or not is_archive(names[0]):
        return context, names
    return of_archive(context, names[0]), names[1:]


def of_archive(context: Context, name: str) -> Context:
    """A context whose install directory is an archive, unpacked until the command ends."""
    folder = Path(tempfile.mkdtemp(prefix="llmb-archive-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    unpack(Path(name), folder)
    return context.archived(folder)
