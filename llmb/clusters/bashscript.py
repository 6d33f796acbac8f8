# SPDX-License-Identifier: Apache-2.0
"""What the scripts of Slurm and Run:ai share: quoting, files, variables, the program; reads what they write."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from llmb.errors import UsageError
from llmb.runs.launch import Launch
from llmb.runs.record import RunRecord

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
NO_VENV = "<venv>"  # in previews, where no environment is installed
NO_IMAGE = "<image>"
SCHEDULER_ID, ENDED = "scheduler_id", "ended"  # files in the run's folder that its script writes

# Otherwise each rank would start a thread on every CPU of its node. A value of the image or the user stays.
THREADS = """\
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
"""
# The job's files get the permissions of its run's folder, $llmb_run, which are those of a shared install.
UMASK = """\
umask "$(printf %03o $(( ~0$(stat -c %a "$llmb_run") & 077 )))"
"""
# Comes last, once llmb_code is set.
WRITE_END = """\
printf '%s\\n' "$llmb_code" "ended $(date +%s)" > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
"""
EXIT = """\
exit "$llmb_code"
"""
END = WRITE_END + EXIT


@lru_cache(maxsize=1024)  # the jobs of a list share most of their words
def bash(text: str, *, always: bool = False) -> str:
    """``text`` as one word of bash, quoted where necessary or ``always``. Raises UsageError for a NUL."""
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


def environment(launch: Launch, run_id: str, programs: str) -> dict[str, str]:
    """The variables of the ranks on every cluster, with their values quoted for bash. Raises UsageError.

    ``programs``: the folder of the staged programs.
    """
    own = dict(launch.environment)
    wrong = next((name for name in own if not NAME.fullmatch(name)), None)
    if wrong is not None:
        message = f"'{wrong}' cannot be the name of a shell variable"
        raise UsageError(message, hint="use letters, digits and _", code="variable-name", key=wrong)
    return {
        "LLMB_RUN_ID": bash(run_id, always=True),
        "PYTHONUNBUFFERED": "1",  # so that the log has all output of a rank that was killed
        **{name: bash(value) for name, value in own.items()},
        "PYTHONPATH": bash(python_path(launch, programs)),
    }


def python_path(launch: Launch, programs: str) -> str:
    """The ranks' PYTHONPATH: the staged ``programs``, then the job's own."""
    return ":".join([programs, *([own] if (own := launch.environment.get("PYTHONPATH")) else [])])


def program(launch: Launch, python: str) -> str:
    """The command of one rank as bash reads it; ``python``: the interpreter of modules and scripts."""
    return " ".join(map(bash, rank_words(launch, python)))


# Arguments: the folder with the environment's commands, then the rank's command.
_WITH_COMMANDS = 'export PATH=$1:$PATH; shift; exec "$@"'
# Arguments: the number of words of the first command, then both.
_SPLIT = 'llmb_first=("${@:2:$1}"); shift $(($1 + 1))\n'
_AFTER = (
    _SPLIT
    + """\
"${llmb_first[@]}" || exit
[[ $LLMB_RANK == 0 ]] || exit 0
exec "$@"
"""
)
# Ranks other than 0 serve until the first has its answers; the file tells them so on every cluster.
_SERVE = """\
llmb_text=$1 llmb_seconds=$2 llmb_everywhere=$3; shift 3
"""
_SERVE += (
    _SPLIT
    + """\
llmb_done=.client-ended
if [[ $LLMB_RANK != 0 && $llmb_everywhere == no ]]; then
    until [[ -e $llmb_done ]]; do sleep 1; done
    read -r llmb_code < "$llmb_done"
    exit "$llmb_code"
fi
export LLMB_SERVER_PORT=$((10000 + ${MASTER_PORT:-0} % 10000 + LLMB_LOCAL_RANK))
llmb_out=server-$LLMB_RANK.out
"${llmb_first[@]}" > "$llmb_out" 2>&1 &
llmb_server=$!
llmb_finish() {
    kill "$llmb_server" 2> /dev/null
    for ((i = 0; i < 100; i++)); do kill -0 "$llmb_server" 2> /dev/null || break; sleep 0.1; done
    kill -9 "$llmb_server" 2> /dev/null
    [[ $LLMB_RANK != 0 ]] || { echo "$1" > "$llmb_done.part" && mv "$llmb_done.part" "$llmb_done"; }
    exit "$1"
}
trap 'llmb_finish 143' TERM
if [[ $LLMB_RANK != 0 ]]; then
    until [[ -e $llmb_done ]]; do
        kill -0 "$llmb_server" 2> /dev/null || { echo "error: the server of rank $LLMB_RANK has ended" >&2; exit 1; }
        sleep 1
    done
    read -r llmb_code < "$llmb_done"
    llmb_finish "$llmb_code"
fi
llmb_ready() {
    if [[ $llmb_text ]]; then grep -qF -e "$llmb_text" "$llmb_out"; else
        (exec 3<> "/dev/tcp/127.0.0.1/$LLMB_SERVER_PORT") 2> /dev/null
    fi
}
SECONDS=0
until llmb_ready; do
    if ! kill -0 "$llmb_server" 2> /dev/null; then
        wait "$llmb_server"
        llmb_code=$?
        echo "error: the server has ended with exit code $llmb_code before it was ready; $llmb_out has its output" >&2
        llmb_finish $((llmb_code > 0 ? llmb_code : 1))
    elif ((SECONDS >= llmb_seconds)); then
        echo "error: the server was not ready after $llmb_seconds s; $llmb_out has its output" >&2
        llmb_finish 1
    fi
    sleep 0.2
done
"$@" &
llmb_client=$!
trap 'kill "$llmb_client" 2> /dev/null; llmb_finish 143' TERM
wait "$llmb_client"
llmb_finish $?
"""
)


# mpirun's processes get the names of torchrun and of wrappers; Open MPI and MPICH name a rank differently.
_MPI_RANK = """\
export RANK=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?mpirun sets neither OMPI_COMM_WORLD_RANK nor PMI_RANK}}
export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$RANK}}
export LLMB_RANK=$RANK LLMB_NODE_RANK=0 LLMB_LOCAL_RANK=$LOCAL_RANK
exec "$@"
"""
MPI_VARIABLES = {  # Open MPI refuses root, as whom pods run, and more ranks than cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "true",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def mpirun(ranks: int, venv: str | None) -> tuple[str, ...]:
    """The words before the command of a rank that start it ``ranks`` times on this node by MPI."""
    own = ("bash", "-c", _WITH_COMMANDS, "_", f"{venv}/bin") if venv is not None else ()
    return (*own, "mpirun", "-np", str(ranks), "bash", "-c", _MPI_RANK, "_")


def rank_words(launch: Launch, python: str) -> tuple[str, ...]:
    """The command of one rank without its wrappers: the program, with its server and what runs after it."""
    words = (*launch.program.words(python), *launch.args)
    if launch.server is not None:
        server = launch.server
        own = (*server.program.words(python), *server.args)
        everywhere = "yes" if server.on_every_rank else "no"
        options = (server.ready_text or "", str(server.ready_seconds), everywhere)
        words = ("bash", "-c", _SERVE, "_", *options, str(len(own)), *own, *words)
    if launch.after is not None:
        words = ("bash", "-c", _AFTER, "_", str(len(words)), *words, *launch.after.words(python))
    if launch.venv is not None and not all(one.is_python for one in launch.programs):
        words = ("bash", "-c", _WITH_COMMANDS, "_", f"{launch.venv}/bin", *words)
    return words


_TAIL = 16384  # bytes at the end of a log


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """What a run's script has written: the job that runs it, start, exit code and end; times in epoch seconds."""

    job_id: str | None = None
    started: float | None = None
    exit_code: int | None = None
    ended: float | None = None


def read_files(run: RunRecord) -> RunFiles:
    """What the script of the run's present attempt has written so far."""
    first = read_lines(run.place / SCHEDULER_ID)
    last = read_lines(run.place / ENDED)
    facts = dict(line.split(" ", 1) for line in [*first[1:], *last[1:]] if " " in line)
    return RunFiles(
        job_id=first[0] if first and first[0] else None,
        started=_number(facts.get("started")),
        exit_code=int(last[0]) if last and last[0].isdecimal() else None,
        ended=_number(facts.get("ended")),
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a small file; empty where it does not exist yet."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def read_tail(path: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
