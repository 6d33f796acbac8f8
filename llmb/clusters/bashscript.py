# SPDX-License-Identifier: Apache-2.0
"""What the scripts of all schedulers have in common: files, variables, the program, and what they write of a run."""

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath

from llmb.errors import UsageError
from llmb.runs.launch import Launch

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@lru_cache(maxsize=1024)  # the jobs of a list have most of their words in common
def bash(text: str, *, always: bool = False) -> str:
    """``text`` as one word of bash, in quotes where it needs them or ``always``. Raises UsageError for a NUL."""
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL character, which no variable can", hint="take it out")
    if not CONTROL.search(text):
        return "'" + text.replace("'", "'\"'\"'") + "'" if always else shlex.quote(text)
    # sbatch refuses a script with a carriage return in it.
    escaped = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return "$'" + CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + "'"


NO_VENV = "<venv>"  # what a preview says where no environment is installed
NO_IMAGE = "<image>"
SCHEDULER_ID, ENDED = "scheduler_id", "ended"  # files of the run, written by its script

# Otherwise each rank would start a thread on every CPU of its node. What the image or the user sets stays.
THREADS = """\
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
"""
# What the job writes has the permissions of its run's folder, which are those of a shared install. llmb_run is known.
UMASK = """\
umask "$(printf %03o $(( ~0$(stat -c %a "$llmb_run") & 077 )))"
"""
# The last act, once llmb_code is known.
WRITE_END = """\
printf '%s\\n' "$llmb_code" "ended $(date +%s)" > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
"""
EXIT = """\
exit "$llmb_code"
"""
END = WRITE_END + EXIT


def write_files(launch: Launch) -> Iterator[str]:
    """The lines that write the launch's files into the folder that the script is in."""
    for staged in launch.files:
        if (folder := str(PurePosixPath(staged.name).parent)) != ".":
            yield f"mkdir -p {bash(folder)} || exit 1"
        yield f"printf %s {bash(staged.text)} > {bash(staged.name)} || exit 1"


def environment(launch: Launch, run_id: str, programs: str) -> dict[str, str]:
    """What ranks get on every cluster: each variable with its value as a word of bash. Raises UsageError.

    ``programs``: the folder of the staged programs.
    """
    own = dict(launch.environment)
    wrong = next((name for name in own if not NAME.fullmatch(name)), None)
    if wrong is not None:
        raise UsageError(f"'{wrong}' is not a name that a shell can give a variable", hint="letters, digits and _")
    return {
        "LLMB_RUN_ID": bash(run_id, always=True),
        "PYTHONUNBUFFERED": "1",  # so that what a rank printed is in the log also when it was killed
        **{name: bash(value) for name, value in own.items()},
        "PYTHONPATH": bash(python_path(launch, programs)),
    }


def python_path(launch: Launch, programs: str) -> str:
    """Where the ranks' Python looks first: the staged ``programs``, then what the job itself names."""
    return ":".join([programs, *([own] if (own := launch.environment.get("PYTHONPATH")) else [])])


def program(launch: Launch, python: str) -> str:
    """The words that start the launch's program with ``python``."""
    what = ["-m", launch.program.module] if launch.program.module is not None else [str(launch.program.script)]
    return " ".join(map(bash, [python, *what, *launch.args]))
