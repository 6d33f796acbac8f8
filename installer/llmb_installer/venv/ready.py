# SPDX-License-Identifier: Apache-2.0
"""What an environment will cost, and what is known beforehand to stand in its way."""

from __future__ import annotations

import platform
import re
import shutil
from typing import TYPE_CHECKING

from llmb.errors import LlmbError
from llmb_installer.execution.subprocesses import Commands
from llmb_installer.step import Context, Estimate
from llmb_installer.venv import interpreter, location, pipconf, sizes, tools
from llmb_installer.venv.interpreter import Python

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep


def check(step: VenvStep, context: Context) -> Estimate:
    """Whether the tool, the Python and the wheelhouse are there; what the packages weigh. Raises LlmbError.

    What a node has is only known there: it is asked when its turn has come.
    """
    if not re.fullmatch(r"\w[\w.-]*", step.name):
        raise LlmbError(f"'{step.name}' cannot be a folder's name", hint="tell the plugin's maker")
    location.require_ours(step.folder)
    if step.wheelhouse is not None and not step.wheelhouse.is_dir():
        raise LlmbError(f"the wheelhouse {step.wheelhouse} is not a folder", hint="pip download -d DIR fills one")
    here = context.runner.where == "here"
    _check_architecture(step, here=here)
    if not here:
        _check_slurm(context)
    chosen = tools.choose(step.tool, context.environ, here=here)
    if chosen.maker == "conda":
        if step.python is not None and not interpreter.is_version(step.python):
            message = f"conda makes a Python of a version, not from '{step.python}'"
            raise LlmbError(message, hint="set 'python: \"3.12\"' in the answers")
    elif here:
        commands = Commands(context=context, environ=pipconf.for_uv(context.environ, offline=True))
        fetched = step.fetch_python and chosen.maker == "uv" and step.python is not None
        python = _find(step, commands, fetched=fetched)
        if python is not None and chosen.maker == "venv" and not python.has_venv:
            raise no_venv(python)
    return sizes.estimate(step)


def _check_slurm(context: Context) -> None:
    program = context.runner.where.split()[0]
    if shutil.which(program, path=context.environ.get("PATH")) is None:
        hint = "run llmb-install on a login node of the cluster, or set 'method: here' in the answers"
        raise LlmbError(f"there is no {program} here", hint=hint)


def _find(step: VenvStep, commands: Commands, *, fetched: bool) -> Python | None:
    """The Python that is here; None where it will be fetched."""
    try:
        return interpreter.find(step.python, commands, fetch=False)
    except LlmbError:
        if fetched:
            return None
        raise


def _check_architecture(step: VenvStep, *, here: bool) -> None:
    """An environment holds machine code: it can only be made where it can run."""
    own = platform.machine()
    if here and step.architecture != own:
        message = f"the nodes are {step.architecture} and this machine is {own}: their environment cannot be made here"
        elsewhere = f"else install on a machine that is {step.architecture}"
        hint = f"on Slurm, 'method: srun' in the answers makes it on a node; {elsewhere}"
        raise LlmbError(message, hint=hint)


def no_venv(python: Python) -> LlmbError:
    """What to say of a Python whose module venv is not complete, as Debian has it."""
    message = f"{python.program} cannot make environments: its module venv or ensurepip is missing"
    package = f"python{python.version}-venv"
    return LlmbError(message, hint=f"install it (Debian: apt-get install {package}), or uv (pip install uv)")
