# SPDX-License-Identifier: Apache-2.0
"""For cluster types of plugins: a job's script for each of its nodes, and the state it shows.

The ranks run in a Python environment, or in the image of a pod, without torchrun. Each node that
the scheduler gives the job runs the same script. It starts once, however often the job was
submitted. SIGTERM ends the job. The first node waits for all others, then writes the end.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

from llmb.contract.launch import Launch, Stamp
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import CANCELLED, COMPLETED, FAILED, RUNNING, TIMEOUT, JobState
from llmb.errors import KeyFaultError
from llmb.kit import bashscript, rank_command
from llmb.kit.bashscript import bash
from llmb.kit.cluster_kit import programs_folder

# exit codes: of a run that its limit ended, and of one that was stopped by SIGTERM
TIMED_OUT, STOPPED = 124, 143
_FIRST_PORT, _PORTS = 20000, 10000
# Seconds between SIGTERM and SIGKILL. The end of a pod kills what is left in it, so its ranks have
# longer to write profiles.
_GRACE, _GRACE_OF_PODS = 10, 60

# The folder may be shared by nodes: the first one to create the file owns this part of the run.
_FIRST_ACT = """\
mkdir -p "$llmb_work" || exit 1
if ! (set -C; : > "$llmb_run/.started.$llmb_node") 2> /dev/null; then
    if [[ -e $llmb_run/.started.$llmb_node ]]; then
        : > "$llmb_run/restarted"
        echo "node $llmb_node of this run was started before: a run starts once" >&2
    else
        echo "llmb error: $llmb_run cannot be written from this node; check its file system and \
permissions" >&2
    fi
    exit 1
fi
"""
_ID = """\
if (( llmb_node == 0 )); then
    printf '%s\\n' "$llmb_job" "host $(hostname)" "started $(date +%s)" \
> "$llmb_run/.scheduler_id" &&
        mv "$llmb_run/.scheduler_id" "$llmb_run/scheduler_id" || exit 1
fi
"""
_OUTPUT = """\
exec >> "$llmb_batch" 2>&1
cd "$llmb_work" || exit 1
"""
# Several pods cannot append to one file of a shared volume.
_LOG_OF_A_POD = """\
(( llmb_node == 0 )) || llmb_log="$llmb_work/pod-$llmb_node.out"
"""
# As the first process of a container, bash ignores SIGTERM without a trap. The scheduler shows the
# output of a pod's script as the pod's log.
_OUTPUT_OF_A_POD = """\
trap 'exit 143' TERM INT
tail --pid=$$ -qn +1 -F "$llmb_batch" "$llmb_log" 2> /dev/null &
"""
# With another number of nodes the ranks would not find one another.
_COUNT = """\
llmb_count={word}
if [[ $llmb_count != {nodes} ]]; then
    echo "llmb error: the scheduler has started $llmb_count nodes, and this run has {nodes}; \
see its events"
    echo 1 > "$llmb_run/.failed.$llmb_node"
    (( llmb_node == 0 )) || exit 1
    llmb_code=1
{end}fi
"""
_READY = """\
    : > "$llmb_run/.ready"
fi
until [[ -e $llmb_run/.ready ]]; do sleep 0.2; done
"""
# Each rank is a process group of its own, so that all that it starts ends with it.
_RANKS = """\
llmb_stop() { for llmb_pid in "${llmb_pids[@]}"; do kill "-$1" -- "-$llmb_pid"; done 2> /dev/null; }
llmb_code=0 llmb_stopped=
llmb_end() {
    [[ ! $llmb_stopped ]] || return
    llmb_stopped=$SECONDS llmb_code=$1
    echo "$2"
    echo "$llmb_code" > "$llmb_run/.failed.$llmb_node"
    llmb_stop TERM
}
trap 'llmb_end 143 "stopped by a signal"' TERM INT HUP
llmb_one() {
    export RANK=$(( llmb_node * llmb_here + $1 )) LOCAL_RANK=$1
    export GROUP_RANK=$llmb_node TORCHELASTIC_RUN_ID=$LLMB_RUN_ID  # PyTorch Lightning reads these
    export LLMB_RANK=$RANK LLMB_NODE_RANK=$llmb_node LLMB_LOCAL_RANK=$1
    shift
    exec "$@" >> "$llmb_log" 2>&1
}
SECONDS=0 llmb_pids=()
"""
# The first node writes the end of the job, so it waits for the others: one may fail later, and
# still writes its log.
_WATCH = """\
llmb_waits() {
    (( llmb_node == 0 )) || return
    for (( llmb_other = 1; llmb_other < llmb_nodes; llmb_other++ )); do
        [[ ! -e $llmb_run/.done.$llmb_other ]] || continue
        [[ $llmb_stopped ]] || return 0
        [[ ! -e $llmb_run/.started.$llmb_other ]] \
|| (( SECONDS - llmb_stopped >= llmb_grace + 5 )) || return 0
    done
    return 1
}
llmb_check_nodes() {
    for llmb_other in "$llmb_run"/.failed.*; do
        [[ ! -s $llmb_other ]] || llmb_end "$(< "$llmb_other")" "node ${llmb_other##*.} has failed"
    done
}
while (( ${#llmb_pids[@]} )) || llmb_waits; do
    for llmb_index in "${!llmb_pids[@]}"; do
        kill -0 "${llmb_pids[llmb_index]}" 2> /dev/null && continue
        wait "${llmb_pids[llmb_index]}"
        llmb_exit=$?
        unset "llmb_pids[llmb_index]"
        (( llmb_exit == 0 )) || llmb_end "$llmb_exit" "rank $llmb_index of node $llmb_node \
ended with $llmb_exit"
    done
    (( SECONDS < llmb_limit )) || llmb_end 124 "ran longer than its limit of $llmb_limit seconds"
    llmb_check_nodes
    [[ ! $llmb_stopped ]] || (( SECONDS - llmb_stopped < llmb_grace )) || llmb_stop KILL
    sleep 0.2
done
: > "$llmb_run/.done.$llmb_node"
(( llmb_node == 0 )) || exit "$llmb_code"
llmb_check_nodes  # one may have failed and ended since the last look
"""


def node_script(
    launch: Launch,
    stamp: Stamp,
    config: ClusterConfig,
    *,
    job: str,
    node: str = "0",
    nodes: str = "",
    master: str = "127.0.0.1",
    port: str = "",
    head: Sequence[str] = (),
    programs: Path | None = None,
) -> str:
    """The bash script of ``launch``, with the scheduler's own lines ``head`` below the first. Pure.

    ``job``: a bash word for the scheduler's id of the job, such as ``"$PBS_JOBID"``. A job of
    several nodes also has ``node``, a word for this node's number from 0, and ``master``, one for
    the address of the first node. ``port``, where the ranks meet there, and ``nodes``, how many
    nodes the scheduler has started, are words too: a script that finds another number ends.
    ``programs`` is the folder of ``programs_folder`` as the nodes see it.

    On a cluster type that runs in ``image-reference``, the script runs in a pod. A launch without
    an environment then uses the image's ``python3``, each pod writes a log of its own, and its
    output has that log too.

    Secrets and the variables of ``pass_environment`` come from the environment in which the script
    runs. Raises UsageError for what bash cannot take, and KeyFaultError for a ``head`` that is one
    text.
    """
    if isinstance(head, str):  # each of its letters would be a line
        hint = "give a list of lines, as in ['#PBS -l walltime=600']"
        raise KeyFaultError("is a text, not a list of lines", "head", hint=hint, value=head)
    in_pod = config.traits.pulls_images
    folder = programs or programs_folder(config)
    variables = bashscript.environment(launch, stamp.id, str(folder))
    if in_pod and launch.venv is None:  # the image's own PYTHONPATH stays
        variables["PYTHONPATH"] += "${PYTHONPATH:+:$PYTHONPATH}"
    ranks = launch.ranks_per_node
    number = port or str(_FIRST_PORT + zlib.crc32(stamp.id.encode()) % _PORTS)
    parts = [
        "#!/bin/bash",
        *head,
        f"llmb_run={bash(stamp.place, always=True)}",
        f"llmb_work={bash(stamp.work(launch.name), always=True)}",
        f"llmb_job={job} llmb_node={node}",
        f'llmb_batch="$llmb_work"/{bash(f"sbatch_{launch.name}.out")}',
        f'llmb_log="$llmb_work"/{bash(f"log-{launch.name}.out")}',
        (_LOG_OF_A_POD if in_pod and launch.nodes > 1 else "")
        + bashscript.UMASK
        + _FIRST_ACT
        + _ID
        + (_OUTPUT_OF_A_POD if in_pod else "")
        + _OUTPUT
        + (_count(nodes, launch.nodes) if nodes else "")
        + "if (( llmb_node == 0 )); then",
        *(f"    {line}" for line in bashscript.write_files(launch)),
        _READY.rstrip("\n"),
        "",
        *(f"export {name}={value}" for name, value in variables.items()),
        f"export WORLD_SIZE={ranks * launch.nodes} LOCAL_WORLD_SIZE={ranks} MASTER_ADDR={master}",
        f"export MASTER_PORT={number}",
        bashscript.THREADS.rstrip("\n"),
        f"llmb_here={ranks} llmb_nodes={launch.nodes} llmb_limit={launch.time_limit}"
        f" llmb_grace={_GRACE_OF_PODS if in_pod else _GRACE}",
    ]
    started = ranks if launch.start == "ranks" else 1
    command = " \\\n        ".join(_command(launch, in_pod))
    start = f"set -m\nfor (( llmb_index = 0; llmb_index < {started}; llmb_index++ )); do\n"
    start += (
        f'    llmb_one "$llmb_index" \\\n        {command} &\n    llmb_pids+=($!)\ndone\nset +m\n'
    )
    return "\n".join(parts) + "\n" + _RANKS + start + _WATCH + bashscript.END


def _count(word: str, nodes: int) -> str:
    end = "".join(f"    {line}\n" for line in bashscript.END.splitlines())
    return _COUNT.format(word=word, nodes=nodes, end=end)


def _command(launch: Launch, in_pod: bool) -> Sequence[str]:
    """The words of one rank, in groups: what starts it, its wrappers, its program."""
    python = f"{launch.venv or bashscript.NO_VENV}/bin/python"
    if in_pod and launch.venv is None:
        python = "python3"
    mpi = rank_command.mpirun(launch.ranks_per_node, launch.venv) if launch.start == "mpi" else ()
    groups = [mpi, *(wrapper.argv for wrapper in launch.wrappers)]
    return [
        *(" ".join(map(bash, words)) for words in groups if words),
        bashscript.program(launch, python),
    ]


def state_by_files(run: RunRecord) -> JobState | None:
    """Return the state that the files of ``node_script`` show, None before its first act.

    RUNNING is what was true last: a job whose node has crashed leaves no end, and the scheduler
    knows.
    """
    written = bashscript.read_files(run)
    if written.exit_code is not None:
        state = {0: COMPLETED, TIMED_OUT: TIMEOUT, STOPPED: CANCELLED}.get(
            written.exit_code, FAILED
        )
        return JobState(
            state=state,
            reason="" if state == COMPLETED else f"exit code {written.exit_code}",
            exit_code=written.exit_code,
            started=written.started,
            ended=written.ended,
        )
    return JobState(state=RUNNING, started=written.started) if written.job_id is not None else None


def job_by_files(run: RunRecord) -> str | None:
    """Return the scheduler's id that the script of ``run`` has written, None before that."""
    return bashscript.read_files(run).job_id
