# SPDX-License-Identifier: Apache-2.0
"""The command of one rank: its program, started by MPI, with a server and what follows."""

from llmb.contract.launch import Launch

# Arguments: the folder with the environment's commands, then the rank's command.
_WITH_COMMANDS = 'export PATH=$1:$PATH; shift; exec "$@"'

# Arguments: the number of words of the first command, then both commands.
_SPLIT = """\
llmb_first=("${@:2:$1}"); shift $(($1 + 1))
"""
# Arguments: the number of words of the program's command, the command, the command that runs after
# it. bash would end at once on SIGTERM and leave the program behind. Started under set -m, a
# program has a process group of its own, with all that it starts; set +m is in the same command,
# because bash may print that a job is done whenever it reads the next command under set -m.
_AFTER = (
    _SPLIT
    + """\
{ set -m; "${llmb_first[@]}" & set +m; }
llmb_main=$! llmb_ended=no
trap 'llmb_ended=yes; kill -- "-$llmb_main" 2> /dev/null' TERM INT
while :; do
    wait "$llmb_main"
    llmb_code=$?
    kill -0 "$llmb_main" 2> /dev/null || break
done
[[ $llmb_ended == no ]] || exit 143
((llmb_code == 0)) && [[ $LLMB_RANK == 0 ]] || exit "$llmb_code"
trap - TERM INT
exec "$@"
"""
)
# Arguments: the text of a ready server, the seconds until it is, whether every rank has one, then
# as for _AFTER. Ranks other than 0 serve until rank 0 has written the file .client-ended, its exit
# code. A group that was ended may still have zombies, which nobody waits for in a container:
# llmb_stop waits 10 s for its leader, then 1 s for others.
_SERVE = (
    """\
llmb_text=$1 llmb_seconds=$2 llmb_everywhere=$3; shift 3
"""
    + _SPLIT
    + """\
llmb_done=.client-ended llmb_client= llmb_server=
llmb_runs() { kill -0 "$1" 2> /dev/null; }
llmb_stop() {
    for llmb_group; do kill -- "-$llmb_group"; done
    for llmb_group; do
        for ((i = 0; i < 100; i++)); do kill -0 "$llmb_group" || break; sleep 0.1; done
        for ((i = 0; i < 10; i++)); do kill -0 -- "-$llmb_group" || break; sleep 0.1; done
        kill -9 -- "-$llmb_group"
        wait "$llmb_group"
    done
} 2> /dev/null
llmb_finish() {
    trap '' TERM INT
    [[ $LLMB_RANK != 0 ]] || { echo "$1" > "$llmb_done.part" && mv "$llmb_done.part" "$llmb_done"; }
    llmb_stop $llmb_client $llmb_server
    exit "$1"
}
trap 'llmb_finish 143' TERM INT
llmb_fail() {
    echo "llmb error: the server of rank $LLMB_RANK $1; the end of its output in $llmb_out:" >&2
    tail -n 20 "$llmb_out" >&2
    llmb_finish "$2"
}
llmb_check_server() {
    llmb_runs "$llmb_server" && return
    wait "$llmb_server"
    llmb_code=$?
    llmb_fail "has ended with exit code $llmb_code before $1" "$((llmb_code > 0 ? llmb_code : 1))"
}
llmb_until_done() {
    until [[ -e $llmb_done ]]; do
        [[ ! $llmb_server ]] || llmb_check_server "the client"
        sleep 1
    done
    read -r llmb_code < "$llmb_done"
    llmb_finish "$llmb_code"
}
[[ $LLMB_RANK == 0 || $llmb_everywhere == yes ]] || llmb_until_done

llmb_accepts() { (exec 3<> "/dev/tcp/127.0.0.1/$1" \
|| exec 3<> "/dev/tcp/localhost/$1") 2> /dev/null; }
LLMB_SERVER_PORT=$((10000 + ${MASTER_PORT:-0} % 10000 + LLMB_RANK))
while llmb_accepts "$LLMB_SERVER_PORT"; do ((LLMB_SERVER_PORT += 64)); done
export LLMB_SERVER_PORT
llmb_out=server-$LLMB_RANK.out llmb_address=server-$LLMB_RANK.address
read -r llmb_host < /proc/sys/kernel/hostname  # Slurm sets HOSTNAME to a node's name, \
which no one may resolve
[[ ${MASTER_ADDR:-127.0.0.1} != 127.0.0.1 ]] || llmb_host=127.0.0.1
: > "$llmb_out"  # exists before it is read
{ set -m; "${llmb_first[@]}" > "$llmb_out" 2>&1 & set +m; }
llmb_server=$!
llmb_ready() {
    if [[ $llmb_text ]]; then grep -qF -e "$llmb_text" "$llmb_out"; \
else llmb_accepts "$LLMB_SERVER_PORT"; fi
}
SECONDS=0
until llmb_ready; do
    llmb_check_server "it was ready"
    ((SECONDS < llmb_seconds)) || llmb_fail "was not ready after $llmb_seconds s" 1
    sleep 0.2
done
echo "$llmb_host:$LLMB_SERVER_PORT" > "$llmb_address.part" \
&& mv "$llmb_address.part" "$llmb_address"
[[ $LLMB_RANK == 0 ]] || llmb_until_done

for ((llmb_rank = 1; llmb_rank < WORLD_SIZE; llmb_rank++)); do
    until [[ $llmb_everywhere == no || -e server-$llmb_rank.address ]]; do
        llmb_check_server "those of all ranks were ready"
        sleep 0.2
    done
done
{ set -m; "$@" & set +m; }
llmb_client=$!
while llmb_runs "$llmb_client"; do
    llmb_runs "$llmb_server" || ! llmb_runs "$llmb_client" || llmb_check_server "its client"
    sleep 0.3
done
wait "$llmb_client"
llmb_finish $?
"""
)

# Open MPI refuses root, as whom pods run, and more ranks than cores; values of the launch stay.
_MPIRUN = """\
export OMPI_ALLOW_RUN_AS_ROOT=${OMPI_ALLOW_RUN_AS_ROOT:-1}
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-1}
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-true}
export \
PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
exec mpirun "$@"
"""
# mpirun's processes get the names of torchrun and of wrappers; Open MPI and MPICH name a rank
# differently.
_MPI_RANK = """\
export RANK=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?mpirun sets neither OMPI_COMM_WORLD_RANK nor \
PMI_RANK}}
export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$RANK}}
export WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
export LOCAL_WORLD_SIZE=$WORLD_SIZE MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} \
MASTER_PORT=${MASTER_PORT:-29500}
export LLMB_RANK=$RANK LLMB_NODE_RANK=0 LLMB_LOCAL_RANK=$LOCAL_RANK
exec "$@"
"""


def mpirun(ranks: int, venv: str | None) -> tuple[str, ...]:
    """The words before the command of a rank that start it ``ranks`` times on this node by MPI."""
    prefix = ("bash", "-c", _WITH_COMMANDS, "_", f"{venv}/bin") if venv is not None else ()
    return (*prefix, "bash", "-c", _MPIRUN, "_", "-np", str(ranks), "bash", "-c", _MPI_RANK, "_")


def rank_words(launch: Launch, python: str) -> tuple[str, ...]:
    """Return the command of one rank without its wrappers.

    It has the program, its server and what runs after it.

    ``python``: the interpreter of modules and scripts.
    """
    words = (*launch.program.words(python), *launch.args)
    if launch.server is not None:
        server = launch.server
        server_words = (*server.program.words(python), *server.args)
        everywhere = "yes" if server.on_every_rank else "no"
        options = (server.ready_text or "", str(server.ready_seconds), everywhere)
        words = ("bash", "-c", _SERVE, "_", *options, str(len(server_words)), *server_words, *words)
    if launch.after is not None:
        words = ("bash", "-c", _AFTER, "_", str(len(words)), *words, *launch.after.words(python))
    if launch.venv is not None and not all(program.is_python for program in launch.programs):
        words = ("bash", "-c", _WITH_COMMANDS, "_", f"{launch.venv}/bin", *words)
    return words
