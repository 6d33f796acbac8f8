# SPDX-License-Identifier: Apache-2.0
"""Lines of a batch script that run its ranks in a container with pyxis, and that clean up the
nodes. Pure.

enroot unpacks the image on every node and makes its root read-only unless an option says otherwise.
/tmp is then a memory disk of the container, or the node's /tmp, depending on the site's enroot.

pyxis removes the container of a step, ``pyxis_<job>.<step>`` (or ``pyxis_<job>_<job>.<step>`` where
the site's container_scope is job), at the end of the step. Where slurmstepd was killed or the node
went down, it stays: tens of gigabytes of the node's disk. Source: pyxis_slurmstepd.c.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from llmb.contract.launch import Launch, Stamp
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.kit.bashscript import bash, python_path

PYXIS = "pyxis"  # the value of slurm.container
ENV, WRITABLE, READONLY = "container-env", "container-writable", "container-readonly"
PYXIS_OPTIONS = ("container-workdir", "no-container-mount-home", WRITABLE, READONLY, ENV)
WRITABLE_FROM = (25, 8)  # year and month of an image's release
PYTHONPATH = "PYTHONPATH"
NODE_FOLDER = "llmb-$SLURM_JOB_ID.$SLURM_NODEID"  # in the temporary folder of a node

# Each variable with its folder inside NODE_FOLDER. Compilers of many ranks write there at once,
# which is slow on a shared disk. Source of the names: the tools' documentation.
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
# A variable that already names a writable folder stays. The run's folder is the last resort.
_CACHES = """\
for llmb_local in "${{TMPDIR:-/tmp}}" /tmp ''; do
    llmb_local=${{llmb_local:-$PWD/.local}}/{folder}
    mkdir -p -m 700 "$llmb_local" 2> /dev/null && [[ -O $llmb_local && -w $llmb_local ]] && break
done
(( LLMB_LOCAL_RANK )) || [[ $llmb_local != "$PWD"/.local/* ]] ||
    echo "llmb: this node has no temporary folder that can be written: caches are in $llmb_local" \
>&2
for llmb_pair in {pairs}; do
    llmb_name=${{llmb_pair%%=*}}
    [[ -n ${{!llmb_name-}} && -d ${{!llmb_name}} && -w ${{!llmb_name}} ]] && continue
    mkdir -p "$llmb_local/${{llmb_pair#*=}}"
    export "$llmb_name=$llmb_local/${{llmb_pair#*=}}"
done
"""


def mounts(launch: Launch, stamp: Stamp, programs: str) -> list[str]:
    """The mounts of the container, each ``source:target``. Ranks write the run's folder."""
    return [f"{stamp.directory}:{stamp.directory}", f"{programs}:{programs}:ro", *launch.mounts]


def is_writable(launch: Launch, slurm: SlurmConfig) -> bool | None:
    """Return True if ranks may write into the image's folders, None if the site's enroot decides.

    The job's setting counts, else the cluster's, else the image's need.
    """
    configured = (
        launch.container_writable
        if launch.container_writable is not None
        else slurm.container_writable
    )
    if configured is not None:
        return configured
    return True if launch.image is not None and _needs_writable(launch.image) else None


def options(
    launch: Launch, slurm: SlurmConfig, names: Iterable[str], lacks: Collection[str]
) -> Iterator[str]:
    """srun's further container options, a string for each line, without those that this srun
    ``lacks``.

    ``names``: the variables whose value the image must not replace.
    """
    writable = is_writable(launch, slurm)
    flags = {"container-workdir": '="$llmb_work"', "no-container-mount-home": ""}
    if writable is not None:
        flags[WRITABLE if writable else READONLY] = ""
    if words := [f"--{name}{value}" for name, value in flags.items() if name not in lacks]:
        yield " ".join(words)
    if ENV not in lacks:
        # Each rank extends the image's PYTHONPATH: named here, the job's would replace it.
        yield f"--{ENV}={','.join(name for name in dict.fromkeys(names) if name != PYTHONPATH)}"


def in_rank(launch: Launch, programs: str, variables: Collection[str]) -> str:
    """Lines of bash for each rank that extend the image's PYTHONPATH and put caches into a writable
    folder.

    ``variables``: the variables that the job sets itself, which stay.
    """
    path = bash(python_path(launch, programs))
    pairs = " ".join(f"{name}={folder}" for name, folder in CACHES.items() if name not in variables)
    return f"export {PYTHONPATH}={path}${{{PYTHONPATH}:+:${PYTHONPATH}}}\n" + _CACHES.format(
        folder=NODE_FOLDER, pairs=pairs
    )


def _needs_writable(image: str) -> bool:
    """Return True if ranks write into the image's own folders, as in NeMo's images from release
    25.08 on.
    """
    match = re.search(r"nemo[:+](\d\d)\.(\d\d)", image)
    return match is not None and (int(match[1]), int(match[2])) >= WRITABLE_FROM


CLEANUP_SECONDS = 300  # the longest that a cleanup may take

# One task on each node runs this; its argument is the folder with the runs of all workloads. A job
# is one of llmb's if a run there has its id, and has ended if Slurm says so: no answer is no end.
_ON_NODE = """\
llmb_gone() {
    [[ $1 != "$SLURM_JOB_ID" ]] || return 1
    if llmb_answer=$(squeue --noheader --jobs="$1" --format=%T 2>&1); then
        [[ -z $llmb_answer ]] || return 1
    else
        [[ $llmb_answer == *'Invalid job id'* ]] || return 1
    fi
    printf '%s\\0' "$llmb_runs"/*/experiments/*/*/{,attempt-*/}scheduler_id \
| xargs -0 -r grep -lsx -- "$1" | grep -q .
}
shopt -s nullglob
llmb_runs=$1
while read -r llmb_name; do
    [[ $llmb_name =~ ^pyxis_([0-9]+)(_[0-9]+)?\\.[0-9]+$ ]] && llmb_gone "${BASH_REMATCH[1]}" &&
        enroot remove -f "$llmb_name" > /dev/null 2>&1 < /dev/null &&
        echo "llmb: removed the container $llmb_name, which a killed job had left \
on $SLURMD_NODENAME"
done < <(command -v enroot > /dev/null && enroot list 2> /dev/null)
for llmb_name in "${TMPDIR:-/tmp}"/llmb-* /tmp/llmb-*; do
    [[ ${llmb_name##*/} =~ ^llmb-([0-9]+)\\.[0-9]+$ && -O $llmb_name ]] \
&& llmb_gone "${BASH_REMATCH[1]}" &&
        rm -rf -- "$llmb_name"
done
exit 0"""
_STEP_LINE = (
    "timeout -k 5 {seconds} srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1"
    " \\\n    "
)
# Where /tmp of the container is the node's own, the caches of this run are still there.
_REMOVE_OWN = """\
for llmb_tmp in "${{TMPDIR:-/tmp}}" /tmp; do
    [[ ! -d $llmb_tmp/{first} ]] || {step}bash -c 'rm -rf -- "$1"/llmb-"$SLURM_JOB_ID".*' \
_ "$llmb_tmp" < /dev/null
done
"""


def remove_old(launch: Launch, config: ClusterConfig) -> list[str]:
    """Lines that remove, before the ranks start, what killed runs left on the nodes of this one."""
    runs = bash(str(config.runs_root))
    return [f"{_step(launch)}bash -c {bash(_ON_NODE)} _ {runs} < /dev/null || true", ""]


def remove_own(launch: Launch) -> str:
    """Lines that remove this run's own caches from its nodes after the ranks have ended."""
    return _REMOVE_OWN.format(
        first=NODE_FOLDER.replace("$SLURM_NODEID", "0"),
        step=_step(launch).replace("\n    ", "\n        "),
    )


def _step(launch: Launch) -> str:
    return _STEP_LINE.format(seconds=CLEANUP_SECONDS, nodes=launch.nodes)
