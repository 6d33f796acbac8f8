# SPDX-License-Identifier: Apache-2.0
"""Job lists: two formats, read strictly, every fault told with its line."""

from pathlib import Path

from llmb.planning.joblist import simple, yamllist
from llmb.runs.job import JobList

__all__ = ["read_job_list"]


def read_job_list(path: Path) -> JobList:
    """The requests in a job list and its faults: YAML by its ending ``.yaml`` or ``.yml``, else the simple format.

    Names are as written; whether a workload has them is checked when jobs are planned. Raises UsageError when the file
    cannot be read or holds nothing, InputFaults when it is not YAML at all.
    """
    return yamllist.read(path) if path.suffix.lower() in (".yaml", ".yml") else simple.read(path)
