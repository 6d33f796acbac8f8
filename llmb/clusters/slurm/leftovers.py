# SPDX-License-Identifier: Apache-2.0
"""The lines of a batch script that remove from its nodes what killed runs of llmb have left there. Pure.

pyxis unpacks the image of a step into a container of enroot's, ``pyxis_<job>.<step>``, or ``pyxis_<job>_<job>.<step>``
where the site's container_scope is job, and removes it at the end of the step. Where slurmstepd itself was killed or
the node went down, nothing removes it: tens of gigabytes of the node's own disk. Source: pyxis_slurmstepd.c.
"""

from llmb.clusters.quote import bash
from llmb.clusters.slurm.container import NODE_FOLDER
from llmb.config import ClusterConfig
from llmb.runs.launch import Launch

SECONDS = 300  # until the removal is not waited for any more

# What one task does on its node; its argument is the folder with the runs of all workloads. A job is one of llmb's
# where a run there has its id, and has ended where Slurm says so: no answer is no end.
_ON_NODE = """\
llmb_gone() {
    [[ $1 != "$SLURM_JOB_ID" ]] || return 1
    if llmb_answer=$(squeue --noheader --jobs="$1" --format=%T 2>&1); then
        [[ -z $llmb_answer ]] || return 1
    else
        [[ $llmb_answer == *'Invalid job id'* ]] || return 1
    fi
    printf '%s\\0' "$llmb_runs"/*/experiments/*/*/{,attempt-*/}scheduler_id | xargs -0 -r grep -lsx -- "$1" | grep -q .
}
shopt -s nullglob
llmb_runs=$1
while read -r llmb_name; do
    [[ $llmb_name =~ ^pyxis_([0-9]+)(_[0-9]+)?\\.[0-9]+$ ]] && llmb_gone "${BASH_REMATCH[1]}" &&
        enroot remove -f "$llmb_name" > /dev/null 2>&1 < /dev/null &&
        echo "llmb: removed the container $llmb_name, which a killed job had left on $SLURMD_NODENAME"
done < <(command -v enroot > /dev/null && enroot list 2> /dev/null)
for llmb_name in "${TMPDIR:-/tmp}"/llmb-* /tmp/llmb-*; do
    [[ ${llmb_name##*/} =~ ^llmb-([0-9]+)\\.[0-9]+$ && -O $llmb_name ]] && llmb_gone "${BASH_REMATCH[1]}" &&
        rm -rf -- "$llmb_name"
done
exit 0"""
_STEP = "timeout -k 5 {seconds} srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 \\\n    "
# Where /tmp of the container is the node's own, the caches of this run are still there.
_OWN = """\
for llmb_tmp in "${{TMPDIR:-/tmp}}" /tmp; do
    [[ ! -d $llmb_tmp/{first} ]] || {step}bash -c 'rm -rf -- "$1"/llmb-"$SLURM_JOB_ID".*' _ "$llmb_tmp" < /dev/null
done
"""


def remove_old(launch: Launch, config: ClusterConfig) -> list[str]:
    """Lines that remove, before the ranks start, what ended runs have left on the nodes of this one."""
    runs = bash(str(config.experiments("w").parents[1]))
    return [f"{_step(launch)}bash -c {bash(_ON_NODE)} _ {runs} < /dev/null || true", ""]


def remove_own(launch: Launch) -> str:
    """Lines that remove, after the ranks have ended, this run's own caches from its nodes."""
    return _OWN.format(
        first=NODE_FOLDER.replace("$SLURM_NODEID", "0"), step=_step(launch).replace("\n    ", "\n        ")
    )


def _step(launch: Launch) -> str:
    return _STEP.format(seconds=SECONDS, nodes=launch.nodes)
