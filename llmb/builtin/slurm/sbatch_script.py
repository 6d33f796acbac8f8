# SPDX-License-Identifier: Apache-2.0
"""The batch script of a run as text: the options of sbatch, and what the job does. Pure."""

from collections.abc import Iterator, Mapping

from llmb.builtin.slurm import container, sbatch_options
from llmb.contract.launch import Launch, Stamp
from llmb.contract.sbatch import PMIX, SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.core.values import dataclass
from llmb.kit import bashscript
from llmb.kit.bashscript import bash
from llmb.plan.images import image_path

VBOOST_SECONDS = 60  # the longest that a node may take
VBOOST_LINE = "llmb vboost {"  # begins the line in the log that llmb.measure.log_conditions reads

# One task on each node runs this. sudo -n never asks: without a rule for nvidia-smi it prints an
# error and ends. Source: PerfEnvPlugin of NeMo 2.3 does it by one srun before the training, with
# sudo, outside of any container.
_BOOST_NODE = """\
llmb_output=$(sudo -n nvidia-smi boost-slider --vboost 1 2>&1) && echo "llmb: set" ||
    echo "llmb: $SLURMD_NODENAME: ${llmb_output##*$'\\n'}\""""

# The step shares its resources with the training (--overlap), which starts even if this step fails.
# The log gets the first reason that a node printed, else the last line of srun.
_BOOST_LINES = """\
llmb_boost=$(timeout -k 5 {seconds} srun --overlap --nodes={nodes} --ntasks={nodes} \
--ntasks-per-node=1 \\
    bash -c {on_node} 2>&1 < /dev/null)
llmb_code=$?
llmb_set=$(grep -c '^llmb: set$' <<< "$llmb_boost")
llmb_why=$(grep -v '^llmb: set$' <<< "$llmb_boost" | sed -n 's/^llmb: //p' | head -n 1)
if (( llmb_code == 124 || llmb_code == 137 )); then
    llmb_why="no answer within {seconds} s"
    scancel "$SLURM_JOB_ID.0" 2> /dev/null
fi
if (( llmb_set < {nodes} )); then
    llmb_why=": ${{llmb_why:-${{llmb_boost##*$'\\n'}}}}"
else
    llmb_why=
fi
echo "{begin}set on $llmb_set of {nodes} {word}}}$llmb_why" >> "$llmb_log"
"""


# Comes first, so that the job is known even if its submission was never answered, and a run that
# was submitted twice runs once.
_FIRST_ACT = """\
llmb_part=$llmb_run/.scheduler_id.$SLURM_JOB_ID
printf '%s\\n' "$SLURM_JOB_ID" "cluster ${SLURM_CLUSTER_NAME-}" "nodes ${SLURM_JOB_NODELIST-}" \
"host $(hostname)" \\
    "started $(date +%s)" > "$llmb_part" || exit 1
[[ -e $llmb_run/scheduler_id ]] || ln "$llmb_part" "$llmb_run/scheduler_id" 2> /dev/null ||
    mv -n "$llmb_part" "$llmb_run/scheduler_id"
rm -f "$llmb_part"
read -r llmb_owner < "$llmb_run/scheduler_id" || exit 1
if [[ $llmb_owner != "$SLURM_JOB_ID" ]]; then
    echo "this run is job $llmb_owner; job $SLURM_JOB_ID is one too many and ends here" >&2
    exit 1
fi
"""

# Evaluated in each rank: torchrun's names, and the names that wrappers use on every cluster.
_RANK = """\
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
export LLMB_RANK=$SLURM_PROCID LLMB_NODE_RANK=$SLURM_NODEID LLMB_LOCAL_RANK=$SLURM_LOCALID
"""
# For ranks on several nodes. The groups of gloo connect through the address of the host's name, and
# where that is 127.0.1.1, as Debian writes it into /etc/hosts, other nodes cannot reach it. Then
# they use the interface of the default route.
_GLOO = """\
read -r llmb_host < /proc/sys/kernel/hostname
if [[ ! ${GLOO_SOCKET_IFNAME-} && $(getent hosts "$llmb_host" 2> /dev/null) == @(127.|::1)* ]]; then
    while read -r llmb_name llmb_to _; do
        if [[ $llmb_to == 00000000 ]]; then export GLOO_SOCKET_IFNAME=$llmb_name; fi
    done < /proc/net/route
fi
"""
_EXEC = 'exec "$@"'
_OF_THE_JOB = ("MASTER_ADDR", "MASTER_PORT")  # set by the batch script alone: no image has them
_LAST_CODE = """\
llmb_code=$?
"""
# srun ends the other ranks when one fails, and then returns their exit code. Its first line has the
# failed rank's.
# A partition or QOS with GraceTime sends SIGTERM to the ranks of a preempted job and kills its script
# later. The script ends before that, so Slurm records FAILED; only the controller has PreemptTime.
_LAST_ACT = (
    _LAST_CODE
    + """\
if (( llmb_code != 0 )); then
    llmb_first=$(sed -nE '/^srun: error: [^ ]+: tasks? [0-9,-]+: /{s///p;q}' "$llmb_log")
    case $llmb_first in
        'Exited with exit code '*) llmb_code=${llmb_first##* } ;;
        Killed* | 'Out Of Memory'*) llmb_code=137 ;;
        'Segmentation fault'*) llmb_code=139 ;;
        Aborted*) llmb_code=134 ;;
        'Bus error'*) llmb_code=135 ;;
    esac
    llmb_job=$(timeout 10 scontrol --oneliner show job "$SLURM_JOB_ID" 2> /dev/null)
    if [[ $llmb_job == *" PreemptTime="[0-9]* ]]; then llmb_cause=PREEMPTED; fi
fi
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The values that a script depends on in addition to its launch."""

    config: ClusterConfig
    #: The folder of the staged programs.
    programs: str
    #: Whether this sbatch has ``--segment``.
    knows_segment: bool
    #: Those of container.PYXIS_OPTIONS and PMIX that this srun does not have, which the script
    #: omits.
    lacks: frozenset[str] = frozenset()

    @property
    def slurm(self) -> SlurmConfig:
        """The slurm section of the configuration."""
        return self.config.slurm or SlurmConfig()

    @property
    def container(self) -> bool:
        """Return True if ranks start inside an image."""
        return self.slurm.container == container.PYXIS

    @property
    def mpi(self) -> str | None:
        """Return srun's value of --mpi, None to omit the option."""
        return self.slurm.mpi_kind(has_pmix=PMIX not in self.lacks)


def render(launch: Launch, stamp: Stamp, setting: Setting) -> str:
    """The script of ``launch``. Raises UsageError for a name or value that bash or Slurm cannot
    take.
    """
    options = sbatch_options.options_of(
        launch, stamp, setting.config, knows_segment=setting.knows_segment
    )
    given = (
        name if value is None else f"{name}={sbatch_options.directive(value)}"
        for name, value in options.items()
    )
    variables = environment(launch, stamp, setting)
    if setting.container:  # each rank extends the image's own
        variables.pop(container.PYTHONPATH)
    parts = [
        "#!/bin/bash",
        *(f"#SBATCH --{option}" for option in given),
        "",
        # Always quoted, so that a preview looks like the script except for its placeholders.
        f"llmb_run={bash(stamp.place, always=True)}",
        f"llmb_work={bash(stamp.work(launch.name), always=True)}",
        f'llmb_log="$llmb_work"/{bash(f"log-{launch.name}.out")}',
        _FIRST_ACT,
        'cd "$llmb_work" || exit 1',
        *bashscript.write_files(launch),
        "",
        *(f"export {name}={value}" for name, value in variables.items()),
        "",
        *vboost_lines(launch),
        *(container.remove_old(launch, setting.config) if setting.container else ()),
        " \\\n    ".join(_srun(launch, stamp, setting, variables)) + ' >> "$llmb_log" 2>&1',
    ]
    removal = container.remove_own(launch) if setting.container else ""
    last = _LAST_ACT if _uses_srun(launch, setting) else _LAST_CODE
    return "\n".join(parts) + "\n" + last + bashscript.WRITE_END + removal + bashscript.EXIT


def environment(launch: Launch, stamp: Stamp, setting: Setting) -> dict[str, str]:
    """The variables that the script exports, with their values quoted for bash. Raises
    UsageError.
    """
    return {
        "MASTER_ADDR": '"$(hostname)"',
        "MASTER_PORT": "$(( 20000 + SLURM_JOB_ID % 10000 ))",
        "WORLD_SIZE": str(launch.nodes * launch.ranks_per_node),
        "LOCAL_WORLD_SIZE": str(launch.ranks_per_node),
        **bashscript.environment(launch, stamp.id, setting.programs),
    }


def _uses_srun(launch: Launch, setting: Setting) -> bool:
    """Return True if srun starts the program, unless it starts once without a container."""
    return setting.container or launch.start != "once"


def _srun(
    launch: Launch, stamp: Stamp, setting: Setting, variables: Mapping[str, str]
) -> Iterator[str]:
    """The command that starts the ranks, line by line."""
    if not _uses_srun(launch, setting):
        yield from _rank_command(launch, setting, variables)
        return
    total = 1 if launch.start == "once" else launch.nodes * launch.ranks_per_node
    per_node = min(total, launch.ranks_per_node)
    on = "--nodes=1 " if launch.start == "once" else ""
    yield f"srun {on}--ntasks={total} --ntasks-per-node={per_node} --kill-on-bad-exit=1"
    if setting.mpi is not None:
        yield f"--mpi={bash(setting.mpi)}"
    if setting.container:
        image = (
            str(image_path(launch.image, setting.config))
            if launch.image is not None
            else bashscript.NO_IMAGE
        )
        yield f"--container-image={bash(image)}"
        mounted = container.mounts(launch, stamp, setting.programs)
        yield f"--container-mounts={bash(','.join(mounted), always=True)}"
        names = [*variables, *launch.secrets, *setting.config.pass_environment]
        yield from container.options(launch, setting.slurm, names, setting.lacks)
    yield from _rank_command(launch, setting, variables)


def _rank_command(launch: Launch, setting: Setting, variables: Mapping[str, str]) -> Iterator[str]:
    """The command of one rank, line by line."""
    yield f"bash -c {bash(_rank(launch, setting, variables))} _"
    for wrapper in launch.wrappers:
        yield " ".join(map(bash, wrapper.argv))
    python = "python3" if setting.container else f"{launch.venv or bashscript.NO_VENV}/bin/python"
    yield bashscript.program(launch, python)


def _rank(launch: Launch, setting: Setting, variables: Mapping[str, str]) -> str:
    """Return what bash runs in each rank before and as its program."""
    rank = _RANK + (_GLOO if launch.nodes > 1 else "")
    if not setting.container:
        return rank + bashscript.THREADS + _EXEC
    own = [
        f"export {name}={value}\n" for name, value in variables.items() if name not in _OF_THE_JOB
    ]
    given = {*variables, *setting.config.pass_environment}
    return (
        rank
        + "".join(own if container.ENV in setting.lacks else [])
        + container.in_rank(launch, setting.programs, given)
        + bashscript.THREADS
        + _EXEC
    )


def vboost_lines(launch: Launch) -> list[str]:
    """Lines that raise the GPUs' vboost on every node and log the result, none for a launch without
    vboost.
    """
    if not launch.vboost:
        return []
    word = "node" if launch.nodes == 1 else "nodes"
    text = _BOOST_LINES.format(
        seconds=VBOOST_SECONDS,
        nodes=launch.nodes,
        on_node=bash(_BOOST_NODE),
        begin=VBOOST_LINE,
        word=word,
    )
    return [text]
