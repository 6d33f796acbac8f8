# SPDX-License-Identifier: Apache-2.0
"""Opens an archive in the place of an install directory, for the commands that read."""

from pathlib import Path

from llmb.cli.context import Context
from llmb.config.locate import is_archive
from llmb.errors import UsageError


def opened(context: Context, names: tuple[str, ...]) -> tuple[str, ...]:
    """The runs that ``names`` mean; an archive in the first place is used as the install directory."""
    if not names or not is_archive(names[0]):
        return names
    context.install_option, context.reads_archives = Path(names[0]), True
    return names[1:]


def opened_run(context: Context, names: tuple[str, ...]) -> str:
    """The one run of ``[ARCHIVE] RUN``; without RUN, the only one of the archive. Raises UsageError."""
    runs = opened(context, names)
    if not runs and len(found := context.runs()) == 1:
        return found[0].id
    if len(runs) != 1:
        hint = "llmb-run jobs list shows the runs"
        raise UsageError("name one run", hint=hint, code="run-missing", key="RUN", value=" ".join(runs))
    return runs[0]
