# SPDX-License-Identifier: Apache-2.0
"""The cause of a run on a full disk. No log says it: the log could not be written either."""

from llmb.contract.record import RunRecord
from llmb.core import files
from llmb.kit import bashscript
from llmb.measure.failure_causes import Cause


def full_disk(run: RunRecord) -> Cause | None:
    """Return the cause if the run's script has not recorded its end, and its disk is full now."""
    # Without that line, as on this machine, a missing record says nothing.
    is_recorded = any(f"/{bashscript.ENDED}" in line for line in bashscript.read_lines(run.script))
    if not is_recorded or bashscript.read_files(run).exit_code is not None:
        return None
    try:
        files.check_space(run.place)
    except files.DiskFullError as error:
        advice = (
            "free space there or raise the quota (df, quota) before the waiting jobs start, which"
            " fail too; then llmb-run jobs retry --failed"
        )
        return Cause(kind="disk", line=error.message, advice=advice)
    return None
