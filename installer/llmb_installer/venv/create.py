# SPDX-License-Identifier: Apache-2.0
"""Builds an environment beside the one in use, and puts it in place when it is whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llmb.system import files
from llmb_installer.execution.subprocesses import Commands
from llmb_installer.step import Context, Facts
from llmb_installer.venv import interpreter, location, lock, pipconf, tools, whole
from llmb_installer.venv.interpreter import Python
from llmb_installer.venv.lock import Lock
from llmb_installer.venv.pip import Pip
from llmb_installer.venv.tools import Tools
from llmb_installer.venv.uv import Uv
from llmb_installer.venv.whole import verify

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep

FACTS = "llmb.json"  # in the environment: what it is, for an installer that was killed before it could record it


class Packages(Protocol):
    """Chooses and installs the packages of an environment."""

    def resolve(self, step: VenvStep, made_for: str) -> Lock:
        """The packages for ``step``, with hashes."""

    def install(self, step: VenvStep, lock: Lock) -> None:
        """Install what the lock says, and nothing else."""

    def build(self, step: VenvStep) -> None:
        """Build what comes from source against the packages that are there now."""


def build(step: VenvStep, context: Context) -> Facts:
    """Make the environment of ``step`` and switch to it; its facts for the record.

    What the programs print goes to the log. Raises LlmbError with their last lines; then nothing has changed.
    """
    link = step.folder
    location.sweep(link.parent, step.name)
    if (facts := _finished(step)) is not None:
        return facts
    folder = location.new_folder(link)
    files.write_text(context.log, f"{step.key}: {', '.join(step.need.requirements)} ({context.runner.where})\n")
    try:
        facts, text = _fill(step, folder, context)
        files.write_json(folder / FACTS, {"digest": step.digest, "facts": facts})
        files.write_text(lock.path_of(step, context.install), text)
        location.switch(link, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    location.sweep(link.parent, step.name)
    return facts


def _finished(step: VenvStep) -> Facts | None:
    """The facts of the environment in use, where it is this very one, only not recorded."""
    note = files.read_json(step.folder / FACTS)
    if not isinstance(note, dict) or note.get("digest") != step.digest:
        return None
    facts: Facts = note["facts"]
    if verify(step.name, facts, step.folder.parent.parent, deep=True):
        return None
    return facts


def _fill(step: VenvStep, folder: Path, context: Context) -> tuple[Facts, str]:
    """Make the environment in ``folder``; its facts, and the text of its lock file."""
    here = context.runner.where == "here"
    chosen = tools.choose(step.tool, context.environ, here=here)
    offline = step.wheelhouse is not None
    for_pip = Commands(context=context, environ=pipconf.for_pip(context.environ, offline=offline))
    for_uv = Commands(context=context, environ=pipconf.for_uv(context.environ, offline=offline))
    context.progress.say("makes the environment")
    version = _make(step, folder, chosen, for_pip, for_uv)
    packages: Packages
    if chosen.uv is not None and chosen.maker != "venv":
        packages = Uv(uv=chosen.uv, folder=folder, commands=for_uv)
    else:
        packages = Pip(folder=folder, commands=for_pip)
    found = lock.find(step, context.install, version)
    if found is None:
        context.progress.say("chooses packages")
        found = packages.resolve(step, lock.made_for(step, version))
    count = len(found.hashed) + len(found.plain) + len(found.torch)
    context.progress.say(f"installs {count} packages")
    packages.install(step, found)
    if step.need.from_source:
        context.progress.say(f"builds {', '.join(step.need.from_source)}")
        packages.build(step)
    facts = {
        "folder": folder.name,
        "python": version,
        "made_by": chosen.maker,
        "where": context.runner.where,
        **whole.inventory(folder),
    }
    if found.done_without is not None:
        facts["note"] = f"{found.done_without} gave no torch: it comes from pip's own sources, with CUDA's libraries"
    text = lock.to_text(found, step.name, f"Python {version} on {step.architecture}")
    return facts, text


def _make(step: VenvStep, folder: Path, chosen: Tools, for_pip: Commands, for_uv: Commands) -> str:
    """An environment without packages; its Python's version ``X.Y``."""
    if chosen.maker == "conda":
        assert chosen.program is not None
        return _make_conda(step, folder, chosen.program, for_pip)
    python = interpreter.find(step.python, for_uv, fetch=step.fetch_python)
    if chosen.maker == "uv":
        assert chosen.program is not None
        for_uv.run("uv venv", [chosen.program, "venv", "--quiet", "--python", python.program, str(folder)])
    else:
        _need_venv(python, step)
        for_pip.run("python -m venv", [python.program, "-I", "-m", "venv", str(folder)])
    return python.version


def _need_venv(python: Python, step: VenvStep) -> None:
    if not python.has_venv:
        from llmb_installer.venv.ready import no_venv

        raise no_venv(python)


def _make_conda(step: VenvStep, folder: Path, conda: str, commands: Commands) -> str:
    version = step.python or interpreter.own_version()
    argv = [conda, "create", "--yes", "--quiet", "--prefix", str(folder), f"python={version}", "pip"]
    commands.run("conda create", argv)
    said = commands.read(
        [str(folder / "bin" / "python"), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    )
    return said.out.strip()
