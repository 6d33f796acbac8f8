# SPDX-License-Identifier: Apache-2.0
"""Telemetry: the first rank of each node has a process beside it that samples the GPUs. Pure."""

from dataclasses import replace

from llmb.contract.launch import Launch, Wrapper

NAME = "telemetry"
# The program stays in the foreground: it keeps the rank's process group and its signals. bash waits
# for it, since a scheduler kills what is left of a node's ranks when they have ended, and the line
# of the telemetry would be lost. bash itself must survive the signals of the group until then.
# A telemetry that does not start, or does not end, changes nothing. The last lines end as the
# program did. bash's own word about a killed program is not for the log.
_BESIDE = """\
llmb_python=$1 llmb_log=$2
shift 2
(( ${LLMB_LOCAL_RANK:-0} == 0 )) && command -v "$llmb_python" > /dev/null || exec "$@"
"$llmb_python" -S -m llmb_workloads.telemetry "$llmb_log" < /dev/null 2> /dev/null &
llmb_beside=$!
trap : HUP INT QUIT TERM USR1 USR2
exec {llmb_errors}>&2 2> /dev/null
"$@" 2>&"$llmb_errors" {llmb_errors}>&-
llmb_code=$?
kill "$llmb_beside"
for (( llmb_tries = 0; llmb_tries < 30; llmb_tries++ )); do
    kill -0 "$llmb_beside" || break
    sleep 0.1
done
kill -9 "$llmb_beside"
trap - HUP INT QUIT TERM USR1 USR2
if (( llmb_code > 128 && llmb_code < 160 )); then
    ulimit -c 0
    kill -"$(( llmb_code - 128 ))" $$
fi
exit "$llmb_code\""""


def with_telemetry(launch: Launch) -> Launch:
    """Return ``launch`` with a process on each node that samples its GPUs while the ranks run."""
    python = f"{launch.venv}/bin/python" if launch.venv is not None else "python3"
    words = ("bash", "-c", _BESIDE, "_", python, f"log-{launch.name}.out")
    return replace(launch, wrappers=(Wrapper(name=NAME, argv=words), *launch.wrappers))
