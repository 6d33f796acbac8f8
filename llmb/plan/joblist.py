# SPDX-License-Identifier: Apache-2.0
"""Reads a job list: YAML, or another format that a plugin knows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from llmb.contract.entry import JobList
from llmb.contract.launch_variable import NO_VARIABLES, Variables
from llmb.core import files
from llmb.errors import Fault, UsageError
from llmb.plan import yaml_joblist

_YAML = (".yaml", ".yml")
_FEW = 10  # faults


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
        return _checked(path, yaml_joblist.read(path, variables))
    listed = read_other(str(path), files.read_text(path))
    if listed is None:
        message = f"{path} is no job list in a format that llmb or an installed plugin knows"
        hint = "write it as YAML, in a file whose name ends in .yaml"
        raise UsageError(message, hint=hint, code="joblist-unknown", key="joblist", value=str(path))
    return _checked(path, listed)


def _checked(path: Path, listed: JobList) -> JobList:
    """Return the list. Without a valid job it is perhaps another file: its first faults suffice."""
    if len(listed.faults) <= _FEW or any(not entry.faulty for entry in listed.entries):
        return listed
    further = Fault(
        place=listed.faults[_FEW].place,
        message=f"{len(listed.faults) - _FEW} more faults, and no valid job: is it a job list?",
        hint="llmb-run docs job-lists shows what a list has",
        code="joblist-unknown",
        key="joblist",
        value=str(path),
    )
    return replace(listed, faults=(*listed.faults[:_FEW], further))
