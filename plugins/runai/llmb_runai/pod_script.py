# SPDX-License-Identifier: Apache-2.0
"""The script of a run as text: the request at its head, and what each pod does. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmb.contract.launch import Launch, Stamp
from llmb.contract.schema import ClusterConfig
from llmb.kit import bashscript, rank_command
from llmb.kit.bashscript import bash
from llmb_runai import request

RESTARTED = "restarted"  # a file of the run, written by a pod that was started a second time
FAILED_POD = ".failed."  # the beginning of such a file; a pod's number is its end
TIMED_OUT = 124  # the exit code of a run that was ended at its limit
_GRACE = 60  # seconds

# Each pod of a run starts once: Run:ai restarts evicted pods, and then half of their work exists.
_FIRST_ACT = """\
llmb_say() { echo "$1" | tee -a "$llmb_batch" >&2; }
if ! (set -C; : > "$llmb_run/.started.$llmb_node") 2> /dev/null; then
    if [[ -e $llmb_run/.started.$llmb_node ]]; then
        : > "$llmb_run/restarted"
        llmb_say "pod $llmb_node was started before: a run starts once"
    else
        echo "llmb error: $llmb_run cannot be written from this pod; check the PVC and its permissions" >&2
    fi
    exit 1
fi
"""
_ID = """\
if (( llmb_node == 0 )); then
    printf '%s\\n' {name} "pod $(hostname)" "started $(date +%s)" > "$llmb_run/.scheduler_id" &&
        mv "$llmb_run/.scheduler_id" "$llmb_run/scheduler_id" || exit 1
fi
"""
# With another number of pods the ranks would not find each other. The operator sets WORLD_SIZE.
_COUNT = """\
if [[ ${{WORLD_SIZE-}} != {nodes} ]]; then
    llmb_say "llmb error: Run:ai has started ${{WORLD_SIZE-no}} pods, and this run has {nodes}; see its events"
    echo 1 > "$llmb_run/.failed.$llmb_node"
    (( llmb_node == 0 )) || exit 1
    llmb_code=1
{end}fi
"""
# Evaluated in each rank: the names that wrappers use on every cluster; torchrun sets the others.
_RANK = """\
export LLMB_RANK=$RANK LLMB_NODE_RANK=$GROUP_RANK LLMB_LOCAL_RANK=$LOCAL_RANK
"""
# The same without torchrun: arguments are the job's ranks, then the command.
_ALONE = """\
export RANK=0 LOCAL_RANK=0 LLMB_RANK=0 LLMB_NODE_RANK=0 LLMB_LOCAL_RANK=0
export WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
shift
exec "$@"
"""
# As the first process of a container, bash ignores SIGTERM without a trap. Run:ai shows this output
# as the pod's log.
_WAIT = """\
llmb_main=$!
trap 'kill "$llmb_main" 2> /dev/null' TERM INT
tail --pid="$llmb_main" -n +1 -F "$llmb_own" 2> /dev/null &
"""
# A pod whose ranks wait for those of a failed pod would keep its GPUs for long. On a shared volume,
# the failed pod's file exists a while before the exit code is in it.
_WATCH = """\
(
    while sleep 2; do
        for llmb_other in "$llmb_run"/.failed.*; do
            [[ -s $llmb_other ]] || continue
            echo "pod ${llmb_other##*.} has failed: this one ends" >> "$llmb_own"
            kill "$llmb_main"
            exit
        done
    done
) &
llmb_watch=$!
"""
# torchrun always ends with 1: its report has the exit code of the rank that failed first.
_LAST_ACT = """\
while :; do
    wait "$llmb_main"
    llmb_code=$?
    kill -0 "$llmb_main" 2> /dev/null || break
done
{unwatch}if (( SECONDS >= {limit} && llmb_code != 0 )); then
    llmb_code={timed_out}
    llmb_say "pod $llmb_node ran longer than the limit of {limit} seconds"
elif (( llmb_code != 0 )); then
    llmb_first=$(sed -nE '/^Root Cause/,$s/^ *exitcode *: *(-?[0-9]+).*/\\1/p' "$llmb_own" | head -n 1)
    (( ${{llmb_first:=$llmb_code}} < 0 )) && llmb_first=$(( 128 - llmb_first ))
    llmb_code=$llmb_first
fi
"""
_OF_SEVERAL = """\
if (( llmb_code != 0 )); then
    for llmb_other in "$llmb_run"/.failed.*; do
        [[ ! -s $llmb_other ]] || read -r llmb_code < "$llmb_other"
    done
    echo "$llmb_code" > "$llmb_run/.failed.$llmb_node"
fi
(( llmb_node == 0 )) || exit "$llmb_code"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetting:
    """The values that a script depends on in addition to its launch."""

    config: ClusterConfig
    #: The folder of the staged programs.
    programs: str


def render(launch: Launch, stamp: Stamp, setting: PodSetting, script: str) -> str:
    """The script of ``launch``, in a file called ``script``. Raises UsageError for what bash cannot
    take.
    """
    pvc = request.section(setting.config).pvc
    content = request.body(launch, stamp, script, setting.config)
    if launch.image is None:
        content["spec"]["image"] = bashscript.NO_IMAGE
    launch, several = request.launch_in_pod(pvc, launch), launch.nodes > 1
    variables = bashscript.environment(launch, stamp.id, request.in_pod(pvc, setting.programs))
    if launch.venv is None:  # the image's own PYTHONPATH stays
        variables["PYTHONPATH"] += "${PYTHONPATH:+:$PYTHONPATH}"
    count = _COUNT.format(
        nodes=launch.nodes, end="".join(f"    {line}\n" for line in bashscript.END.splitlines())
    )
    parts = [
        "#!/bin/bash",
        *request.to_lines(request.kind_of(launch), content),
        "",
        # Always quoted, so that a preview looks like the script except for its placeholders.
        f"llmb_run={bash(request.in_pod(pvc, stamp.place), always=True)}",
        f"llmb_work={bash(request.in_pod(pvc, stamp.work(launch.name)), always=True)}",
        f"llmb_node={'${RANK:?the operator of PyTorch jobs sets it}' if several else 0}",
        f'llmb_batch="$llmb_work"/{bash(f"sbatch_{launch.name}.out")}',
        f'llmb_own="$llmb_work"/{bash(f"log-{launch.name}.out")}',
        # Several pods cannot append to one file of a shared volume.
        *(['(( llmb_node == 0 )) || llmb_own="$llmb_work/pod-$llmb_node.out"'] if several else []),
        bashscript.UMASK
        + _FIRST_ACT
        + _ID.format(name=bash(request.workload_name(launch, stamp), always=True)),
        *([count] if several else []),
        'cd "$llmb_work" || exit 1',
        *_files(launch),
        "",
        *(f"export {name}={value}" for name, value in variables.items()),
        "",
        "SECONDS=0",
        " \\\n    ".join(_start(launch, several)) + ' >> "$llmb_own" 2>&1 &',
    ]
    last = _LAST_ACT.format(
        limit=launch.time_limit,
        timed_out=TIMED_OUT,
        unwatch='kill "$llmb_watch" 2> /dev/null\n' if several else "",
    )
    acts = [
        _WAIT,
        *([_WATCH] if several else []),
        last,
        *([_OF_SEVERAL] if several else []),
        bashscript.END,
    ]
    return "\n".join(parts) + "\n" + "".join(acts)


def python(launch: Launch) -> str:
    """The Python that the ranks run: of the environment on the volume, else of the image."""
    return f"{launch.venv}/bin/python" if launch.venv is not None else "python3"


def _files(launch: Launch) -> Iterator[str]:
    """The lines with which the first pod writes the files: the other pods' ranks meet it before
    they read any.
    """
    if launch.files:
        yield "if (( llmb_node == 0 )); then"
        yield from (f"    {line}" for line in bashscript.write_files(launch))
        yield "fi"


def _start(launch: Launch, several: bool) -> Iterator[str]:
    """The command that starts this pod's ranks, line by line."""
    yield f"timeout --kill-after={_GRACE} {launch.time_limit}"
    if launch.start == "once" or _needs_no_torchrun(launch):
        yield f"bash -c {bash(_ALONE)} _ {launch.ranks_per_node}"
    elif launch.start == "mpi":
        yield " ".join(map(bash, rank_command.mpirun(launch.ranks_per_node, launch.venv)))
    else:
        yield from _torchrun(launch, several)
    for wrapper in launch.wrappers:
        yield " ".join(map(bash, wrapper.argv))
    yield bashscript.program(launch, python(launch))


def _needs_no_torchrun(launch: Launch) -> bool:
    """Return True if one rank of a program that is not Python, whose image may lack torch, starts
    without it.
    """
    return (
        launch.start == "ranks"
        and launch.nodes * launch.ranks_per_node == 1
        and not launch.program.is_python
    )


def _torchrun(launch: Launch, several: bool) -> Iterator[str]:
    where = (
        f'--nnodes={launch.nodes} --node_rank="$llmb_node"'
        if several
        else "--standalone --nnodes=1"
    )
    yield (
        f"{bash(python(launch))} -m torch.distributed.run {where}"
        f" --nproc_per_node={launch.ranks_per_node}"
    )
    meet = ' --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"' if several else ""
    yield f"--max_restarts=0{meet} --no-python"
    rank = _RANK + (bashscript.THREADS if launch.venv is not None else "") + 'exec "$@"'
    yield f"bash -c {bash(rank)} _"
