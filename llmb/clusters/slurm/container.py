# SPDX-License-Identifier: Apache-2.0
"""How pyxis starts the ranks of a run in its image, and what each rank sets there before its program. Pure.

enroot unpacks the image on every node and makes its root read-only, unless it is told otherwise. /tmp is then a memory
disk of the container's own, or the node's /tmp, as the site's enroot has it.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from llmb.clusters import bashscript
from llmb.clusters.bashscript import bash
from llmb.config import ClusterConfig
from llmb.config.slurm import SlurmConfig
from llmb.runs.launch import Launch, Stamp

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
_STEP_LINE = "timeout -k 5 {seconds} srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 \\\n    "
# Where /tmp of the container is the node's own, the caches of this run are still there.
_REMOVE_OWN = """\
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
    return _REMOVE_OWN.format(
        first=NODE_FOLDER.replace("$SLURM_NODEID", "0"), step=_step(launch).replace("\n    ", "\n        ")
    )


def _step(launch: Launch) -> str:
    return _STEP_LINE.format(seconds=SECONDS, nodes=launch.nodes)


ENV, WRITABLE, READONLY = "container-env", "container-writable", "container-readonly"
PYXIS_OPTIONS = ("container-workdir", "no-container-mount-home", WRITABLE, READONLY, ENV)
WRITABLE_FROM = (25, 8)  # year and month of an image's release
PYTHONPATH = "PYTHONPATH"
NODE_FOLDER = "llmb-$SLURM_JOB_ID.$SLURM_NODEID"  # below the temporary folder of a node; leftovers.py removes it

# Each variable with the folder below the node's own that it is pointed to. Compilers of many ranks write there at once,
# which a shared disk takes badly. Source of the names: the tools' own documentation.
CACHES = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "HF_HOME": "huggingface",
    "NEMO_HOME": "nemo",
    "MPLCONFIGDIR": "matplotlib",
}
# What already names a folder that can be written stays as it is. The run's own folder is the last resort.
_CACHES = """\
for llmb_local in "${{TMPDIR:-/tmp}}" /tmp ''; do
    llmb_local=${{llmb_local:-$PWD/.local}}/{folder}
    mkdir -p -m 700 "$llmb_local" 2> /dev/null && [[ -O $llmb_local && -w $llmb_local ]] && break
done
(( LLMB_LOCAL_RANK )) || [[ $llmb_local != "$PWD"/.local/* ]] ||
    echo "llmb: this node has no temporary folder that can be written: caches are in $llmb_local" >&2
for llmb_pair in {pairs}; do
    llmb_name=${{llmb_pair%%=*}}
    [[ -n ${{!llmb_name-}} && -d ${{!llmb_name}} && -w ${{!llmb_name}} ]] && continue
    mkdir -p "$llmb_local/${{llmb_pair#*=}}"
    export "$llmb_name=$llmb_local/${{llmb_pair#*=}}"
done
"""


def mounts(launch: Launch, stamp: Stamp, programs: str) -> list[str]:
    """What a container sees of the cluster's file systems: ``source:target`` each; ranks write the run's folder."""
    return [f"{stamp.directory}:{stamp.directory}", f"{programs}:{programs}:ro", *launch.mounts]


def is_writable(launch: Launch, slurm: SlurmConfig) -> bool | None:
    """Whether ranks may write into the image's own folders: the job, else the cluster says so, else the image.

    None leaves it to the site's enroot.
    """
    said = launch.container_writable if launch.container_writable is not None else slurm.container_writable
    if said is not None:
        return said
    return True if launch.image is not None and _needs_writable(launch.image) else None


def options(launch: Launch, slurm: SlurmConfig, names: Iterable[str], lacks: Collection[str]) -> Iterator[str]:
    """The words of srun beside image and mounts, those of one line together, without the options that it ``lacks``.

    ``names``: the variables whose value the image must not replace.
    """
    writable = is_writable(launch, slurm)
    flags = {"container-workdir": '="$llmb_work"', "no-container-mount-home": ""}
    if writable is not None:
        flags[WRITABLE if writable else READONLY] = ""
    if known := [f"--{name}{value}" for name, value in flags.items() if name not in lacks]:
        yield " ".join(known)
    if ENV not in lacks:
        # PYTHONPATH is extended in the rank: named here, it would replace the image's.
        yield f"--{ENV}={','.join(name for name in dict.fromkeys(names) if name != PYTHONPATH)}"


def in_rank(launch: Launch, programs: str, given: Collection[str]) -> str:
    """Lines of bash for each rank: the image's PYTHONPATH is extended, and caches are where they can be written.

    ``given``: the variables that the job sets itself, which stay as they are.
    """
    path = bash(bashscript.python_path(launch, programs))
    pairs = " ".join(f"{name}={folder}" for name, folder in CACHES.items() if name not in given)
    return f"export {PYTHONPATH}={path}${{{PYTHONPATH}:+:${PYTHONPATH}}}\n" + _CACHES.format(
        folder=NODE_FOLDER, pairs=pairs
    )


def _needs_writable(image: str) -> bool:
    """Whether ranks write into the image's own folders: NeMo's from release 25.08 on."""
    match = re.search(r"nemo[:+](\d\d)\.(\d\d)", image)
    return match is not None and (int(match[1]), int(match[2])) >= WRITABLE_FROM
