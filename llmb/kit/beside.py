# SPDX-License-Identifier: Apache-2.0
"""A process beside the ranks of a launch, one on each node, as a wrapper of their command. Pure."""

from collections.abc import Sequence

from llmb.contract.launch import Wrapper

# Arguments: the begin of the output file's name (empty: the log of the ranks), the number of words
# of the other command, that command, the rank's command.
# The rank's program stays in the foreground: it keeps the rank's process group and its signals.
# bash waits for it, since a scheduler kills what is left of a node's ranks when they have ended,
# and the last lines of the other process would be lost. bash itself must survive the signals of the
# group until then. Under set -m the other process has a group of its own, with all that it starts;
# one that prints to the log gets the signals of the ranks, and prints its end. One that does not
# start, or does not end, changes nothing. The last lines end as the program did. bash's own word
# about a killed program is not for the log.
_BESIDE = """\
llmb_out=$1 llmb_beside=("${@:3:$2}")
shift $(($2 + 2))
((${LLMB_LOCAL_RANK:-0} == 0)) || exec "$@"
trap : HUP INT QUIT TERM USR1 USR2
if [[ $llmb_out ]]; then
    llmb_out+=-${LLMB_NODE_RANK:-0}.out
    { set -m; "${llmb_beside[@]}" < /dev/null > "$llmb_out" 2>&1 & set +m; }
    llmb_side=$! llmb_all=-$!
else
    "${llmb_beside[@]}" < /dev/null 2> /dev/null &
    llmb_side=$! llmb_all=$!
fi
exec {llmb_errors}>&2 2> /dev/null
"$@" 2>&"$llmb_errors" {llmb_errors}>&-
llmb_code=$?
kill -- "$llmb_all"
for ((llmb_tries = 0; llmb_tries < 30; llmb_tries++)); do
    kill -0 "$llmb_side" || break
    sleep 0.1
done
kill -9 -- "$llmb_all"
trap - HUP INT QUIT TERM USR1 USR2
if ((llmb_code > 128 && llmb_code < 160)); then
    ulimit -c 0
    kill -"$((llmb_code - 128))" $$
fi
exit "$llmb_code\""""


def beside(name: str, argv: Sequence[str], *, into_log: bool = False) -> Wrapper:
    """Return a wrapper that runs ``argv`` beside the ranks, from their start to their end.

    One process on each node, in the run's folder. Its failure changes nothing. It gets SIGTERM at
    the end, and SIGKILL 3 s later. Its output is in ``beside-<name>-<node>.out``. With ``into_log``
    its standard output is the log of the ranks instead, its errors are dropped, and it gets the
    signals of the ranks.
    """
    output = "" if into_log else f"beside-{name}"
    words = (output, str(len(argv)), *argv)
    return Wrapper(name=name, argv=("bash", "-c", _BESIDE, "_", *words))
