# SPDX-License-Identifier: Apache-2.0
"""The common parts of Slurm's and Run:ai's scripts, and the files that scripts write."""

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from llmb.contract.launch import Launch
from llmb.contract.record import RunRecord
from llmb.core import files
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.kit import rank_command

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
NO_VENV = "<venv>"  # in previews, where no environment is installed
NO_IMAGE = "<image>"
# The file that a script writes into the run's folder as its first act: the id that the scheduler
# gave the run.
SCHEDULER_ID = "scheduler_id"
ENDED = "ended"  # a file in the run's folder that its script writes, as SCHEDULER_ID

# Otherwise each rank would start a thread on every CPU of its node. A value of the image or the
# user stays.
THREADS = """\
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / \
LOCAL_WORLD_SIZE : 1 ))}
"""
# The job's files get the permissions of its run's folder, $llmb_run, which are those of a shared
# install.
UMASK = """\
umask "$(printf %03o $(( ~0$(stat -c %a "$llmb_run") & 077 )))"
"""
# Comes last, once llmb_code is set, and llmb_cause if the scheduler caused the end.
WRITE_END = """\
printf '%s\\n' "$llmb_code" "ended $(date +%s)" ${llmb_cause:+"cause $llmb_cause"} \
> "$llmb_run/.ended" \
&& mv "$llmb_run/.ended" "$llmb_run/ended"
"""
EXIT = """\
exit "$llmb_code"
"""
END = WRITE_END + EXIT


@lru_cache(maxsize=1024)  # the jobs of a list share most of their words
def bash(text: str, *, always: bool = False) -> str:
    """Return ``text`` as one word of bash, quoted if necessary or ``always``.

    Raises UsageError for a NUL.
    """
    if "\0" in text:
        message = f"{text!r} contains a NUL character, which no variable can"
        raise UsageError(message, hint="remove it", code="nul-character", value=text)
    if not CONTROL.search(text):
        return "'" + text.replace("'", "'\"'\"'") + "'" if always else shlex.quote(text)
    # sbatch refuses a script with a carriage return in it.
    escaped = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return "$'" + CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + "'"


def write_files(launch: Launch) -> Iterator[str]:
    """The lines that write the launch's files into the current folder of the script."""
    for staged in launch.files:
        if (folder := str(PurePosixPath(staged.name).parent)) != ".":
            yield f"mkdir -p {bash(folder)} || exit 1"
        yield f"printf %s {bash(staged.text)} > {bash(staged.name)} || exit 1"
        if staged.executable:
            yield f"chmod +x {bash(staged.name)} || exit 1"


def environment(launch: Launch, run_id: str, programs: str) -> dict[str, str]:
    """Return the variables of the ranks on every cluster, quoted for bash. Raises UsageError.

    ``programs``: the folder of the staged programs.
    """
    variables = dict(launch.environment)
    invalid = next((name for name in variables if not NAME.fullmatch(name)), None)
    if invalid is not None:
        message = f"'{invalid}' cannot be the name of a shell variable"
        raise UsageError(
            message, hint="use letters, digits and _", code="variable-name", key=invalid
        )
    return {
        "LLMB_RUN_ID": bash(run_id, always=True),
        "PYTHONUNBUFFERED": "1",  # so that the log has all output of a rank that was killed
        **{name: bash(value) for name, value in variables.items()},
        "PYTHONPATH": bash(python_path(launch, programs)),
    }


def python_path(launch: Launch, programs: str) -> str:
    """The ranks' PYTHONPATH: the staged ``programs``, then the job's own."""
    return ":".join(
        [programs, *([folders] if (folders := launch.environment.get("PYTHONPATH")) else [])]
    )


def program(launch: Launch, python: str) -> str:
    """Return the command of one rank. ``python`` is the interpreter of modules and scripts."""
    return " ".join(map(bash, rank_command.rank_words(launch, python)))


_TAIL = 16384  # bytes at the end of a log
_MOST = 1 << 20  # bytes of a small file that a script writes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files that a run's script has written: its job, start, exit code, end and its cause."""

    job_id: str | None = None
    started: float | None = None
    exit_code: int | None = None
    ended: float | None = None
    #: The state that the scheduler's own act gives it, ``PREEMPTED``. Empty for most ends.
    cause: str = ""


def read_files(run: RunRecord) -> RunFiles:
    """Read what the script of the run's present attempt has written so far."""
    first = read_lines(run.place / SCHEDULER_ID)
    last = read_lines(run.place / ENDED)
    facts = dict(line.split(" ", 1) for line in [*first[1:], *last[1:]] if " " in line)
    return RunFiles(
        job_id=first[0] if first and first[0] else None,
        started=_number(facts.get("started")),
        exit_code=int(last[0]) if last and last[0].isdecimal() else None,
        ended=_number(facts.get("ended")),
        cause=facts.get("cause", ""),
    )


def read_lines(path: Path) -> list[str]:
    """Return the lines of a small file, none if it does not exist yet."""
    try:
        return files.read_start(path, _MOST).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def read_tail(path: Path) -> str:
    """Return the end of a log, empty if there is none."""
    try:
        with files.open_regular(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            return stream.read(2 * _TAIL).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
