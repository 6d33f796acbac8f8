# SPDX-License-Identifier: Apache-2.0
"""How pyxis starts the ranks of a run in its image, and what each rank sets there before its program. Pure.

enroot unpacks the image on every node and makes its root read-only, unless it is told otherwise. /tmp is then a memory
disk of the container's own, or the node's /tmp, as the site's enroot has it.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from llmb.clusters import bashscript
from llmb.clusters.quote import bash
from llmb.config.slurm import SlurmConfig
from llmb.runs.launch import Launch, Stamp

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
