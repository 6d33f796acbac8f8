# SPDX-License-Identifier: Apache-2.0
"""Reads a job list: YAML, or another format that a plugin knows."""

from collections.abc import Callable, Mapping
from pathlib import Path

from llmb.contract.entry import JobList
from llmb.contract.launch_variable import NO_VARIABLES, Variables
from llmb.contract.spec import Workload
from llmb.core import files
from llmb.core.names import begins_with_workload
from llmb.errors import Fault, UsageError
from llmb.plan import yaml_joblist

_YAML = (".yaml", ".yml")
_SHOWN_FAULTS = 10  # of a file that is perhaps no job list


def read_job_list(
    path: Path,
    read_other: Callable[[str, str], JobList | None] = lambda _name, _text: None,
    variables: Variables = NO_VARIABLES,
) -> JobList:
    """Return the entries in a job list and its faults. Names are checked when jobs are planned.

    A name that ends in ``.yaml`` or ``.yml`` is YAML. ``read_other`` reads any other from its name
    and its text, and returns None if no plugin knows its format. ``variables`` of other launchers
    in environments are settings. Raises UsageError for a file that cannot be read or has no
    content, InputFaults for invalid YAML.
    """
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, and no job list",
            hint=f"name a file in it: {path}/NAME",
            code="joblist-folder",
            key="joblist",
            value=str(path),
        )
    if path.suffix.lower() in _YAML:
        return yaml_joblist.read(path, variables)
    listed = read_other(str(path), files.read_text(path))
    if listed is None:
        message = f"{path} is no job list in a format that llmb or an installed plugin knows"
        hint = "write it as YAML, in a file whose name ends in .yaml"
        raise UsageError(message, hint=hint, code="joblist-unknown", key="joblist", value=str(path))
    return listed


def shortened(path: Path, listed: JobList, workloads: Mapping[str, Workload]) -> JobList:
    """Return the list, with its first faults alone if it names none of ``workloads``.

    It is perhaps another file, with a fault in every line. The author of a list needs all of them.
    """
    if len(listed.faults) <= _SHOWN_FAULTS or any(
        not entry.faulty or begins_with_workload(entry.settings.workload, workloads)
        for entry in listed.entries
    ):
        return listed
    number_of_others = Fault(
        place=listed.faults[_SHOWN_FAULTS].place,
        message=f"{len(listed.faults) - _SHOWN_FAULTS} more faults, and no workload that is"
        " installed: is it a job list?",
        hint="llmb-run docs job-lists shows what a list has",
        code="joblist-unknown",
        key="joblist",
        value=str(path),
    )
    return JobList(faults=(*listed.faults[:_SHOWN_FAULTS], number_of_others))
