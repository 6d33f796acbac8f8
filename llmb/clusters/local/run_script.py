# SPDX-License-Identifier: Apache-2.0
"""The script of a local run: not a shell script, but the value that the runner executes, as JSON."""

from dataclasses import dataclass
from pathlib import Path

from llmb.clusters import bashscript
from llmb.errors import LlmbError
from llmb.runs.launch import Launch, StagedFile, Stamp
from llmb.system import files
from llmb.text import typed, yamlfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a script depends on in addition to its launch: this machine's ``cpus``, the folder of the ``programs``."""

    cpus: int
    programs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the runner does: write ``files`` into ``work``, then start ``argv`` as many times as there are ``ranks``.

    ``environment`` overrides the few variables that every job has. ``secrets`` are names; the script never contains
    their values. ``time_limit`` in seconds. ``grace``: seconds that ranks may run on after one has failed, and again
    after SIGTERM.
    """

    schema_version: int = 1
    id: str
    name: str
    ranks: int
    argv: tuple[str, ...]
    environment: dict[str, str]
    secrets: tuple[str, ...]
    time_limit: int
    grace: float
    directory: str
    work: str
    log: str
    batch_log: str
    programs: str
    files: tuple[StagedFile, ...]


def make(launch: Launch, stamp: Stamp, machine: Machine, *, grace: float) -> Script:
    """The script of ``launch``. Pure."""
    work = stamp.work(launch.name)
    return Script(
        id=stamp.id,
        name=launch.name,
        ranks=launch.ranks_per_node,
        argv=_argv(launch),
        environment=_environment(launch, machine),
        secrets=launch.secrets,
        time_limit=launch.time_limit,
        grace=grace,
        directory=stamp.directory,
        work=work,
        log=f"{work}/log-{launch.name}.out",
        batch_log=f"{work}/sbatch_{launch.name}.out",
        programs=machine.programs,
        files=launch.files,
    )


def to_text(script: Script) -> str:
    """The text of a script, which ``read`` reads."""
    return files.to_json(typed.to_data(script))


def read(path: Path) -> Script:
    """The script in a file. Raises LlmbError when the file is missing or invalid."""
    data = files.read_json(path)
    if data is None:
        message = f"the script {path} does not exist"
        raise LlmbError(message, hint="submit the job again", code="script-missing", value=str(path))
    return typed.read(Script, yamlfile.Document(name=str(path), data=data))


def _argv(launch: Launch) -> tuple[str, ...]:
    wrappers = [word for wrapper in launch.wrappers for word in wrapper.argv]
    python = f"{launch.venv or bashscript.NO_VENV}/bin/python"
    return (*wrappers, python, *bashscript.program_words(launch.program), *launch.args)


def _environment(launch: Launch, machine: Machine) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(max(1, machine.cpus // launch.ranks_per_node)),
        "PYTHONUNBUFFERED": "1",  # so that the log has all output of a rank that was killed
        **launch.environment,
        "PYTHONPATH": bashscript.python_path(launch, machine.programs),
    }
