# SPDX-License-Identifier: Apache-2.0
"""A process beside the ranks of a launch, one on each node, as a wrapper of their command."""

from collections.abc import Sequence

from llmb.contract.launch import Wrapper

# Arguments: the name, the number of words of the other command, that command, the rank's command.
# Under set -m each has a process group of its own, with all that it starts, as in rank_command. A
# cluster may kill what is left when the rank has ended, so the other process is ended before.
_BESIDE = """\
llmb_name=$1 llmb_beside=("${@:3:$2}")
shift $(($2 + 2))
((${LLMB_LOCAL_RANK:-0} == 0)) || exec "$@"
llmb_out=beside-$llmb_name-${LLMB_NODE_RANK:-0}.out
{
    set -m
    "${llmb_beside[@]}" > "$llmb_out" 2>&1 < /dev/null &
    llmb_side=$!
    "$@" &
    llmb_main=$!
    set +m
}
trap 'kill -- "-$llmb_main" 2> /dev/null' TERM INT
while :; do
    wait "$llmb_main"
    llmb_code=$?
    kill -0 "$llmb_main" 2> /dev/null || break
done
{
    kill -- "-$llmb_side"
    for ((i = 0; i < 20; i++)); do kill -0 "$llmb_side" || break; sleep 0.1; done
    kill -9 -- "-$llmb_side"
} 2> /dev/null
exit "$llmb_code\""""


def beside(name: str, argv: Sequence[str]) -> Wrapper:
    """Return a wrapper that runs ``argv`` beside the ranks, from their start to their end.

    One process on each node, in the run's folder. Its output is in ``beside-<name>-<node>.out``.
    Its failure changes nothing. It gets SIGTERM at the end, and SIGKILL 2 s later.
    """
    words = (name, str(len(argv)), *argv)
    return Wrapper(name=name, argv=("bash", "-c", _BESIDE, "_", *words))
