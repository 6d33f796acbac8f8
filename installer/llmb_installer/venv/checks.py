# SPDX-License-Identifier: Apache-2.0
"""Checks before an environment is made, and an estimate of its size by sizes.yaml."""

from __future__ import annotations

import platform
import re
import shutil
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from llmb.errors import LlmbError
from llmb.text import yamlfile
from llmb_installer.execution.runner import Commands
from llmb_installer.step import Context, Estimate
from llmb_installer.venv import contents, pipconf, repair, tools
from llmb_installer.venv.lock import package_of
from llmb_installer.venv.tools import Python

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep


def check(step: VenvStep, context: Context) -> Estimate:
    """Check for the tool, the Python and the wheelhouse; estimate the size of the packages. Raises LlmbError.

    The Python of a node is only checked there, when the step runs.
    """
    if not re.fullmatch(r"\w[\w.-]*", step.name):
        raise LlmbError(f"'{step.name}' is not a folder's name", hint="report it to the plugin's author")
    contents.require_ours(step.folder)
    if step.wheelhouse is not None and not step.wheelhouse.is_dir():
        message = f"the wheelhouse {step.wheelhouse} is not a folder"
        raise LlmbError(message, hint="pip download -d DIR fills one", code="wheelhouse-missing")
    here = context.runner.where == "here"
    _check_architecture(step, here=here)
    if not here:
        _check_slurm(context)
    chosen = tools.choose(step.tool, context.environ, here=here)
    if chosen.maker == "conda":
        if step.python is not None and not tools.is_version(step.python):
            message = f"conda needs a version of Python, not '{step.python}'"
            raise LlmbError(message, hint="set 'python: \"3.12\"' in the answers")
    elif here:
        commands = Commands(context=context, environ=pipconf.for_uv(context.environ, offline=True))
        fetched = step.fetch_python and chosen.maker == "uv" and step.python is not None
        python = _find(step, commands, fetched=fetched)
        if python is not None and chosen.maker == "venv" and not python.has_venv:
            raise tools.no_venv(python)
    return Estimate() if repair.is_likely(step, context.install) else estimate(step)


def _check_slurm(context: Context) -> None:
    program = context.runner.where.split()[0]
    if shutil.which(program, path=context.environ.get("PATH")) is None:
        hint = "run llmb-install on a login node of the cluster, or set 'method: here' in the answers"
        raise LlmbError(f"{program} is not on PATH", hint=hint, code="no-slurm", key=program)


def _find(step: VenvStep, commands: Commands, *, fetched: bool) -> Python | None:
    """The Python; None where it will be downloaded."""
    try:
        return tools.find(step.python, commands, fetch=False)
    except LlmbError:
        if fetched:
            return None
        raise


def _check_architecture(step: VenvStep, *, here: bool) -> None:
    """Raise LlmbError where the machine code of the environment cannot run here."""
    own = platform.machine()
    if here and step.architecture != own:
        message = f"the nodes are {step.architecture} and this machine is {own}: it cannot make their environment"
        hint = f"on Slurm set 'method: srun' in the answers; otherwise install on a machine that is {step.architecture}"
        raise LlmbError(message, hint=hint, code="architecture-differs", value=own)


def estimate(step: VenvStep) -> Estimate:
    """A lower bound of bytes to fetch and on disk; unknown without a package that sizes.yaml lists."""
    if step.wheelhouse is not None:
        return Estimate(fetch=0, disk=None)
    names = [package_of(line) for line in step.need.requirements]
    table = _table()
    if "torch" in names and step.torch.cpu_index is not None:
        names[names.index("torch")] = "torch-cpu"
    known = [table[name] for name in names if name in table]
    if not known:
        return Estimate()
    fetch, disk = (sum(entry[key] for entry in known) * 1_000_000 for key in ("fetch_mb", "disk_mb"))
    return Estimate(fetch=fetch, disk=disk, rough=True)


@cache
def _table() -> dict[str, dict[str, int]]:
    text = resources.files("llmb_installer.venv").joinpath("sizes.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, int]] = yamlfile.parse(text, name="sizes.yaml").data
    return table
