# SPDX-License-Identifier: Apache-2.0
"""The script of a local run: not a shell's, but the very value that the runner executes, as text."""

from dataclasses import dataclass
from pathlib import Path

from llmb.errors import LlmbError
from llmb.runs.launch import Launch, Program, StagedFile, Stamp
from llmb.system import files
from llmb.text import typed, yamlfile

NO_VENV = "<venv>"  # what a preview says where no environment is installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a script depends on beside its launch: ``cpus`` here, and the folder of the staged ``programs``."""

    cpus: int
    programs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """All that the runner does: write ``files`` into ``work``, then start ``ranks`` times ``argv``.

    ``environment`` comes over the few variables that every job has and those of ``secrets``, which are names here and
    whose values the script never holds. ``time_limit`` and ``grace`` in seconds: how long ranks may go on by themselves
    after one has failed, and again after they were told to end.
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
    """The text that ``read`` reads."""
    return files.to_json(typed.to_data(script))


def read(path: Path) -> Script:
    """The script in a file. Raises LlmbError when it is not there or cannot be understood."""
    data = files.read_json(path)
    if data is None:
        raise LlmbError(f"the script {path} is not there", hint="submit the job again")
    return typed.read(Script, yamlfile.Document(name=str(path), data=data))


def python(launch: Launch) -> str:
    """The Python of the ranks."""
    return f"{launch.venv or NO_VENV}/bin/python"


def _argv(launch: Launch) -> tuple[str, ...]:
    wrappers = [word for wrapper in launch.wrappers for word in wrapper.argv]
    return (*wrappers, python(launch), *_program(launch.program), *launch.args)


def _program(program: Program) -> tuple[str, ...]:
    return ("-m", program.module) if program.module is not None else (str(program.script),)


def _environment(launch: Launch, machine: Machine) -> dict[str, str]:
    own = launch.environment
    path = [machine.programs, *([own["PYTHONPATH"]] if own.get("PYTHONPATH") else [])]
    return {
        "OMP_NUM_THREADS": str(max(1, machine.cpus // launch.ranks_per_node)),
        "PYTHONUNBUFFERED": "1",  # so that what a rank printed is in the log also when it was killed
        **own,
        "PYTHONPATH": ":".join(path),
    }
